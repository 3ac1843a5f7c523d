//! A source file, divided into code, comments and strings.

use std::path::Path;

/// Crates that are not part of the product: tests, tools and the simulator.
const NOT_PRODUCT: [&str; 10] = [
    "ironkeeper-bench-peers",
    "ironkeeper-chaos",
    "ironkeeper-conformance",
    "ironkeeper-doctest",
    "ironkeeper-fuzz",
    "ironkeeper-peers",
    "ironkeeper-sim",
    "ironkeeper-simdisk",
    "ironkeeper-steps",
    "ironkeeper-suites",
];

/// One line of a file.
#[derive(Debug, Default)]
pub struct Line {
    /// The line without comments and without the content of strings.
    pub code: String,
    pub comment: String,
    pub strings: String,
    pub columns: usize,
}

#[derive(Debug)]
pub struct Source {
    pub file: String,
    pub lines: Vec<Line>,
    /// Whether the file is compiled for tests or tools only.
    pub is_test: bool,
    /// The first line of the test module at the end of the file.
    tests_from: usize,
}

impl Source {
    pub fn new(file: &str, text: &str) -> Source {
        let lines = divided(text);
        let tests_from = (0..lines.len()).find(|at| begins_tests(&lines, *at));
        let tests_from = tests_from.unwrap_or(lines.len());
        let is_product = file.starts_with("crates/")
            && file.contains("/src/")
            && !file.ends_with("/tests.rs")
            && !file.contains("/tests/")
            && !NOT_PRODUCT.iter().any(|name| file.starts_with(&format!("crates/{name}/")));
        Source { file: file.to_owned(), lines, is_test: !is_product, tests_from }
    }

    pub fn is_test_line(&self, at: usize) -> bool {
        self.is_test || at >= self.tests_from
    }

    /// Returns the lines of product code, with their indices.
    pub fn product_lines(&self) -> impl Iterator<Item = (usize, &Line)> {
        self.lines.iter().enumerate().filter(|(at, _)| !self.is_test_line(*at))
    }

    /// Returns the files that a `mod name;` below `#[cfg(test)]` stands for, without extension.
    fn test_modules(&self) -> Vec<String> {
        let path = Path::new(&self.file);
        let (folder, stem) = (path.parent(), path.file_stem());
        let (Some(folder), Some(stem)) = (folder, stem) else { return Vec::new() };
        let folder = match stem.to_str() {
            Some("lib" | "main" | "mod") => folder.to_owned(),
            _ => folder.join(stem),
        };
        let mut modules = Vec::new();
        for pair in self.lines.windows(2) {
            let name = pair[1].code.trim().trim_start_matches("pub(crate) ").strip_prefix("mod ");
            if is_test_attribute(&pair[0].code)
                && let Some(name) = name.and_then(|name| name.strip_suffix(';'))
            {
                modules.push(folder.join(name).to_string_lossy().into_owned());
            }
        }
        modules
    }
}

/// Returns whether a line begins a module of tests: `#[cfg(test)]` or the like is on a line above.
fn begins_tests(lines: &[Line], at: usize) -> bool {
    let code = lines[at].code.as_str();
    let is_module = code.trim_start_matches("pub(crate) ").trim_start_matches("pub(super) ");
    is_module.starts_with("mod ")
        && code.ends_with('{')
        && lines[at.saturating_sub(3)..at].iter().any(|line| is_test_attribute(&line.code))
}

fn is_test_attribute(code: &str) -> bool {
    code.starts_with("#[cfg(test)]") || code.starts_with("#[cfg(all(test,")
}

/// Marks the files of modules that are compiled for tests only.
pub fn mark_test_modules(sources: &mut [Source]) {
    let modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
    for source in sources {
        let below = |module: &String| {
            let rest = source.file.strip_prefix(module.as_str());
            rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
        };
        source.is_test |= modules.iter().any(below);
    }
}

#[derive(Clone, Copy)]
enum State {
    Code,
    LineComment,
    /// The depth of nested comments.
    BlockComment(usize),
    Text,
    /// The number of `#` that end the raw string.
    RawText(usize),
}

