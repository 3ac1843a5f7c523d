//! `pwd`: prints the node that relative paths start from.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;
use crate::output::Message;

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
