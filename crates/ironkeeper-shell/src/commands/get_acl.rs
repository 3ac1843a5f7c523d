//! `getAcl`: prints the access control list of a node.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::acl_text::AclText;
use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::{Arguments, Opt};
use crate::stat_text::StatText;

pub const COMMAND: Command = Command {
    name: "getAcl",
    aliases: &[],
    usage: "[-s] path",
    summary: "Show the access control list of a node.",
    group: Group::ZkCli,
    options: &[Opt::flag("s", "show the node's Stat as well")],
    examples: &["getAcl -s /app"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &*arguments.path(0)?;
    let (acl, stat) = context.client()?.get_acl(path).await?;
    let stat = (arguments.has("s") || context.out.is_json()).then_some(StatText(stat));
    context.out.emit(&AclList { path, acl: acl.into_iter().map(AclText).collect(), stat })
}

#[derive(Serialize)]
struct AclList<'a> {
    path: &'a str,
    acl: Vec<AclText>,
    stat: Option<StatText>,
}

impl Display for AclList<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = self.acl.iter().map(ToString::to_string).collect();
        lines.extend(self.stat.iter().map(ToString::to_string));
        f.write_str(&lines.join("\n"))
    }
}
