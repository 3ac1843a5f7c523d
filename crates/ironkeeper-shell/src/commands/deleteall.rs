//! `deleteall`: deletes a node and its subtree. `rmr` is its older name.

use std::collections::VecDeque;
use std::fmt::{self, Display};

use ironkeeper_client::{Client, OpResult, Reply, Version};
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::progress::Progress;
use crate::subtree;

pub const COMMAND: Command = Command {
    name: "deleteall",
    aliases: &["rmr"],
    usage: "path [-b batch size]",
    summary: "Delete a node and everything below it.",
    group: Group::ZkCli,
    options: &[Opt::value("b", "batch size", "how many nodes go in one transaction [1000]")],
    examples: &["deleteall /app/old", "deleteall -b 500 /app/old"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

const BATCH_NODES: usize = 1000;
/// The size limit of a transaction, independent of the number of nodes: servers reject packets of a
/// megabyte.
const BATCH_BYTES: usize = 256 * 1024;
/// The number of transactions in flight.
const BATCHES_MAX: usize = 10;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    if arguments.name() == "rmr" {
        context
            .out
            .note("The command 'rmr' has been deprecated. Please use 'deleteall' instead.")?;
    }
    let batch: i32 = arguments.number("b", "an int value")?.unwrap_or(BATCH_NODES as i32);
    let batch = usize::try_from(batch).unwrap_or(1).max(1);
    let client = context.client()?;

    let mut progress = Progress::new("nodes found", context.terminal.stderr);
    let paths = subtree::level_by_level(&client, path, |count| progress.add(count)).await?;
    drop(progress);
    let below = paths.len() - 1;
    let question = match below {
        0 => format!("Delete {path}?"),
        _ => format!("Delete {path} and {below} below it?"),
    };
    context.confirm(&question).await?;

    let mut progress = Progress::new("nodes deleted", context.terminal.stderr);
    let complete = delete(&client, &paths, batch, &mut progress).await?;
    let deleted = progress.done();
    drop(progress);
    if !complete {
        return Err(Failure::message("Failed to delete some node(s) in the subtree!"));
    }
    match context.out.is_json() {
        true => context.out.emit(&Deleted { deleted: path, nodes: deleted }),
        false => Ok(()),
    }
}

/// Deletes the paths from last to first, that is from the leaves to the root. Sends no further
/// batch after a batch has failed; returns whether all succeeded.
async fn delete(
    client: &Client,
    paths: &[String],
    batch: usize,
    progress: &mut Progress,
) -> Outcome<bool> {
    let mut left = paths;
    let mut under_way: VecDeque<(usize, Reply<Vec<OpResult>>)> = VecDeque::new();
    let mut complete = true;
    loop {
        while complete && !left.is_empty() && under_way.len() < BATCHES_MAX {
            let (rest, size) = take_batch(left, batch);
            let transaction = left[rest.len()..]
                .iter()
                .rev()
                .fold(client.transaction(), |all, path| all.delete(path, Version::Any));
            under_way.push_back((size, transaction.commit()));
            left = rest;
        }
        let Some((size, reply)) = under_way.pop_front() else { return Ok(complete) };
        match reply.await {
            Ok(_) => progress.add(size as u64),
            // The connection or the session failed, not a node.
            Err(error)
                if error.code().is_none() || error.is_retriable() || error.is_session_over() =>
            {
                return Err(error.into());
            }
            Err(_) => complete = false,
        }
    }
}

/// Takes a batch from the end: returns the remaining paths and the number of nodes in the batch.
fn take_batch(paths: &[String], nodes_max: usize) -> (&[String], usize) {
    let mut size = 0;
    let mut bytes = 0;
    for path in paths.iter().rev().take(nodes_max) {
        bytes += path.len() + 17;
        if size > 0 && bytes > BATCH_BYTES {
            break;
        }
        size += 1;
    }
    (&paths[..paths.len() - size], size)
}

#[derive(Serialize)]
struct Deleted<'a> {
    deleted: &'a str,
    nodes: u64,
}

impl Display for Deleted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Deleted {} ({} nodes)", self.deleted, self.nodes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_are_bounded_by_number_and_by_bytes() {
        let paths: Vec<String> = (0..5).map(|n| format!("/{n}")).collect();
        let (rest, size) = take_batch(&paths, 2);
        assert_eq!((rest.len(), size), (3, 2));
        let long: Vec<String> = (0..5).map(|_| "x".repeat(BATCH_BYTES / 2)).collect();
        assert_eq!(take_batch(&long, 1000).1, 1);
        let huge = vec!["x".repeat(2 * BATCH_BYTES)];
        assert_eq!(take_batch(&huge, 1000).1, 1);
    }
}
