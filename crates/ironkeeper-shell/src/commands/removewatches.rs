//! `removewatches`: removes watches.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::watches::Kind;

pub const COMMAND: Command = Command {
    name: "removewatches",
    aliases: &[],
    usage: "path [-c|-d|-a] [-l]",
    summary: "Take away the watches set on a node in this shell.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("c", "those of its children"),
        Opt::flag("d", "those of its data"),
        Opt::flag("p", "persistent ones"),
        Opt::flag("r", "persistent recursive ones"),
        Opt::flag("a", "all of them, which is the default"),
        Opt::flag("l", "here at least, if the server cannot be told"),
    ],
    examples: &["removewatches /app", "removewatches -r /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    context.client()?;
    let kinds: &[Kind] = match () {
        () if arguments.has("c") => &[Kind::Children],
        () if arguments.has("d") => &[Kind::Data],
        () if arguments.has("p") => &[Kind::Persistent],
        () if arguments.has("r") => &[Kind::Recursive],
        () => &Kind::ALL,
    };
    if !context.session.watches.remove(kinds, path, arguments.has("l")).await? {
        return Err(Failure::message(format!("KeeperErrorCode = No such watcher for {path}")));
    }
    super::done(context, "watches removed", path)
}
