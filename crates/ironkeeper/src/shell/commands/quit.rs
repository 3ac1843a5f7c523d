//! `quit`: closes the session and ends the shell.

use crate::shell::command::{Command, Group};
use crate::shell::context::Context;
use crate::shell::failure::Outcome;
use crate::shell::options::Arguments;

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
