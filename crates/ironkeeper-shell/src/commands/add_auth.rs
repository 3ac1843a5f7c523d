//! `addauth`: adds an identity to the session.

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::Outcome;
use crate::options::Arguments;

pub const COMMAND: Command = Command {
    name: "addauth",
    aliases: &[],
    usage: "scheme auth",
    summary: "Add an identity to the session, such as digest user:password.",
    group: Group::ZkCli,
    options: &[],
    examples: &["addauth digest anna:secret"],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let scheme = arguments.required(0)?;
    let auth = arguments.word(1).unwrap_or_default();
    let client = context.client()?;
    let mut added = client.add_auth(scheme, auth);
    // `add_auth` waits for a connection without a timeout. The read that is queued behind it does
    // not: it fails if no server is reachable.
    let reached = client.exists("/");
    tokio::select! {
        biased;
        added = &mut added => added?,
        reached = reached => {
            if let Err(error) = reached
                && error.is_retriable()
            {
                return Err(error.into());
            }
            added.await?;
        }
    }
    match context.out.is_json() {
        true => context.out.emit_json(&serde_json::json!({ "added": scheme })),
        false => Ok(()),
    }
}
