//! `ls`: prints the children of a node, or a whole subtree. `ls2` is its older form with the Stat.

use std::fmt::{self, Display};

use ironkeeper_client::{Client, ErrorKind};
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::stat_text::StatText;
use crate::subtree::{DepthFirst, child};

pub const COMMAND: Command = Command {
    name: "ls",
    aliases: &["ls2"],
    usage: "[-s] [-w] [-R] path",
    summary: "List the children of a node.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("s", "show the node's Stat as well"),
        Opt::flag("w", "tell of the next change of the children"),
        Opt::flag("R", "list the whole subtree, a path per line"),
    ],
    examples: &["ls /", "ls -s -w /app", "ls -R /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let watch = super::watch_wanted(context, arguments, "ls [-w] path")?;
    let client = context.client()?;
    if arguments.has("R") {
        return match watch {
            true => watch_subtree(context, &client, path).await,
            false => list_subtree(context, &client, path).await,
        };
    }
    let (mut children, stat) = if watch {
        let (children, stat, watch) = client.children_and_watch(path).await?;
        context.session.watches.once_of_children(path, watch);
        (children, stat)
    } else {
        client.children_and_stat(path).await?
    };
    children.sort_unstable();
    let stat = (arguments.has("s") || arguments.name() == "ls2" || context.out.is_json())
        .then_some(StatText(stat));
    context.out.emit(&Listing { path, children, stat })
}

async fn list_subtree(context: &Context, client: &Client, path: &str) -> Outcome {
    let mut walk = DepthFirst::new(client, path);
    // Read before the path is printed, so that the path of a missing node is not printed.
    let mut found = walk.next().await?;
    context.out.emit(&PathLine { path })?;
    let mut denied = false;
    while let Some(paths) = found {
        for path in &paths {
            context.out.emit(&PathLine { path })?;
        }
        found = walk.next().await?;
        for error in walk.take_denied() {
            context.out.error(&Failure::from(error), "");
            denied = true;
        }
    }
    if denied { Err(Failure::Incomplete) } else { Ok(()) }
}

/// Lists the subtree node by node, with a child watch on each node and a data watch on the root.
async fn watch_subtree(context: &mut Context, client: &Client, root: &str) -> Outcome {
    let (_, watch) = client.get_and_watch(root).await?;
    context.session.watches.once_of_data(root, watch);
    context.out.emit(&PathLine { path: root })?;
    let mut stack = vec![root.to_owned()];
    while let Some(parent) = stack.pop() {
        let (mut names, _, watch) = match client.children_and_watch(&parent).await {
            Err(error) if error.kind() == ErrorKind::NoNode => continue,
            other => other?,
        };
        context.session.watches.once_of_children(&parent, watch);
        names.sort_unstable();
        let paths: Vec<String> = names.iter().map(|name| child(&parent, name)).collect();
        for path in &paths {
            context.out.emit(&PathLine { path })?;
        }
        stack.extend(paths.into_iter().rev());
    }
    Ok(())
}

#[derive(Serialize)]
struct Listing<'a> {
    path: &'a str,
    children: Vec<String>,
    stat: Option<StatText>,
}

impl Display for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.children.join(", "))?;
        match &self.stat {
            Some(stat) => write!(f, "\n{stat}"),
            None => Ok(()),
        }
    }
}

#[derive(Serialize)]
struct PathLine<'a> {
    path: &'a str,
}

impl Display for PathLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.path)
    }
}
