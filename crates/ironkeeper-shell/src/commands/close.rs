//! `close`: closes the session, but not the shell.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "close",
    aliases: &[],
    usage: "",
    summary: "End the session; connect starts another one.",
    group: Group::ZkCli,
    options: &[],
    examples: &[],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, _: &Arguments) -> Outcome {
    context.client()?;
    context.session.close().await;
    Ok(())
}
