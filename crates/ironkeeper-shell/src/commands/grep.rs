//! `grep`: searches the data and the names of a subtree for a pattern.

use std::fmt::{self, Display};

use regex::bytes::{Regex, RegexBuilder};
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::data_text::as_text;
use crate::failure::{Failure, Outcome};
use crate::node_walk::{NodeWalk, Step};
use crate::options::{Arguments, Opt};
use crate::progress::Progress;

pub const COMMAND: Command = Command {
    name: "grep",
    aliases: &[],
    usage: "[-i] [-F] [-l] [-names] [-data] pattern [path]",
    summary: "Search names and data for a regular expression; exit code 1 if nothing matches.",
    group: Group::More,
    options: &[
        Opt::flag("i", "capital and small letters are the same"),
        Opt::flag("F", "the pattern is plain text"),
        Opt::flag("l", "print paths alone"),
        Opt::flag("names", "search names only"),
        Opt::flag("data", "search data only"),
    ],
    examples: &["grep 'port=[0-9]+' /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The size limit of a compiled pattern.
const PATTERN_BYTES_MAX: usize = 4 * 1024 * 1024;
/// The number of bytes shown around a match in binary data.
const AROUND_BYTES: usize = 8;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let pattern = pattern(arguments)?;
    let root = &*arguments.path_or_here(1)?;
    let only = arguments.one_of(&["names", "data"])?;
    let paths_only = arguments.has("l");
    let client = context.client()?;
    let mut progress =
        Progress::new("nodes searched", context.terminal.stderr && !context.terminal.stdout);
    let mut walk = NodeWalk::new(&client, root).with_data(only != Some("names"));
    let (mut matched, mut denied) = (false, false);
    while let Some(step) = walk.next().await? {
        progress.add(1);
        let found = match step {
            Step::Node(found) => found,
            Step::Denied(denied_node) => {
                context.out.error(&Failure::from(denied_node.error), "");
                denied = true;
                continue;
            }
        };
        let mut matches = Vec::new();
        let name = found.path.rsplit('/').next().unwrap_or_default();
        if only != Some("data") && pattern.is_match(name.as_bytes()) {
            matches.push(Match::Name);
        }
        if !paths_only || matches.is_empty() {
            matches.extend(in_data(&pattern, found.bytes()));
        }
        matched |= !matches.is_empty();
        if paths_only {
            matches.truncate(1);
        }
        for what in &matches {
            context.out.emit(&Line { path: &found.path, paths_only, what })?;
        }
    }
    if denied || !matched { Err(Failure::Reported) } else { Ok(()) }
}

fn pattern(arguments: &Arguments) -> Outcome<Regex> {
    let text = arguments.required(0)?;
    let escaped = regex::escape(text);
    RegexBuilder::new(if arguments.has("F") { &escaped } else { text })
        .case_insensitive(arguments.has("i"))
        .size_limit(PATTERN_BYTES_MAX)
        .build()
        .map_err(|error| Failure::bad_usage(format!("not a regular expression: {error}")))
}

/// The location of a match in a node.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "in")]
enum Match {
    Name,
    #[serde(rename = "data")]
    Line {
        line: usize,
        text: String,
    },
    #[serde(rename = "data")]
    Bytes {
        /// The position of the match in the data.
        offset: usize,
        /// The bytes around the match.
        hex: String,
    },
}

/// Searches text line by line; every matching line is one match. In binary data only the first
/// match is returned.
fn in_data(pattern: &Regex, data: &[u8]) -> Vec<Match> {
    if let Some(text) = as_text(data) {
        return text
            .lines()
            .enumerate()
            .filter(|(_, line)| pattern.is_match(line.as_bytes()))
            .map(|(at, line)| Match::Line { line: at + 1, text: line.to_owned() })
            .collect();
    }
    let first = pattern.find(data).map(|found| {
        let start = found.start().saturating_sub(AROUND_BYTES);
        let end = (found.start() + AROUND_BYTES).min(data.len());
        let hex: Vec<String> = data[start..end].iter().map(|byte| format!("{byte:02x}")).collect();
        Match::Bytes { offset: found.start(), hex: hex.join(" ") }
    });
    first.into_iter().collect()
}

#[derive(Serialize)]
struct Line<'a> {
    path: &'a str,
    #[serde(skip)]
    paths_only: bool,
    #[serde(flatten)]
    what: &'a Match,
}

impl Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)?;
        match self.what {
            _ if self.paths_only => Ok(()),
            Match::Name => Ok(()),
            Match::Line { text, .. } => write!(f, ": {text}"),
            Match::Bytes { offset, hex } => {
                write!(f, ": binary data matches at byte {offset}: {hex}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_searched_by_lines_and_bytes_as_a_whole() {
        let pattern = Regex::new("b+$").unwrap();
        assert_eq!(
            in_data(&pattern, b"abb\nxa\nb"),
            [
                Match::Line { line: 1, text: "abb".to_owned() },
                Match::Line { line: 3, text: "b".to_owned() }
            ]
        );
        assert_eq!(in_data(&pattern, b"nothing"), []);
        let bytes = Regex::new("(?-u)\\xff").unwrap();
        assert_eq!(
            in_data(&bytes, b"\x00\x01\xff\x02"),
            [Match::Bytes { offset: 2, hex: "00 01 ff 02".to_owned() }]
        );
    }
}
