//! Recordings: the output of a third-party program against Apache, stored as text in `interop/`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::Tally;

/// One step of a session: the input and the output, with volatile parts already replaced.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    pub title: String,
    pub lines: Vec<String>,
}

/// Compares the steps with the recording, or replaces the recording when `bless` is set.
pub fn compare(path: &Path, steps: &[Step], bless: bool) -> Result<Tally> {
    if bless {
        fs::write(path, render(steps))?;
        println!("   recorded {}", path.display());
    }
    let text =
        fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(check(&parse(&text), steps))
}

/// Compares steps with the expected steps, one by one.
pub fn check(expected: &[Step], steps: &[Step]) -> Tally {
    let mut tally = Tally::default();
    for (number, step) in steps.iter().enumerate() {
        let result = match expected.get(number) {
            Some(wanted) if wanted == step => Ok(()),
            Some(wanted) => Err(format!(
                "expected\n{}\ngot\n{}",
                render(std::slice::from_ref(wanted)),
                render(std::slice::from_ref(step))
            )),
            None => Err("is not in the recording".to_owned()),
        };
        tally.check(&step.title, result);
    }
    for missing in expected.iter().skip(steps.len()) {
        tally.check(&missing.title, Err("did not happen".to_owned()));
    }
    tally
}

/// Formats steps as `> title` lines, each followed by its indented output.
fn render(steps: &[Step]) -> String {
    let mut text = String::new();
    for step in steps {
        text.push_str(&format!("> {}\n", step.title));
        for line in &step.lines {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}

/// Parses a recording.
pub fn parse(text: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for line in text.lines() {
        if let Some(title) = line.strip_prefix("> ") {
            steps.push(Step { title: title.to_owned(), lines: Vec::new() });
        } else if let Some(step) = steps.last_mut() {
            step.lines.push(line.strip_prefix("    ").unwrap_or(line).to_owned());
        }
    }
    steps
}

/// Replaces each run of characters for which `is_part` holds and that follows `prefix` by `word`.
pub fn mask(line: &str, prefix: &str, word: &str, is_part: impl Fn(char) -> bool) -> String {
    let mut masked = String::new();
    let mut rest = line;
    while let Some(at) = rest.find(prefix) {
        let (head, tail) = rest.split_at(at + prefix.len());
        masked.push_str(head);
        let end = tail.find(|c| !is_part(c)).unwrap_or(tail.len());
        masked.push_str(if end > 0 { word } else { "" });
        rest = &tail[end..];
    }
    masked.push_str(rest);
    masked
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendered_session_parses_back() {
        let steps = vec![
            Step { title: "ls /".into(), lines: vec!["[a, b]".into(), String::new()] },
            Step { title: "quit".into(), lines: vec![] },
        ];
        assert_eq!(parse(&render(&steps)), steps);
    }

    #[test]
    fn masks_cover_each_occurrence() {
        let hex = |c: char| c.is_ascii_hexdigit();
        assert_eq!(mask("a 0x1f, b 0x2", "0x", "N", hex), "a 0xN, b 0xN");
        assert_eq!(mask("nothing", "0x", "N", hex), "nothing");
    }
}
