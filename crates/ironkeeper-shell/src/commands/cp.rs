//! `cp`: copies a node or a subtree, also from server to server.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::amounts::count;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::place::Place;
use crate::planting::Change;
use crate::transplant::{self, How};

pub const COMMAND: Command = Command {
    name: "cp",
    aliases: &[],
    usage: "[-r] [-f] [-p] [-e] [-noacl] [-auth scheme:auth] source target",
    summary: "Copy a node, or a subtree with -r; either may be on another server: host:port/path.",
    group: Group::More,
    options: &[
        Opt::flag("r", "everything below as well"),
        Opt::flag("f", "replace the data and ACL of nodes that are there already"),
        Opt::flag("p", "create the parents of the target"),
        Opt::flag("e", "make persistent copies of ephemeral nodes"),
        Opt::flag("noacl", "the copies are open to everybody"),
        Opt::value("auth", "scheme:auth", "who we are on the other server"),
    ],
    examples: &["cp -r /app /backup/app", "cp -r -p /app db2:2181/app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let auth = arguments.value("auth");
    let source = Place::open(context, arguments.required(0)?, auth).await?;
    let target = Place::open(context, arguments.required(1)?, auth).await?;
    let copied = copy(context, arguments, &source, &target).await;
    source.close().await;
    target.close().await;
    context.out.emit(&copied?)
}

async fn copy(
    context: &Context,
    arguments: &Arguments,
    source: &Place,
    target: &Place,
) -> Outcome<Copied> {
    let how = How {
        recursive: arguments.has("r"),
        replace: arguments.has("f"),
        with_acl: !arguments.has("noacl"),
        ephemerals: arguments.has("e"),
    };
    if source.contains(target) && (how.recursive || source.path == target.path) {
        return Err(Failure::message(format!("{} cannot be copied into itself", source.shown())));
    }
    let cutting = transplant::read(context, source, how).await?;
    if cutting.left_out > 0 {
        context.out.note(format!(
            "{} left out; -e makes persistent copies of them",
            count(cutting.left_out, "ephemeral node")
        ))?;
    }
    if arguments.has("p") {
        target.client.create_parents(&target.path).await?;
    }
    let plan = transplant::plan(&cutting, source, target, how).await?;
    if plan.replaced > 0 {
        let what = count(plan.replaced, "node");
        context.confirm(&format!("Replace {what} at {}?", target.shown())).await?;
    }
    // In a single transaction these checks make the copy consistent: the transaction fails if the
    // data of a node has changed since it was read.
    let unchanged = match source.is_beside(target) {
        false => Vec::new(),
        true => cutting
            .nodes
            .iter()
            .map(|node| Change::Check { path: node.path.clone(), version: node.stat.version })
            .collect(),
    };
    let planted = transplant::plant(context, target, plan, unchanged).await?;
    Ok(Copied {
        copied: source.shown(),
        to: target.shown(),
        nodes: cutting.nodes.len() as u64,
        atomic: planted.atomic,
        transactions: planted.transactions,
        ephemerals_left_out: cutting.left_out,
    })
}

#[derive(Serialize)]
struct Copied {
    copied: String,
    to: String,
    nodes: u64,
    /// Whether the copy was written in one transaction. If source and target are on the same
    /// servers, that transaction also checked that the data of the source was unchanged.
    atomic: bool,
    transactions: u64,
    ephemerals_left_out: u64,
}

impl Display for Copied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Copied {} to {} ({})", self.copied, self.to, count(self.nodes, "node"))?;
        match self.atomic {
            true => Ok(()),
            false => write!(f, " in {}", count(self.transactions, "transaction")),
        }
    }
}
