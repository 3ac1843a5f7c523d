//! Counts of the sources: the sizes of types, functions and files.

use std::collections::BTreeMap;

use super::COLUMNS_MAX;
use super::source::Source;

/// The number of rows of each list.
const ROWS: usize = 10;

/// What a pair of braces belongs to.
enum Block {
    Function {
        name: String,
        line: usize,
    },
    /// An inherent `impl`.
    Methods(String),
    Fields(String),
    Other,
}

#[derive(Debug, Default)]
struct Counts {
    /// The number of definitions of each name.
    types: BTreeMap<String, usize>,
    /// Fields and methods by crate and type.
    fields: BTreeMap<String, usize>,
    methods: BTreeMap<String, usize>,
    /// Functions by length.
    functions: Vec<(usize, String)>,
    string_errors: usize,
}

/// Returns the counts of product code as text.
pub fn report(sources: &[Source]) -> String {
    let mut counts = Counts::default();
    for source in sources.iter().filter(|source| !source.is_test) {
        counts.add(source);
    }
    let all = counts.types.len();
    let repeated = counts.types.values().filter(|number| **number > 1).count();
    let wide = |is_test: bool| {
        let lines = sources.iter().filter(|s| s.is_test == is_test).flat_map(|s| &s.lines);
        lines.filter(|line| line.columns > COLUMNS_MAX).count()
    };
    let xtask: usize = sources
        .iter()
        .filter(|source| source.file.starts_with("xtask/"))
        .map(|source| source.lines.len().saturating_sub(1))
        .sum();
    let (fields, methods) = (rows(&counts.fields), rows(&counts.methods));
    let files: BTreeMap<String, usize> = sources
        .iter()
        .filter(|source| !source.is_test)
        .map(|source| (source.file.clone(), source.product_lines().count()))
        .collect();
    counts.functions.sort_by(|a, b| b.cmp(a));
    let functions: String = counts
        .functions
        .iter()
        .take(ROWS)
        .map(|(lines, name)| format!("{lines:>8}  {name}\n"))
        .collect();
    format!(
        "{repeated:>8}  of {all} type names defined more than once\n\
         {:>8}  `Result<_, String>`\n\
         {:>8}  lines over {COLUMNS_MAX} columns in product files, {} in others\n\
         {xtask:>8}  lines of xtask\n\
         types with most fields:\n{fields}types with most methods:\n{methods}\
         largest files, without tests:\n{}largest functions:\n{functions}",
        counts.string_errors,
        wide(false),
        wide(true),
        rows(&files),
    )
}

/// Returns the largest entries, one per line.
fn rows(numbers: &BTreeMap<String, usize>) -> String {
    let mut rows: Vec<(usize, &str)> =
        numbers.iter().map(|(name, number)| (*number, name.as_str())).collect();
    rows.sort_by(|a, b| b.cmp(a));
    rows.iter().take(ROWS).map(|(number, name)| format!("{number:>8}  {name}\n")).collect()
}

impl Counts {
    fn add(&mut self, source: &Source) {
        let folder = source.file.split('/').nth(1).unwrap_or_default();
        let krate = folder.strip_prefix("ironkeeper-").unwrap_or(folder);
        let mut blocks: Vec<Block> = Vec::new();
        // The code since the last brace or semicolon, and the line of its `fn`.
        let (mut head, mut head_line) = (String::new(), 0);
        for (at, line) in source.product_lines() {
            self.string_errors += string_errors(&line.code);
            if let Some(name) = ["struct", "enum", "union", "trait"]
                .iter()
                .find_map(|keyword| word_behind(&line.code, keyword))
            {
                *self.types.entry(name.to_owned()).or_default() += 1;
            }
            if let Some(Block::Fields(name)) = blocks.last()
                && is_field(&line.code)
            {
                *self.fields.entry(format!("{krate} {name}")).or_default() += 1;
            }
            if word_behind(&line.code, "fn").is_some() {
                head_line = at;
            }
            for sign in line.code.chars() {
                match sign {
                    '{' => {
                        let block = block(&head, head_line);
                        if let (Block::Function { .. }, Some(Block::Methods(of))) =
                            (&block, blocks.last())
                        {
                            *self.methods.entry(format!("{krate} {of}")).or_default() += 1;
                        }
                        blocks.push(block);
                        head.clear();
                    }
                    '}' => {
                        if let Some(Block::Function { name, line }) = blocks.pop() {
                            let place = format!("{} {name}", source.file);
                            self.functions.push((at - line + 1, place));
                        }
                        head.clear();
                    }
                    ';' => head.clear(),
                    _ => head.push(sign),
                }
            }
            head.push(' ');
        }
    }
}

