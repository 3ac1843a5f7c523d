//! `tree`: draws a subtree with lines.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::amounts::{count, human_bytes};
use crate::colour::{Colours, Style};
use crate::command::{Command, Group};
use crate::context::Context;
use crate::data_text::{DataText, Form, as_text};
use crate::failure::{Failure, Outcome};
use crate::node_walk::{Found, NodeWalk, Step};
use crate::options::{Arguments, Opt};
use crate::output::Message;

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
    examples: &["tree /app", "tree -d 2 -s -c /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The number of characters of the data that are shown.
const PREVIEW_CHARS: usize = 60;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let root = &*arguments.path_or_here(0)?;
    let depth_max = arguments.number("d", "a number")?.unwrap_or(usize::MAX);
    let (sizes, contents) = (arguments.has("s"), arguments.has("c"));
    let client = context.client()?;
    let colours = context.colours();
    let mut walk = NodeWalk::new(&client, root).depth_max(depth_max).with_data(contents);
    // For each level above: whether its vertical line continues to a later sibling.
    let mut goes_on: Vec<bool> = Vec::new();
    let mut nodes = 0;
    let mut denied = false;
    while let Some(step) = walk.next().await? {
        let found = match step {
            Step::Node(found) => found,
            Step::Denied(node) => {
                goes_on.truncate(node.depth.saturating_sub(1));
                // An unreadable node is an error in JSON, and a line in the drawing.
                match context.out.is_json() {
                    true => context.out.error(&Failure::from(node.error), ""),
                    false => {
                        let (lines, name) = drawn(&goes_on, node.depth, node.last, &node.path);
                        let why = colours.paint(Style::Red, "(no permission to read it)");
                        context.out.emit(&Message::new(format!("{lines}{name}  {why}")))?;
                    }
                }
                denied = true;
                continue;
            }
        };
        nodes += 1;
        goes_on.truncate(found.depth.saturating_sub(1));
        let cut = found.depth == depth_max;
        let branch = Branch { goes_on: &goes_on, found: &found, sizes, cut, colours };
        context.out.emit(&branch)?;
        if found.depth > 0 {
            goes_on.push(!found.last);
        }
    }
    if !context.out.is_json() {
        context.out.note(count(nodes, "node"))?;
    }
    if denied { Err(Failure::Incomplete) } else { Ok(()) }
}

/// A line of the drawing.
struct Branch<'a> {
    goes_on: &'a [bool],
    found: &'a Found,
    sizes: bool,
    /// Whether the children are not shown because of the depth limit.
    cut: bool,
    colours: Colours,
}

/// Returns the lines of the levels above a node, and its name.
fn drawn<'a>(goes_on: &[bool], depth: usize, last: bool, path: &'a str) -> (String, &'a str) {
    if depth == 0 {
        return (String::new(), path);
    }
    let mut lines = String::new();
    for goes_on in goes_on {
        lines.push_str(if *goes_on { "│   " } else { "    " });
    }
    lines.push_str(if last { "└── " } else { "├── " });
    (lines, path.rsplit('/').next().unwrap_or_default())
}

impl Display for Branch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (found, colours) = (self.found, self.colours);
        let (lines, name) = drawn(self.goes_on, found.depth, found.last, &found.path);
        f.write_str(&lines)?;
        match (found.is_ephemeral(), found.stat.num_children > 0) {
            (true, _) => f.write_str(&colours.paint(Style::Yellow, name))?,
            (false, true) => f.write_str(&colours.paint(Style::Blue, name))?,
            (false, false) => f.write_str(name)?,
        }
        if self.sizes {
            let size = human_bytes(u64::try_from(found.stat.data_length).unwrap_or(0));
            write!(f, "  {}", colours.paint(Style::Dim, format!("[{size}]")))?;
            if found.is_ephemeral() {
                write!(f, "  ephemeral of 0x{:x}", found.stat.ephemeral_owner)?;
            }
        }
        if self.cut && found.stat.num_children > 0 {
            write!(f, "  (+{})", found.stat.num_children)?;
        }
        match &found.data {
            Some(Some(data)) if !data.is_empty() => {
                write!(f, "  {}", colours.paint(Style::Dim, format!("= {}", preview(data))))
            }
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

/// Returns the beginning of the data on one line; binary data as hexadecimal digits.
pub fn preview(data: &[u8]) -> String {
    let shown: String = match as_text(data) {
        Some(text) => text.chars().take(PREVIEW_CHARS).map(on_one_line).collect(),
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

/// Escapes line ends and tabs. Quotes stay unchanged, because data is often JSON.
fn on_one_line(c: char) -> String {
    match c {
        '\n' => "\\n".to_owned(),
        '\r' => "\\r".to_owned(),
        '\t' => "\\t".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::preview;

    #[test]
    fn previews_are_one_short_line() {
        assert_eq!(preview(b"a\nb\tc"), "a\\nb\\tc");
        assert_eq!(preview(b"{\"a\":'1'}"), "{\"a\":'1'}");
        assert_eq!(preview(b"\xff\x00"), "0x ff 00");
        assert_eq!(preview("é".repeat(61).as_bytes()), format!("{}…", "é".repeat(60)));
        assert_eq!(preview(&[0; 21]), format!("0x{}…", " 00".repeat(20)));
    }
}
