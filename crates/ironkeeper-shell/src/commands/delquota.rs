//! `delquota`: removes one limit of a subtree, or all of them.

use ironkeeper_client::{Client, Version};

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::{Arguments, Opt};
use crate::output::Message;
use crate::quota::{self, Limit, Numbers};
use crate::subtree::child;

pub const COMMAND: Command = Command {
    name: "delquota",
    aliases: &[],
    usage: "[-n|-b|-N|-B] path",
    summary: "Take away one limit of a subtree, or its whole quota.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("n", "the soft limit of nodes"),
        Opt::flag("b", "the soft limit of bytes"),
        Opt::flag("N", "the hard limit of nodes"),
        Opt::flag("B", "the hard limit of bytes"),
    ],
    examples: &["delquota -n /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let limit = arguments.one_of(&["n", "b", "N", "B"])?.map(|option| match option {
        "n" => Limit::Count,
        "b" => Limit::Bytes,
        "N" => Limit::CountHard,
        _ => Limit::BytesHard,
    });
    let client = context.client()?;
    let limits = quota::limits_of(path);
    if client.exists(&limits).await?.is_none() {
        return context.out.emit(&Message::new(format!("Quota does not exist for {path}")));
    }
    match limit {
        Some(limit) => {
            let mut numbers = Numbers::parse(&client.get(&limits).await?.data);
            numbers.set(limit, -1);
            client.set(&limits, numbers.to_string(), Version::Any).await?;
        }
        None => delete_whole(&client, path).await?,
    }
    super::done(context, "quota deleted", path)
}

/// Deletes the two nodes of the quota, then their parents that are empty.
async fn delete_whole(client: &Client, path: &str) -> Outcome {
    let mut node = quota::node_of(path);
    for name in client.children(&node).await? {
        client.delete(&child(&node, &name), Version::Any).await?;
    }
    while node != quota::ROOT && client.children(&node).await?.is_empty() {
        client.delete(&node, Version::Any).await?;
        let end = node.rfind('/').expect("a path starts with a slash");
        node.truncate(end);
    }
    Ok(())
}
