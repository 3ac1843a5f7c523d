//! `setquota`: sets a limit for a subtree.

use ironkeeper_client::{Client, CreateMode, CreateOptions, ErrorKind, Version};

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::output::Message;
use crate::quota::{self, Limit, Numbers};
use crate::subtree::DepthFirst;

pub const COMMAND: Command = Command {
    name: "setquota",
    aliases: &[],
    usage: "-n|-b|-N|-B val path",
    summary: "Limit the nodes or bytes of a subtree: softly, or hard if the server enforces it.",
    group: Group::ZkCli,
    options: &[
        Opt::value("n", "val", "nodes, soft"),
        Opt::value("b", "val", "bytes, soft"),
        Opt::value("N", "val", "nodes, hard"),
        Opt::value("B", "val", "bytes, hard"),
    ],
    examples: &["setquota -n 1000 /app", "setquota -b 1000000 /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let Some(option) = arguments.one_of(&["n", "b", "N", "B"])? else {
        return Err(Failure::bad_usage("Missing required option: one of -n, -b, -N, -B"));
    };
    let path = &*arguments.path(0)?;
    if path.starts_with(quota::ROOT) {
        return Err(Failure::message(format!(
            "cannot set a quota under the path: {}",
            quota::ROOT
        )));
    }
    let (limit, value) = limit(arguments, option)?;
    let client = context.client()?;
    if client.exists(path).await?.is_none() {
        return Err(Failure::message(format!("{path} does not exist.")));
    }
    no_quota_below(&client, path).await?;
    no_quota_above(&client, path).await?;
    create_parents(&client, path).await?;

    let (limits, stats) = (quota::limits_of(path), quota::stats_of(path));
    let mut numbers;
    if client.exists(&limits).await?.is_none() {
        numbers = Numbers::unlimited();
        numbers.set(limit, value);
        client.create(&limits, numbers.to_string(), CreateMode::Persistent).await?;
        let counted = Numbers::nothing_counted().to_string();
        client.create(&stats, counted, CreateMode::Persistent).await?;
        warn(context, &numbers, &client, &stats).await?;
    } else {
        let node = client.get(&limits).await?;
        numbers = Numbers::parse(&node.data);
        numbers.set(limit, value);
        warn(context, &numbers, &client, &stats).await?;
        client.set(&limits, numbers.to_string(), Version::Any).await?;
    }
    super::done(context, "quota set", path)
}

fn limit(arguments: &Arguments, option: &str) -> Outcome<(Limit, i64)> {
    let (limit, counts) = match option {
        "n" => (Limit::Count, true),
        "N" => (Limit::CountHard, true),
        "b" => (Limit::Bytes, false),
        _ => (Limit::BytesHard, false),
    };
    let value: i64 = arguments.number(option, "a number")?.ok_or(Failure::Usage)?;
    if counts && value <= 0 {
        return Err(Failure::message("the num quota must be greater than zero"));
    }
    if value < 0 {
        return Err(Failure::message("the bytes quota must be greater than or equal to zero"));
    }
    Ok((limit, value))
}

/// Fails if a node below has a quota: at most one quota applies to a subtree.
async fn no_quota_below(client: &Client, path: &str) -> Outcome {
    let own = quota::limits_of(path);
    let mut walk = DepthFirst::new(client, &quota::node_of(path));
    loop {
        let paths = match walk.next().await {
            Ok(Some(paths)) => paths,
            Ok(None) => return Ok(()),
            // No quota exists at or below this path.
            Err(Failure::Client(error)) if error.kind() == ErrorKind::NoNode => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let suffix = format!("/{}", quota::LIMITS);
        let other = paths
            .iter()
            .filter(|limits| **limits != own)
            .find_map(|limits| limits.strip_suffix(&suffix));
        if let Some(node) = other {
            let child = &node[quota::ROOT.len()..];
            return Err(Failure::message(format!("{path} has a child {child} which has a quota")));
        }
    }
}

/// Fails if a node above has a quota.
async fn no_quota_above(client: &Client, path: &str) -> Outcome {
    for (at, _) in path.match_indices('/').skip(1) {
        let above = &path[..at];
        let names = match client.children(&quota::node_of(above)).await {
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
            other => other?,
        };
        if names.iter().any(|name| name == quota::LIMITS) {
            return Err(Failure::message(format!("{path} has a parent {above} which has a quota")));
        }
    }
    Ok(())
}

async fn create_parents(client: &Client, path: &str) -> Outcome {
    let ends = path.match_indices('/').skip(1).map(|(at, _)| at).chain([path.len()]);
    for end in ends.filter(|_| path != "/") {
        let node = quota::node_of(&path[..end]);
        if client.exists(&node).await?.is_some() {
            continue;
        }
        let empty = CreateOptions::new(CreateMode::Persistent).null_data();
        match client.create_with(&node, "", &empty).await {
            Err(error) if error.kind() == ErrorKind::NodeExists => {}
            other => {
                other?;
            }
        }
    }
    Ok(())
}

/// Prints a warning if the usage exceeds the limit already.
async fn warn(context: &Context, limits: &Numbers, client: &Client, stats: &str) -> Outcome {
    let existing = Numbers::parse(&client.get(stats).await?.data);
    for (what, soft, hard) in
        [("count", Limit::Count, Limit::CountHard), ("bytes", Limit::Bytes, Limit::BytesHard)]
    {
        let there = existing.limit(soft);
        if limits.exceeded_by(soft, hard, there) {
            context.out.emit(&Message::new(format!(
                "[Warning]: the {what} quota you create is less than the existing {what}:{there}"
            )))?;
        }
    }
    Ok(())
}
