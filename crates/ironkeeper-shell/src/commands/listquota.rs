//! `listquota`: prints the limits of a subtree and their usage.

use std::fmt::{self, Display};

use ironkeeper_client::ErrorKind;
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::Arguments;
use crate::quota::{self, Numbers};

pub const COMMAND: Command = Command {
    name: "listquota",
    aliases: &[],
    usage: "path",
    summary: "Show the quota of a subtree, and how much of it is used.",
    group: Group::ZkCli,
    options: &[],
    examples: &["listquota /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let client = context.client()?;
    let limits_path = quota::limits_of(path);
    context.out.note(format!("absolute path is {limits_path}"))?;
    let limits = match client.get(&limits_path).await {
        Err(error) if error.kind() == ErrorKind::NoNode => {
            return Err(Failure::message(format!("quota for {path} does not exist.")));
        }
        other => Numbers::parse(&other?.data),
    };
    let stats = Numbers::parse(&client.get(&quota::stats_of(path)).await?.data);
    context.out.emit(&Quota { path, limits, stats })
}

#[derive(Serialize)]
struct Quota<'a> {
    path: &'a str,
    limits: Numbers,
    stats: Numbers,
}

impl Display for Quota<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota { path, limits, stats } = self;
        write!(f, "Output quota for {path} {limits}\nOutput stat for {path} {stats}")
    }
}
