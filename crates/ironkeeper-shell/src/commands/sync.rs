//! `sync`: later reads return all writes that were committed before it.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;
use crate::output::Message;

pub const COMMAND: Command = Command {
    name: "sync",
    aliases: &[],
    usage: "path",
    summary: "Bring the server we talk to up to date with the leader.",
    group: Group::ZkCli,
    options: &[],
    examples: &["sync /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    context.client()?.sync(path).await?;
    context.out.emit(&Message::new("Sync is OK"))
}
