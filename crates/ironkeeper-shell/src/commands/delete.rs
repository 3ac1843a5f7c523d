//! `delete`: deletes one node without children.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::{Arguments, Opt};

pub const COMMAND: Command = Command {
    name: "delete",
    aliases: &[],
    usage: "[-v version] path",
    summary: "Delete a node that has no children.",
    group: Group::ZkCli,
    options: &[Opt::value("v", "version", "only if the data has this version")],
    examples: &["delete /app/old", "delete -v 3 /app/config"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    if arguments.word(1).is_some() {
        context.out.note(
            "'delete path [version]' has been deprecated. Please use 'delete [-v version] path' instead.",
        )?;
    }
    let version = super::version(arguments, 1)?;
    context.client()?.delete(path, version).await?;
    super::done(context, "deleted", path)
}
