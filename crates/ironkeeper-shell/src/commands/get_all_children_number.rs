//! `getAllChildrenNumber`: prints the number of descendants of a node.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "getAllChildrenNumber",
    aliases: &[],
    usage: "path",
    summary: "Count the nodes below a node, at any depth.",
    group: Group::ZkCli,
    options: &[],
    examples: &["getAllChildrenNumber /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let count = context.client()?.all_children_number(path).await?;
    context.out.emit(&Number { path, count })
}

#[derive(Serialize)]
struct Number<'a> {
    path: &'a str,
    count: i32,
}

impl Display for Number<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.count.fmt(f)
    }
}
