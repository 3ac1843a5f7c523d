//! `setAcl`: sets the access control list of a node, or of a whole subtree.

use std::collections::VecDeque;

use ironkeeper_client::{Acl, Client, Version};

use super::stat::NodeStat;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::progress::Progress;
use crate::subtree;

pub const COMMAND: Command = Command {
    name: "setAcl",
    aliases: &[],
    usage: "[-s] [-v version] [-R] path acl",
    summary: "Replace the access control list of a node: scheme:id:perms,...

The letters of perms: c create children, d delete children, r read data and children,
w write data, a administer: set the list itself. Schemes: world:anyone, auth: (the
identities of this session), digest:user:hash (see `ironkeeper digest`), ip:address[/bits].",
    group: Group::ZkCli,
    options: &[
        Opt::flag("s", "show the node's Stat afterwards"),
        Opt::value("v", "version", "only if the list has this version"),
        Opt::flag("R", "everything below the node as well"),
    ],
    examples: &[
        "setAcl /app world:anyone:r,auth::cdrwa",
        "setAcl -R /app digest:anna:kYz4bZsm0O2o5x4bJzVYbtZ9rXU=:cdrwa",
    ],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The number of requests in flight.
const IN_FLIGHT_MAX: usize = 64;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let acl = super::acl(arguments.required(1)?)?;
    let version = super::version(arguments, 2)?;
    let client = context.client()?;
    if arguments.has("R") {
        return set_all(context, &client, path, &acl, version).await;
    }
    let stat = client.set_acl(path, &acl, version).await?;
    match arguments.has("s") || context.out.is_json() {
        true => context.out.emit(&NodeStat::new(path, stat)),
        false => Ok(()),
    }
}

/// Sets the list on a subtree. All paths are read before the first change, because the new list may
/// deny reading the children.
async fn set_all(
    context: &Context,
    client: &Client,
    root: &str,
    acl: &[Acl],
    version: Version,
) -> Outcome {
    let mut progress = Progress::new("nodes found", context.terminal.stderr);
    let paths = subtree::level_by_level(client, root, |count| progress.add(count)).await?;
    let mut progress = Progress::new("lists set", context.terminal.stderr);
    let mut under_way = VecDeque::new();
    let mut failed = 0;
    let mut left = paths.iter();
    loop {
        while under_way.len() < IN_FLIGHT_MAX
            && let Some(path) = left.next()
        {
            under_way.push_back((path, client.set_acl(path, acl, version)));
        }
        let Some((path, reply)) = under_way.pop_front() else { break };
        match reply.await {
            Ok(stat) if context.out.is_json() => context.out.emit(&NodeStat::new(path, stat))?,
            Ok(_) => {}
            Err(error) if error.code().is_none() || error.is_session_over() => {
                return Err(error.into());
            }
            Err(error) => {
                failed += 1;
                context.out.error(&Failure::from(error), "");
            }
        }
        progress.add(1);
    }
    if failed > 0 { Err(Failure::Reported) } else { Ok(()) }
}
