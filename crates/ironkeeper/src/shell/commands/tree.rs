//! `tree`: a subtree drawn with lines.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::shell::amounts::{count, human_bytes};
use crate::shell::command::{Command, Group};
use crate::shell::context::Context;
use crate::shell::data_text::{DataText, Form, as_text};
use crate::shell::failure::{Failure, Outcome};
use crate::shell::node_walk::{Found, NodeWalk, Step};
use crate::shell::options::{Arguments, Opt};

pub const COMMAND: Command = Command {
    name: "tree",
    aliases: &[],
    usage: "[-d depth] [-s] [-c] [path]",
    summary: "Draw a subtree.",
    group: Group::More,
    options: &[
        Opt::value("d", "depth", "go no deeper than this"),
        Opt::flag("s", "show the size of the data and the owner of ephemeral nodes"),
        Opt::flag("c", "show the beginning of the data"),
    ],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// How much of the data is shown on a line.
const PREVIEW_CHARS: usize = 60;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let root = if arguments.words().is_empty() { "/" } else { arguments.path(0)? };
    let depth_max = arguments.number("d", "a number")?.unwrap_or(usize::MAX);
    let (sizes, contents) = (arguments.has("s"), arguments.has("c"));
    let client = context.client()?;
    let mut walk = NodeWalk::new(&client, root).depth_max(depth_max).with_data(contents);
    // For each level above: whether the line goes on to a later sibling.
    let mut goes_on: Vec<bool> = Vec::new();
    let mut nodes = 0;
    let mut denied = false;
    while let Some(step) = walk.next().await? {
        let found = match step {
            Step::Node(found) => found,
            Step::Denied(error) => {
                context.out.error(&Failure::from(error), "");
                denied = true;
                continue;
            }
        };
        nodes += 1;
        goes_on.truncate(found.depth.saturating_sub(1));
        let branch =
            Branch { goes_on: &goes_on, found: &found, sizes, cut: found.depth == depth_max };
        context.out.emit(&branch)?;
        if found.depth > 0 {
            goes_on.push(!found.last);
        }
    }
    if !context.out.is_json() {
        context.out.note(count(nodes, "node"))?;
    }
    if denied { Err(Failure::Reported) } else { Ok(()) }
}

/// A line of the drawing.
struct Branch<'a> {
    goes_on: &'a [bool],
    found: &'a Found,
    sizes: bool,
    /// Whether its children are too deep to be shown.
    cut: bool,
}

impl Display for Branch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let found = self.found;
        if found.depth == 0 {
            f.write_str(&found.path)?;
        } else {
            for goes_on in self.goes_on {
                f.write_str(if *goes_on { "│   " } else { "    " })?;
            }
            f.write_str(if found.last { "└── " } else { "├── " })?;
            f.write_str(found.path.rsplit('/').next().unwrap_or_default())?;
        }
        if self.sizes {
            write!(f, "  [{}]", human_bytes(u64::try_from(found.stat.data_length).unwrap_or(0)))?;
            if found.is_ephemeral() {
                write!(f, "  ephemeral of 0x{:x}", found.stat.ephemeral_owner)?;
            }
        }
        if self.cut && found.stat.num_children > 0 {
            write!(f, "  (+{})", found.stat.num_children)?;
        }
        match &found.data {
            Some(Some(data)) if !data.is_empty() => write!(f, "  = {}", preview(data)),
            _ => Ok(()),
        }
    }
}

impl Serialize for Branch<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            path: &'a str,
            depth: usize,
            data_length: i32,
            num_children: i32,
            #[serde(skip_serializing_if = "Option::is_none")]
            ephemeral_owner: Option<String>,
            #[serde(flatten)]
            data: Option<DataText<'a>>,
        }
        let found = self.found;
        let owner = found.stat.ephemeral_owner;
        Fields {
            path: &found.path,
            depth: found.depth,
            data_length: found.stat.data_length,
            num_children: found.stat.num_children,
            ephemeral_owner: found.is_ephemeral().then(|| format!("0x{owner:x}")),
            data: found
                .data
                .as_ref()
                .map(|data| DataText { data: data.as_deref(), form: Form::Auto }),
        }
        .serialize(serializer)
    }
}

/// The beginning of the data on one line; bytes that are no text as hexadecimal digits.
pub fn preview(data: &[u8]) -> String {
    let shown: String = match as_text(data) {
        Some(text) => text.chars().take(PREVIEW_CHARS).flat_map(char::escape_debug).collect(),
        None => {
            let bytes = &data[..data.len().min(PREVIEW_CHARS / 3)];
            let hex: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            format!("0x {}", hex.join(" "))
        }
    };
    let cut = match as_text(data) {
        Some(text) => text.chars().nth(PREVIEW_CHARS).is_some(),
        None => data.len() > PREVIEW_CHARS / 3,
    };
    if cut { format!("{shown}…") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::preview;

    #[test]
    fn previews_are_one_short_line() {
        assert_eq!(preview(b"a\nb"), "a\\nb");
        assert_eq!(preview(b"\xff\x00"), "0x ff 00");
        assert_eq!(preview("é".repeat(61).as_bytes()), format!("{}…", "é".repeat(60)));
        assert_eq!(preview(&[0; 21]), format!("0x{}…", " 00".repeat(20)));
    }
}
