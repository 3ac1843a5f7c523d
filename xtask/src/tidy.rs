//! `cargo xtask tidy`: checks of the sources that need no compilation, and counts of their size.
//!
//! Each finding names file, line and rule. A line that ends with the comment `// tidy: RULE` is an
//! exception of this rule; `xtask/tidy-exceptions.txt` lists how many findings files may still
//! have.

mod counts;
mod documents;
mod source;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;
use ironkeeper_steps::count::Count;
use ironkeeper_steps::{process, repo};

use source::Source;

/// Options of `cargo xtask tidy`.
#[derive(Debug, Args)]
pub struct Options {
    /// Print only findings, not the counts.
    #[arg(long)]
    brief: bool,
}

/// The largest number of columns of a line.
const COLUMNS_MAX: usize = 100;
/// The largest number of characters of the subject of a commit.
const SUBJECT_MAX: usize = 72;

/// Pronouns where a comment, an error or a log line names a role or a type.
const PRIVATE_WORDS: [&str; 6] = ["whoever", "whom", "somebody", "nobody", "everybody", "anybody"];

/// The beginnings of paths of one machine.
const MACHINE_PATHS: [&str; 3] = ["/root/", "/Users/", "/work/"]; // tidy: machine-path

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Finding {
    file: String,
    /// Zero if the whole file is concerned.
    line: usize,
    rule: &'static str,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.rule, self.what)
    }
}

/// Runs the checks and prints the counts; returns `false` if there is a finding.
pub fn run(options: &Options) -> Result<bool> {
    let files = tracked_files()?;
    let sources = sources(&files)?;
    if !options.brief {
        println!("{}", counts::report(&sources));
    }
    Ok(check(&files, &sources)?.is_good())
}

/// Runs the checks as a step of `cargo xtask test`.
pub fn step() -> Result<Count> {
    let files = tracked_files()?;
    check(&files, &sources(&files)?)
}

fn check(files: &[String], sources: &[Source]) -> Result<Count> {
    let mut findings: Vec<Finding> = sources.iter().flat_map(of_source).collect();
    findings.extend(documents::findings(files)?);
    findings.extend(of_commits()?);
    let exceptions = fs::read_to_string(repo::root().join("xtask/tidy-exceptions.txt"))?;
    let findings = without_exceptions(findings, &exceptions)?;
    for finding in &findings {
        println!("{finding}");
    }
    let count = Count { passed: files.len(), failed: findings.len(), ..Count::default() };
    println!("{count}");
    Ok(count)
}

fn tracked_files() -> Result<Vec<String>> {
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    let listed = process::run(git.current_dir(repo::root()))?;
    let exists = |file: &&str| repo::root().join(file).is_file();
    Ok(listed.lines().filter(exists).map(str::to_owned).collect())
}

fn sources(files: &[String]) -> Result<Vec<Source>> {
    let mut sources = Vec::new();
    for file in files.iter().filter(|file| file.ends_with(".rs")) {
        let text = fs::read_to_string(repo::root().join(file)).with_context(|| file.clone())?;
        sources.push(Source::new(file, &text));
    }
    source::mark_test_modules(&mut sources);
    Ok(sources)
}

/// Returns the findings in one source file.
fn of_source(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (at, line) in source.lines.iter().enumerate() {
        let mut found = |rule: &'static str, what: String| {
            if !line.comment.contains(&format!("tidy: {rule}")) {
                findings.push(Finding { file: source.file.clone(), line: at + 1, rule, what });
            }
        };
        if line.columns > COLUMNS_MAX {
            found("width", format!("{} columns", line.columns));
        }
        if line.code.contains("#[ignore") {
            found("ignored-test", "a test that never runs".to_owned());
        }
        let text = format!("{} {}", line.comment, line.strings);
        for path in MACHINE_PATHS.iter().filter(|path| text.contains(**path)) {
            found("machine-path", format!("{path:?}"));
        }
        if source.is_test_line(at) {
            continue;
        }
        if line.code.contains(".unwrap()") {
            found("unwrap", "an `expect` with its reason, or an error".to_owned());
        }
        for word in private_words(&text) {
            found("private-word", format!("{word:?} where a role or a type has a name"));
        }
    }
    findings
}

