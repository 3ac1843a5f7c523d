//! `set`: sets the data of a node.

use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::stat::NodeStat;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};

pub const COMMAND: Command = Command {
    name: "set",
    aliases: &[],
    usage: "path data [-s] [-v version] [-b]",
    summary: "Replace the data of a node.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("s", "show the node's Stat afterwards"),
        Opt::value("v", "version", "only if the data has this version"),
        Opt::flag("b", "the data is written in base64"),
        super::DATA_FILE,
    ],
    examples: &["set /app world", "set -v 4 /app world", "set -f config.json /app/config"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let data = super::data(context, arguments, arguments.word(1)).await?.ok_or(Failure::Usage)?;
    let data = match arguments.has("b") {
        true => BASE64_STANDARD
            .decode(data.trim_ascii_end())
            .map_err(|error| Failure::message(format!("the data is not base64: {error}")))?,
        false => data,
    };
    let version = super::version(arguments, 2)?;
    let stat = context.client()?.set(path, data, version).await?;
    match arguments.has("s") || context.out.is_json() {
        true => context.out.emit(&NodeStat::new(path, stat)),
        false => Ok(()),
    }
}
