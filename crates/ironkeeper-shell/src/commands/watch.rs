//! `watch`: prints the changes of a subtree, with the new data.

use std::fmt::{self, Display};

use ironkeeper_client::{Client, ErrorKind, EventType, Node, WatchEvent, WatchItem, WatchMode};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::colour::{Colours, Style};
use crate::command::{Command, Group};
use crate::context::Context;
use crate::data_text::{DataText, Form};
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};

use super::tree::preview;

pub const COMMAND: Command = Command {
    name: "watch",
    aliases: &[],
    usage: "[-1] [-n count] [-nodata] [path]",
    summary: "Follow the changes of a subtree until Ctrl-C.",
    group: Group::More,
    options: &[
        Opt::flag("1", "of the node and the list of its children, not of the whole subtree"),
        Opt::value("n", "count", "end after this many changes"),
        Opt::flag("nodata", "do not read the data of what was changed"),
    ],
    examples: &["watch /app", "watch -n 10 -nodata /"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path_or_here(0)?;
    let count: u64 = arguments.number("n", "a number")?.unwrap_or(u64::MAX);
    let with_data = !arguments.has("nodata");
    let client = context.client()?;
    let mode = if arguments.has("1") { WatchMode::Persistent } else { WatchMode::Recursive };
    let mut watcher = client.watch(path, mode).await?;
    // After this line is printed, no event is missed.
    context.out.emit_aside(&Started { event: "watching", path })?;
    context.out.flush()?;
    // One listener for the whole loop, so that an interrupt during a read of data is not lost.
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut seen = 0;
    while seen < count {
        let item = tokio::select! {
            item = watcher.next() => item,
            // The usual end, not a failure.
            _ = &mut interrupted => break,
        };
        match item {
            Some(WatchItem::Event(event)) => {
                let change = Change::of(&client, event, with_data, context.colours()).await?;
                context.out.emit(&change)?;
                seen += 1;
            }
            Some(WatchItem::Gap) => context.out.emit(&Gap::default())?,
            Some(WatchItem::SessionEnded) | None => {
                return Err(Failure::message(
                    "The session has ended, and the watch with it. Use connect, and watch again.",
                ));
            }
        }
        context.out.flush()?;
    }
    // A failure is ignored: if the connection is lost, the server removes the watch itself.
    let _ = watcher.remove().await;
    Ok(())
}

#[derive(Serialize)]
struct Started<'a> {
    event: &'static str,
    path: &'a str,
}

impl Display for Started<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Watching {}; Ctrl-C ends it", self.path)
    }
}

/// An event, and the node as read after the event: it may be newer than the event.
struct Change {
    time: Timestamp,
    event: WatchEvent,
    node: Option<Node>,
    colours: Colours,
}

impl Change {
    async fn of(
        client: &Client,
        event: WatchEvent,
        with_data: bool,
        colours: Colours,
    ) -> Outcome<Change> {
        let time = Timestamp::now();
        let has_data = matches!(event.kind, EventType::NodeCreated | EventType::NodeDataChanged);
        let node = match has_data && with_data {
            false => None,
            true => match client.get(&event.path).await {
                Ok(node) => Some(node),
                // The node was deleted meanwhile or cannot be read by this session: print the event
                // only. After a lost connection the client reconnects, and the watcher reports
                // that.
                Err(error)
                    if matches!(error.kind(), ErrorKind::NoNode | ErrorKind::NoAuth)
                        || error.is_retriable() =>
                {
                    None
                }
                Err(error) => return Err(error.into()),
            },
        };
        Ok(Change { time, event, node, colours })
    }

    fn kind(&self) -> (&'static str, &'static str) {
        match self.event.kind {
            EventType::NodeCreated => ("NodeCreated", "created"),
            EventType::NodeDeleted => ("NodeDeleted", "deleted"),
            EventType::NodeDataChanged => ("NodeDataChanged", "changed"),
            EventType::NodeChildrenChanged => ("NodeChildrenChanged", "children"),
        }
    }
}

impl Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time.to_zoned(TimeZone::system());
        let (_, word) = self.kind();
        let style = match self.event.kind {
            EventType::NodeCreated => Style::Green,
            EventType::NodeDeleted => Style::Red,
            _ => Style::Yellow,
        };
        let word = self.colours.paint(style, format!("{word:<8}"));
        write!(f, "{} {word} {}", time.strftime("%H:%M:%S%.3f"), self.event.path)?;
        let Some(node) = &self.node else { return Ok(()) };
        write!(f, "  v{}", node.stat.version)?;
        if node.stat.ephemeral_owner != 0 {
            f.write_str("  ephemeral")?;
        }
        match node.data.is_empty() {
            true => Ok(()),
            false => write!(f, "  = {}", preview(&node.data)),
        }
    }
}

impl Serialize for Change {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Fields<'a> {
            event: &'static str,
            path: &'a str,
            time_ms: i64,
            zxid: Option<String>,
            #[serde(skip_serializing_if = "Option::is_none")]
            version: Option<i32>,
            #[serde(skip_serializing_if = "Option::is_none")]
            ephemeral_owner: Option<String>,
            #[serde(flatten)]
            data: Option<DataText<'a>>,
        }
        let node = self.node.as_ref();
        let owner = node.map_or(0, |node| node.stat.ephemeral_owner);
        Fields {
            event: self.kind().0,
            path: &self.event.path,
            time_ms: self.time.as_millisecond(),
            zxid: self.event.zxid.map(|zxid| format!("0x{:x}", zxid.0)),
            version: node.map(|node| node.stat.version),
            ephemeral_owner: (owner != 0).then(|| format!("0x{owner:x}")),
            data: node.map(|node| DataText {
                data: (!node.is_null()).then_some(&node.data[..]),
                form: Form::Auto,
            }),
        }
        .serialize(serializer)
    }
}

#[derive(Serialize)]
struct Gap {
    event: &'static str,
    message: &'static str,
}

impl Default for Gap {
    fn default() -> Gap {
        Gap {
            event: "gap",
            message: "the connection was lost and is back, or too much happened at once: changes may be missing \
                      here; what is read from now on is up to date",
        }
    }
}

impl Display for Gap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "-- gap: {} --", self.message)
    }
}