fn block(head: &str, line: usize) -> Block {
    if let Some(name) = word_behind(head, "fn") {
        return Block::Function { name: name.to_owned(), line };
    }
    if let Some(name) = word_behind(head, "struct") {
        return Block::Fields(name.to_owned());
    }
    let mut words = head.split_whitespace();
    if words.any(|word| word == "impl" || word.starts_with("impl<")) && !head.contains(" for ") {
        let (_, of) = head.split_once("impl").unwrap_or_default();
        let of = of.strip_prefix('<').map_or(of, behind_generics);
        let name = of.trim().split(|sign: char| !sign.is_alphanumeric() && sign != '_').next();
        return Block::Methods(name.unwrap_or_default().to_owned());
    }
    Block::Other
}

/// Returns what follows the `>` that closes a list of generics.
fn behind_generics(text: &str) -> &str {
    let mut depth = 1;
    let mut before = ' ';
    for (at, sign) in text.char_indices() {
        match sign {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return &text[at + 1..];
        }
        before = sign;
    }
    text
}

/// Returns the name behind a keyword.
fn word_behind<'a>(code: &'a str, keyword: &str) -> Option<&'a str> {
    let mut rest = code;
    loop {
        let at = rest.find(keyword)?;
        let before = rest[..at].chars().next_back();
        let behind = &rest[at + keyword.len()..];
        rest = behind;
        let is_word = before.is_none_or(|sign| !sign.is_alphanumeric() && sign != '_');
        if let Some(name) = behind.strip_prefix(' ').filter(|_| is_word) {
            let end = name.find(|sign: char| !sign.is_alphanumeric() && sign != '_');
            let name = &name[..end.unwrap_or(name.len())];
            if !name.is_empty() {
                return Some(name);
            }
        }
    }
}

fn is_field(code: &str) -> bool {
    let code = code.trim_start();
    let code = match code.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ").map_or("", |(_, rest)| rest),
        None => code.strip_prefix("pub ").unwrap_or(code),
    };
    let name = code.split(':').next().unwrap_or_default();
    code.len() > name.len()
        && !code[name.len()..].starts_with("::")
        && !name.is_empty()
        && name
            .chars()
            .all(|sign| sign.is_ascii_lowercase() || sign.is_ascii_digit() || sign == '_')
}

/// Returns the number of `Result`s in a line whose error is a `String`.
fn string_errors(code: &str) -> usize {
    let ends = |rest: &str| {
        let inner = behind_generics(rest);
        rest[..rest.len() - inner.len()].trim_end_matches('>').ends_with(", String")
    };
    code.split("Result<").skip(1).filter(|rest| ends(rest)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_methods_and_lengths_are_counted() {
        let text = "pub struct Big<'a> {\n    pub(crate) a: u8,\n    b: std::fmt::Result,\n}\n\
                    impl<'a> Big<'a> {\n    fn one(&self) {\n        if x {\n        }\n    }\n\
                    \n    fn two() -> Result<Vec<u8>, String> { f() }\n}\n\
                    impl fmt::Debug for Big<'_> {\n    fn fmt(&self) {}\n}\n";
        let mut counts = Counts::default();
        counts.add(&Source::new("crates/ironkeeper-zab/src/big.rs", text));
        assert_eq!(counts.fields["zab Big"], 2);
        assert_eq!(counts.methods["zab Big"], 2);
        assert_eq!(counts.string_errors, 1);
        assert_eq!(counts.types["Big"], 1);
        let longest = counts.functions.iter().max().unwrap();
        assert_eq!(*longest, (4, "crates/ironkeeper-zab/src/big.rs one".to_owned()));
    }
}
