//! `connect`: opens a new session, optionally with another server.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "connect",
    aliases: &[],
    usage: "host:port",
    summary: "Start a new session, with these servers or the same as before.",
    group: Group::ZkCli,
    options: &[],
    examples: &["connect db1:2181,db2:2181"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let before = context.session.connect_string().to_owned();
    context.session.connect(arguments.word(0).unwrap_or(&before)).await
}
