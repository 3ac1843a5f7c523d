//! `redo`: repeats a command of the history.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "redo",
    aliases: &[],
    usage: "cmdno",
    summary: "Run a command of the history again.",
    group: Group::ZkCli,
    options: &[],
    examples: &["redo 3"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let number: usize = arguments
        .required(0)?
        .parse()
        .map_err(|_| Failure::message("Command index out of range"))?;
    // The last entry is this redo.
    let line = match context.history.line(number) {
        Some(line) if number + 1 < context.history.count() => line,
        _ => return Err(Failure::message("Command index out of range")),
    };
    if line.split_whitespace().next() == Some("redo") {
        return Err(Failure::message("No redoing redos"));
    }
    context.again = Some(line.to_owned());
    Ok(())
}
