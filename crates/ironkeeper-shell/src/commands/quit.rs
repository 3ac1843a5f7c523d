//! `quit`: closes the session and ends the shell.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "quit",
    aliases: &["exit"],
    usage: "",
    summary: "End the session and the shell.",
    group: Group::ZkCli,
    options: &[],
    examples: &[],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, _: &Arguments) -> Outcome {
    context.quit = true;
    Ok(())
}
