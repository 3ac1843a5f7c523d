//! `version`: prints the version of the shell.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::Arguments;
use crate::output::Message;

pub const COMMAND: Command = Command {
    name: "version",
    aliases: &[],
    usage: "",
    summary: "Show the version of this shell.",
    group: Group::ZkCli,
    options: &[],
    examples: &[],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    if !arguments.words().is_empty() {
        return Err(Failure::Usage);
    }
    context.out.emit(&Message::new(line()))
}

pub fn line() -> String {
    let version = env!("CARGO_PKG_VERSION");
    format!("Ironkeeper CLI version: {version}, compatible with ZooKeeper CLI version: 3.9.5")
}
