//! `whoami`: prints the identities of the session.

use std::fmt::{self, Display};

use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "whoami",
    aliases: &[],
    usage: "",
    summary: "Show the identities the server knows us by.",
    group: Group::ZkCli,
    options: &[],
    examples: &["whoami"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, _: &Arguments) -> Outcome {
    let known = context.client()?.who_am_i().await?;
    let identities = known
        .into_iter()
        .map(|known| Identity { scheme: known.scheme, user: known.user })
        .collect();
    context.out.emit(&Identities { identities })
}

#[derive(Serialize)]
struct Identities {
    identities: Vec<Identity>,
}

#[derive(Serialize)]
struct Identity {
    scheme: String,
    user: String,
}

impl Display for Identities {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Auth scheme: User")?;
        self.identities.iter().try_for_each(|known| write!(f, "\n{}: {}", known.scheme, known.user))
    }
}
