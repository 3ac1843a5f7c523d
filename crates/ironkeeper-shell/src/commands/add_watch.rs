//! `addWatch`: sets a persistent watch.

use ironkeeper_client::WatchMode;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};

pub const COMMAND: Command = Command {
    name: "addWatch",
    aliases: &[],
    usage: "[-m mode] path # optional mode is one of [PERSISTENT, PERSISTENT_RECURSIVE] - default is PERSISTENT_RECURSIVE",
    summary: "Tell of every change of a node, or of a whole subtree, until removewatches.",
    group: Group::ZkCli,
    options: &[Opt::value(
        "m",
        "mode",
        "PERSISTENT: the node and its children; PERSISTENT_RECURSIVE: the subtree",
    )],
    examples: &["addWatch /app", "addWatch -m PERSISTENT /app/config"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let [_] = arguments.words() else { return Err(Failure::Usage) };
    let path = &*arguments.path(0)?;
    // zkCli uses the mode of the last addWatch for the next addWatch without -m; here the default
    // is the one in the usage.
    let mode = match arguments.value("m").map(str::to_uppercase).as_deref() {
        None | Some("PERSISTENT_RECURSIVE") => WatchMode::Recursive,
        Some("PERSISTENT") => WatchMode::Persistent,
        Some(_) => return Err(Failure::Usage),
    };
    let watcher = context.client()?.watch(path, mode).await?;
    context.session.watches.lasting(mode, path, watcher);
    super::done(context, "watching", path)
}
