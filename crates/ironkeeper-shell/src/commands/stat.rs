//! `stat`: prints the Stat of a node.

use std::fmt::{self, Display};

use ironkeeper_client::Stat;
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::stat_text::StatText;

pub const COMMAND: Command = Command {
    name: "stat",
    aliases: &[],
    usage: "[-w] path",
    summary: "Show the Stat of a node: versions, times, size, owner.",
    group: Group::ZkCli,
    options: &[Opt::flag("w", "tell of the next change, or of the creation, of the node")],
    examples: &["stat /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let watch = super::watch_wanted(context, arguments, "stat [-w] path")?;
    let client = context.client()?;
    let stat = if watch {
        let (stat, watch) = client.exists_and_watch(path).await?;
        context.session.watches.once_of_data(path, watch);
        stat
    } else {
        client.exists(path).await?
    };
    match stat {
        Some(stat) => context.out.emit(&NodeStat::new(path, stat)),
        None => Err(Failure::message(format!("Node does not exist: {path}"))),
    }
}

/// The Stat of a node; also printed by the option `-s`.
#[derive(Serialize)]
pub struct NodeStat<'a> {
    path: &'a str,
    stat: StatText,
}

impl NodeStat<'_> {
    pub fn new(path: &str, stat: Stat) -> NodeStat<'_> {
        NodeStat { path, stat: StatText(stat) }
    }
}

impl Display for NodeStat<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.stat.fmt(f)
    }
}
