//! `pwd`: prints the node that relative paths start from.

use crate::shell::command::{Command, Group};
use crate::shell::context::Context;
use crate::shell::failure::Outcome;
use crate::shell::options::Arguments;
use crate::shell::output::Message;

pub const COMMAND: Command = Command {
    name: "pwd",
    aliases: &[],
    usage: "",
    summary: "Show the node at which relative paths begin.",
    group: Group::More,
    options: &[],
    examples: &[],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, _: &Arguments) -> Outcome {
    let path = context.directory.clone().unwrap_or_else(|| "/".to_owned());
    context.out.emit(&Message::new(path))
}
