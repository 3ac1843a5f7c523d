//! `clear`: clears the screen.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "clear",
    aliases: &[],
    usage: "",
    summary: "Clear the screen.",
    group: Group::More,
    options: &[],
    examples: &[],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, _: &Arguments) -> Outcome {
    match context.terminal.stdout {
        true => context.out.raw(b"\x1b[2J\x1b[H"),
        false => Ok(()),
    }
}
