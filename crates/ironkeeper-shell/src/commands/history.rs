//! `history`: prints the last commands with their numbers.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "history",
    aliases: &[],
    usage: "",
    summary: "Show the last commands, numbered for redo.",
    group: Group::ZkCli,
    options: &[],
    examples: &["history"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The number of commands that zkCli prints, including `history` itself.
const SHOWN: usize = 11;

async fn run(context: &mut Context, _: &Arguments) -> Outcome {
    context
        .history
        .last(SHOWN)
        .try_for_each(|(number, command)| context.out.emit(&Entry { number, command }))
}

#[derive(Serialize)]
struct Entry<'a> {
    number: usize,
    command: &'a str,
}

impl Display for Entry<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} - {}", self.number, self.command)
    }
}
