//! `reconfig`: changes the membership of the ensemble.

use super::config::Config;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};

pub const COMMAND: Command = Command {
    name: "reconfig",
    aliases: &[],
    usage: "[-s] [-v version] [[-file path] | [-members serverID=host:port1:port2;port3[,...]*]] | [-add serverId=host:port1:port2;port3[,...]]* [-remove serverId[,...]*]",
    summary: "Change the members of the ensemble: some of them, or all at once.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("s", "show the Stat of the configuration afterwards"),
        Opt::value("v", "version", "only if the configuration has this version (hexadecimal)"),
        Opt::value("file", "path", "all members, from a configuration file"),
        Opt::value("members", "list", "all members"),
        Opt::value("add", "list", "members to be added"),
        Opt::value("remove", "ids", "members to be removed"),
    ],
    examples: &["reconfig -add server.4=db4:2888:3888:participant;2181", "reconfig -remove 4"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The number of bytes that are read from a configuration file.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let given = |name| arguments.has(name);
    let whole = given("file") || given("members");
    let some = given("add") || given("remove");
    if !whole && !some {
        return Err(Failure::Usage);
    }
    let version = match arguments.value("v").map(|text| i64::from_str_radix(text, 16)) {
        None => None,
        Some(Ok(version)) => Some(version),
        Some(Err(_)) => {
            return Err(Failure::message("-v must be followed by a long (configuration version)"));
        }
    };
    if whole && some {
        return Err(Failure::message(
            "Can't use -file or -members together with -add or -remove (mixing incremental and \
             non-incremental modes is not allowed)",
        ));
    }
    if given("file") && given("members") {
        return Err(Failure::message(
            "Can't use -file and -members together (conflicting non-incremental modes)",
        ));
    }
    let lower = |name| arguments.value(name).map(str::to_lowercase);
    let members = match arguments.value("file") {
        Some(path) => Some(members_of(path)?),
        None => lower("members"),
    };
    let (joining, leaving) = (lower("add"), lower("remove"));
    let node = context
        .client()?
        .reconfig(joining.as_deref(), leaving.as_deref(), members.as_deref(), version)
        .await?;
    let mut committed = Config::new(&node, arguments.has("s") || context.out.is_json());
    if !context.out.is_json() {
        committed.config = format!("Committed new configuration:\n{}", committed.config);
    }
    context.out.emit(&committed)
}

/// Returns the member lines of a configuration file as one list.
fn members_of(path: &str) -> Outcome<String> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(path)
        .and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    if let Err(error) = read {
        return Err(Failure::message(format!("Error processing {path}: {error}")));
    }
    let is_about_members = |line: &&str| {
        ["server.", "group.", "weight.", "version"].iter().any(|key| line.starts_with(key))
    };
    let lines: Vec<&str> = text.lines().map(str::trim).filter(is_about_members).collect();
    if !lines.iter().any(|line| line.starts_with("server.")) {
        return Err(Failure::message(format!(
            "Error processing {path}: there is no server.N line"
        )));
    }
    Ok(lines.join(","))
}
