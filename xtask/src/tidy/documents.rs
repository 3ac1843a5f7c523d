//! Checks of the documents: the files that they name exist, and the glossary stays short.

use std::fs;

use anyhow::Result;
use ironkeeper_steps::repo;

use super::{Finding, MACHINE_PATHS};

/// The largest number of own terms.
const TERMS_MAX: usize = 25;

/// Extensions of names that are files of the repository.
const EXTENSIONS: [&str; 5] = [".rs", ".md", ".toml", ".txt", ".py"];

/// Returns the findings in all documents.
pub fn findings(files: &[String]) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".md")) {
        let text = fs::read_to_string(repo::root().join(file))?;
        let finding = |line, rule, what| Finding { file: file.clone(), line, rule, what };
        for (at, line) in text.lines().enumerate() {
            for path in MACHINE_PATHS.iter().filter(|path| line.contains(**path)) {
                findings.push(finding(at + 1, "machine-path", format!("{path:?}")));
            }
            if !names_files(file) {
                continue;
            }
            for path in paths(line).filter(|path| !exists(path, files)) {
                findings.push(finding(at + 1, "path", format!("no file {path}")));
            }
        }
        if file == "GLOSSARY.md" {
            let terms = own_terms(&text);
            if terms > TERMS_MAX {
                let what = format!("{terms} own terms, {TERMS_MAX} at most");
                findings.push(finding(0, "glossary", what));
            }
        }
    }
    Ok(findings)
}

/// Returns whether all paths of a document have to exist.
fn names_files(file: &str) -> bool {
    ["ARCHITECTURE.md", "GLOSSARY.md", "CONTRIBUTING.md"].contains(&file)
        || file.starts_with("docs/")
}

/// Returns the paths in backquotes: words with a folder and a known extension.
fn paths(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2).filter(|word| {
        word.contains('/')
            && EXTENSIONS.iter().any(|extension| word.ends_with(extension))
            && !word.contains(|sign: char| " *<>{}$~:…".contains(sign))
    })
}

/// Returns whether a tracked file has this path or ends with it: documents shorten
/// `crates/ironkeeper-engine/src/gate.rs` to `engine/src/gate.rs`.
fn exists(path: &str, files: &[String]) -> bool {
    files.iter().any(|file| {
        let before = file.strip_suffix(path.trim_start_matches("./"));
        before.is_some_and(|rest| rest.is_empty() || rest.ends_with(['/', '-']))
    })
}

/// Returns the number of terms in the section `Own terms`.
fn own_terms(glossary: &str) -> usize {
    let (_, section) = glossary.split_once("\n## Own terms").unwrap_or(("", ""));
    let section = section.split("\n## ").next().unwrap_or("");
    section.lines().filter(|line| line.starts_with("**")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortened_paths_are_found() {
        let files = ["crates/ironkeeper-engine/src/gate.rs".to_owned(), "docs/zab.md".to_owned()];
        for path in ["engine/src/gate.rs", "src/gate.rs", "docs/zab.md"] {
            assert!(exists(path, &files), "{path}");
        }
        assert!(!exists("engine/src/ate.rs", &files) && !exists("engine/gate.rs", &files));
    }

    #[test]
    fn only_files_in_backquotes_are_paths() {
        let line = "`a/b.rs` and a/c.rs, `Type::f`, `x.rs`, `engine/src/…`, `run a/d.rs`";
        assert_eq!(paths(line).collect::<Vec<_>>(), ["a/b.rs"]);
    }

    #[test]
    fn own_terms_are_those_of_their_section() {
        let glossary = "# G\n\n## Own terms\n\n### Server\n\n**gate** (`g`)\n: x\n\n\
                        **lane** (`l`)\n\n## Words of ZooKeeper\n\n**zxid**\n";
        assert_eq!(own_terms(glossary), 2);
    }
}