fn divided(text: &str) -> Vec<Line> {
    let signs: Vec<char> = text.chars().collect();
    let ahead = |at: usize, word: &str| {
        word.chars().enumerate().all(|(i, sign)| signs.get(at + i) == Some(&sign))
    };
    let mut lines = vec![Line::default()];
    let (mut state, mut at) = (State::Code, 0);
    while let Some(&sign) = signs.get(at) {
        at += 1;
        if sign == '\n' {
            if matches!(state, State::LineComment) {
                state = State::Code;
            }
            lines.push(Line::default());
            continue;
        }
        let Some(line) = lines.last_mut() else { break };
        line.columns += 1;
        match state {
            State::Code if sign == '/' && (ahead(at, "/") || ahead(at, "*")) => {
                let is_line = ahead(at, "/");
                state = if is_line { State::LineComment } else { State::BlockComment(1) };
                (at, line.columns) = (at + 1, line.columns + 1);
            }
            State::Code if sign == '"' => {
                line.code.push('"');
                let hashes =
                    line.code.chars().rev().skip(1).take_while(|sign| *sign == '#').count();
                let before = line.code.chars().rev().nth(1 + hashes);
                state = if before == Some('r') { State::RawText(hashes) } else { State::Text };
            }
            State::Code if sign == '\'' && (ahead(at, "\"'") || ahead(at, "\\\"'")) => {
                let len = if ahead(at, "\"'") { 2 } else { 3 };
                line.columns += len;
                at += len;
            }
            State::Code => line.code.push(sign),
            State::LineComment => line.comment.push(sign),
            State::BlockComment(depth) => {
                line.comment.push(sign);
                if sign == '*' && ahead(at, "/") {
                    (at, line.columns) = (at + 1, line.columns + 1);
                    state = if depth == 1 { State::Code } else { State::BlockComment(depth - 1) };
                } else if sign == '/' && ahead(at, "*") {
                    state = State::BlockComment(depth + 1);
                }
            }
            State::Text if sign == '\\' => {
                line.strings.push(sign);
                if let Some(next) = signs.get(at).filter(|next| **next != '\n') {
                    line.strings.push(*next);
                    (at, line.columns) = (at + 1, line.columns + 1);
                }
            }
            State::Text if sign == '"' => {
                line.code.push('"');
                line.strings.push(' ');
                state = State::Code;
            }
            State::RawText(hashes) if sign == '"' && ahead(at, &"#".repeat(hashes)) => {
                line.code.push('"');
                line.strings.push(' ');
                state = State::Code;
            }
            State::Text | State::RawText(_) => line.strings.push(sign),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_comments_and_strings_are_told_apart() {
        let text = "let a = \"x // y\"; // b \"c\"\nlet q = '\"'; /* d\ne */ f(r#\"g\" h\"#);\n";
        let lines = divided(text);
        let parts: Vec<_> = lines
            .iter()
            .map(|line| [line.code.trim(), line.comment.trim(), line.strings.trim()])
            .collect();
        assert_eq!(parts[0], ["let a = \"\";", "b \"c\"", "x // y"]);
        assert_eq!(parts[1], ["let q = ;", "d", ""]);
        assert_eq!(parts[2], ["f(r#\"\"#);", "e *", "g\" h"]);
        assert_eq!(lines[0].columns, text.lines().next().unwrap().len());
    }

    #[test]
    fn files_of_test_modules_are_tests() {
        let mut sources = vec![
            Source::new(
                "crates/ironkeeper-zab/src/lib.rs",
                "#[cfg(test)]\nmod world;\nmod vote;\n",
            ),
            Source::new("crates/ironkeeper-zab/src/world.rs", ""),
            Source::new("crates/ironkeeper-zab/src/vote.rs", ""),
        ];
        mark_test_modules(&mut sources);
        assert_eq!(
            sources.iter().map(|source| source.is_test).collect::<Vec<_>>(),
            [false, true, false]
        );
    }
}
