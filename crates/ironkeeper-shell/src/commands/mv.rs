//! `mv`: moves a node and its subtree; in one transaction if it fits.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::amounts::count;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::place::Place;
use crate::planting::{self, Change};
use crate::progress::Progress;
use crate::transplant::{self, How};

pub const COMMAND: Command = Command {
    name: "mv",
    aliases: &[],
    usage: "[-p] [-noacl] [-auth scheme:auth] source target",
    summary: "Move a node and everything below it; either may be on another server: host:port/path.",
    group: Group::More,
    options: &[
        Opt::flag("p", "create the parents of the target"),
        Opt::flag("noacl", "the moved nodes are open to everybody"),
        Opt::value("auth", "scheme:auth", "who we are on the other server"),
    ],
    examples: &["mv /app/old /app/new"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let auth = arguments.value("auth");
    let source = Place::open(context, arguments.required(0)?, auth).await?;
    let target = Place::open(context, arguments.required(1)?, auth).await?;
    let moved = relocate(context, arguments, &source, &target).await;
    source.close().await;
    target.close().await;
    context.out.emit(&moved?)
}

async fn relocate(
    context: &Context,
    arguments: &Arguments,
    source: &Place,
    target: &Place,
) -> Outcome<Moved> {
    if source.path == "/" {
        return Err(Failure::message("The root cannot be moved"));
    }
    if source.contains(target) {
        return Err(Failure::message(format!("{} cannot be moved into itself", source.shown())));
    }
    let how = How {
        recursive: true,
        replace: false,
        with_acl: !arguments.has("noacl"),
        // Ephemerals are read as well, so that the error can name them.
        ephemerals: true,
    };
    let cutting = transplant::read(context, source, how).await?;
    if let Some(node) = cutting.nodes.iter().find(|node| node.is_ephemeral()) {
        return Err(Failure::message(format!(
            "{} is ephemeral: it belongs to session 0x{:x}, and only that session can create another one in its \
             place. Nothing was moved; cp -r copies what is persistent.",
            node.path, node.stat.ephemeral_owner
        )));
    }
    let nodes = cutting.nodes.len() as u64;
    let question = format!("Move {} with {}?", source.shown(), count(nodes, "node"));
    context.confirm(&question).await?;
    if arguments.has("p") {
        target.client.create_parents(&target.path).await?;
    }
    let plan = transplant::plan(&cutting, source, target, how).await?;
    // Exactly the nodes that were read, with the versions that were read: if a node has changed
    // since, or has a new child, the delete fails and no data is lost.
    let deletes: Vec<Change> = cutting
        .nodes
        .iter()
        .rev()
        .map(|node| Change::Delete { path: node.path.clone(), version: node.stat.version })
        .collect();
    let beside = if source.is_beside(target) { deletes.clone() } else { Vec::new() };
    let together = !beside.is_empty();
    let planted = transplant::plant(context, target, plan, beside).await?;
    let atomic = planted.atomic && together;
    let mut transactions = planted.transactions;
    if !atomic {
        let mut progress = Progress::new("nodes deleted", context.terminal.stderr);
        let deleted = planting::in_batches(&source.client, &deletes, &mut progress).await;
        transactions += deleted.map_err(|failure| {
            Failure::message(format!(
                "{}\nEverything is at {} now, but not everything at {} could be deleted.",
                failure.text(""),
                target.shown(),
                source.shown()
            ))
        })?;
    }
    Ok(Moved { moved: source.shown(), to: target.shown(), nodes, atomic, transactions })
}

#[derive(Serialize)]
struct Moved {
    moved: String,
    to: String,
    nodes: u64,
    /// Whether the move was one transaction.
    atomic: bool,
    transactions: u64,
}

impl Display for Moved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Moved {} to {} ({})", self.moved, self.to, count(self.nodes, "node"))?;
        match self.atomic {
            true => Ok(()),
            false => write!(f, " in {} transactions", self.transactions),
        }
    }
}