fn private_words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|sign: char| !sign.is_alphanumeric())
        .filter(|word| PRIVATE_WORDS.iter().any(|private| word.eq_ignore_ascii_case(private)))
}

/// Returns the commits since the branch point from `main` whose subjects are too long.
fn of_commits() -> Result<Vec<Finding>> {
    let git = |arguments: &[&str]| {
        process::run(Command::new("git").args(arguments).current_dir(repo::root()))
    };
    let bases = ["main", "origin/main", "origin/HEAD"];
    let Some(base) = bases.iter().find_map(|base| git(&["merge-base", base, "HEAD"]).ok()) else {
        return Ok(Vec::new());
    };
    let log = git(&["log", "--format=%h %s", &format!("{}..HEAD", base.trim())])?;
    let too_long = log.lines().filter_map(|line| {
        let (commit, subject) = line.split_once(' ')?;
        let length = subject.chars().count();
        (length > SUBJECT_MAX).then(|| Finding {
            file: format!("commit {commit}"),
            line: 0,
            rule: "subject",
            what: format!("{length} characters: {subject}"),
        })
    });
    Ok(too_long.collect())
}

/// Removes the findings of files that have at most as many of a rule as the list of exceptions
/// grants: lines of file or folder, rule and number.
fn without_exceptions(findings: Vec<Finding>, list: &str) -> Result<Vec<Finding>> {
    let mut granted = BTreeMap::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let [file, rule, number] = line.split(' ').collect::<Vec<_>>()[..] else {
            bail!("tidy-exceptions.txt: {line:?} is not FILE RULE NUMBER")
        };
        granted.insert((file, rule), number.parse::<usize>()?);
    }
    let is_at = |finding: &Finding, place: &str, rule: &str| {
        let rest = finding.file.strip_prefix(place);
        finding.rule == rule && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut left = findings;
    for ((place, rule), max) in granted {
        if left.iter().filter(|finding| is_at(finding, place, rule)).count() <= max {
            left.retain(|finding| !is_at(finding, place, rule));
        }
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(file: &str, text: &str) -> Vec<(usize, &'static str)> {
        let found = of_source(&Source::new(file, text));
        found.iter().map(|finding| (finding.line, finding.rule)).collect()
    }

    #[test]
    fn product_code_has_no_unwrap_and_no_private_words() {
        let text = "fn f() {\n    x.unwrap(); // for whoever\n    log(\"nobody\");\n}\n";
        let file = "crates/ironkeeper-zab/src/a.rs";
        assert_eq!(rules(file, text), [(2, "unwrap"), (2, "private-word"), (3, "private-word")]);
        assert_eq!(rules("crates/ironkeeper-zab/tests/a.rs", text), []);
        let behind = format!("#[cfg(test)]\nmod tests {{\n{text}}}\n");
        assert_eq!(rules(file, &behind), []);
    }

    #[test]
    fn words_in_names_and_unwraps_in_text_are_no_findings() {
        let file = "crates/ironkeeper-zab/src/a.rs";
        assert_eq!(rules(file, "let nobody = \".unwrap()\"; // x.unwrap()\n"), []);
    }

    #[test]
    fn wide_lines_are_found_in_tests_too_unless_they_are_marked() {
        let wide = format!("// {}\n", "x".repeat(100));
        let file = "crates/ironkeeper-zab/tests/a.rs";
        assert_eq!(rules(file, &wide), [(1, "width")]);
        assert_eq!(rules(file, &format!("// {} tidy: width\n", "x".repeat(100))), []);
        // Columns, not bytes.
        assert_eq!(rules(file, &format!("// {}\n", "\u{e4}".repeat(97))), []);
    }

    #[test]
    fn a_file_may_have_as_many_findings_as_it_is_granted() {
        let finding =
            |line| Finding { file: "a.rs".to_owned(), line, rule: "width", what: String::new() };
        let left = |list: &str| {
            without_exceptions(vec![finding(1), finding(2)], list).map(|left| left.len()).unwrap()
        };
        assert_eq!(left("a.rs width 2"), 0);
        assert_eq!(left("a.rs width 1"), 2);
        assert_eq!(left("a width 2"), 2);
        assert_eq!(left("# comment\na.rs unwrap 2\n"), 2);
        assert!(without_exceptions(Vec::new(), "a.rs width").is_err());
    }
}
