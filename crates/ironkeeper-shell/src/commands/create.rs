//! `create`: creates a node of any kind.

use std::fmt::{self, Display};
use std::time::Duration;

use ironkeeper_client::{CreateMode, CreateOptions};
use serde::Serialize;

use crate::command::{Command, Group};
use crate::context::Context;
use crate::failure::{Failure, Outcome};
use crate::options::{Arguments, Opt};
use crate::output::Message;
use crate::path_form;
use crate::stat_text::StatText;

pub const COMMAND: Command = Command {
    name: "create",
    aliases: &[],
    usage: "[-s] [-e] [-c] [-t ttl] path [data] [acl]",
    summary: "Create a node.",
    group: Group::ZkCli,
    options: &[
        Opt::flag("s", "sequential: a number is put behind the name"),
        Opt::flag("e", "ephemeral: gone with this session"),
        Opt::flag("c", "container: gone some time after its last child"),
        Opt::value("t", "ttl", "gone when unchanged and childless for this many milliseconds"),
        Opt::flag("p", "create the parents that are missing"),
        super::DATA_FILE,
    ],
    examples: &[
        "create /app hello",
        "create -p /app/config/db 'host=db1'",
        "create -f config.json /app/config",
        "create -e -s /app/worker-",
    ],
    run: |context, arguments| Box::pin(run(context, arguments)),
};

/// The largest TTL that fits into the ephemeral owner beside the bits of its type.
const TTL_MS_MAX: u64 = (1 << 40) - 1;

async fn run(context: &mut Context, arguments: &Arguments) -> Outcome {
    let (mode, ttl_ms) = mode(arguments)?;
    let path = &*arguments.resolved(0)?;
    // With -s the path may end in a slash, because the sequence number is appended to it.
    let sequential = arguments.has("s");
    path_form::check(&if sequential { format!("{path}0") } else { path.to_owned() })?;
    let mut options = CreateOptions::new(mode);
    if let Some(ttl_ms) = ttl_ms {
        options = options.ttl(Duration::from_millis(ttl_ms));
    }
    // With -f the ACL is the second word.
    let (typed, acl) = match arguments.has("f") {
        true => (None, arguments.word(1)),
        false => (arguments.word(1), arguments.word(2)),
    };
    if let Some(text) = acl {
        options = options.acl(super::acl(text)?);
    }
    let data = super::data(context, arguments, typed).await?;
    if data.is_none() {
        options = options.null_data();
    }
    let client = context.client()?;
    if arguments.has("p") {
        let parents = CreateOptions::new(CreateMode::Persistent);
        client.create_parents_with(path, &parents).await?;
    }
    let created = client.create_with(path, data.unwrap_or_default(), &options).await?;
    let created = Created { created: created.path, stat: StatText(created.stat) };
    // A script that runs one command reads the path from standard output; zkCli prints nothing
    // there.
    if !context.reads_commands && !context.terminal.stdout && !context.out.is_json() {
        context.out.emit(&Message::new(created.created.clone()))?;
    }
    context.out.emit_aside(&created)?;
    if arguments.has("e") && !context.reads_commands {
        context.hint(
            "It is ephemeral and goes with the session of this command, now. Use a prompt, or \
             commands from a pipe.",
        )?;
    }
    Ok(())
}

/// Returns the create mode and the TTL.
fn mode(arguments: &Arguments) -> Outcome<(CreateMode, Option<u64>)> {
    let (sequential, ephemeral) = (arguments.has("s"), arguments.has("e"));
    let container = arguments.has("c");
    if container && (ephemeral || sequential) {
        return Err(Failure::message(
            "-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.",
        ));
    }
    let ttl: Option<i64> = arguments.number("t", "a long value")?;
    if ttl.is_some() && ephemeral {
        return Err(Failure::message("TTLs cannot be used with Ephemeral znodes"));
    }
    if ttl.is_some() && container {
        return Err(Failure::message("TTLs cannot be used with Container znodes"));
    }
    let ttl_ms = ttl.map(|ttl| u64::try_from(ttl).unwrap_or(0));
    if ttl_ms.is_some_and(|ttl_ms| !(1..=TTL_MS_MAX).contains(&ttl_ms)) {
        return Err(Failure::message(format!(
            "ttl must be positive and cannot be larger than: {TTL_MS_MAX}"
        )));
    }
    let mode = match (ephemeral, sequential, ttl_ms.is_some()) {
        _ if container => CreateMode::Container,
        (true, true, _) => CreateMode::EphemeralSequential,
        (true, false, _) => CreateMode::Ephemeral,
        (false, true, true) => CreateMode::PersistentSequentialWithTtl,
        (false, true, false) => CreateMode::PersistentSequential,
        (false, false, true) => CreateMode::PersistentWithTtl,
        (false, false, false) => CreateMode::Persistent,
    };
    Ok((mode, ttl_ms))
}

#[derive(Serialize)]
struct Created {
    created: String,
    stat: StatText,
}

impl Display for Created {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Created {}", self.created)
    }
}
