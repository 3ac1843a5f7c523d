//! `getEphemerals`: prints the ephemeral nodes of this session.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "getEphemerals",
    aliases: &[],
    usage: "path",
    summary: "List this session's ephemeral nodes whose paths start so.",
    group: Group::ZkCli,
    options: &[],
    examples: &["getEphemerals /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let prefix = arguments.path_or_here(0)?;
    let mut ephemerals = context.client()?.ephemerals(&prefix).await?;
    ephemerals.sort_unstable();
    context.out.emit(&Ephemerals { ephemerals })
}

#[derive(Serialize)]
struct Ephemerals {
    ephemerals: Vec<String>,
}

impl Display for Ephemerals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{}]", self.ephemerals.join(", "))
    }
}
