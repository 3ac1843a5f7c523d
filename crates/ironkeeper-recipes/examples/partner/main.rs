//! A part of a test, not an example to copy: the Rust side of the interoperation tests with the
//! recipes of Curator and kazoo. It executes the commands on its standard input, one per line, and
//! prints the results on its standard output. `cargo xtask interop` runs it.
//!
//! Each module documents its commands. Commands run concurrently: a command that waits does not
//! delay the commands after it.

mod barriers;
mod counters;
mod held;
mod locks;
mod members;
mod parties;
mod queues;

use std::error::Error;
use std::io::{BufRead, Write};

use ironkeeper_client::Client;

use held::Names;

/// The result of any recipe.
type Anything<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// The reply to a command, or `None` if the module does not know the command.
type Answer = Anything<Option<String>>;

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // If the reader of the output has ended, it also ends this process.
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

async fn obey(client: &Client, names: &Names, line: &str) -> Anything<String> {
    let words: Vec<&str> = line.split_whitespace().collect();
    if let Some(answer) = held::obey(names, &words).await? {
        return Ok(answer);
    }
    if let Some(answer) = locks::obey(client, names, &words).await? {
        return Ok(answer);
    }
    if let Some(answer) = barriers::obey(client, names, &words).await? {
        return Ok(answer);
    }
    if let Some(answer) = counters::obey(client, &words).await? {
        return Ok(answer);
    }
    if let Some(answer) = queues::obey(client, names, &words).await? {
        return Ok(answer);
    }
    if let Some(answer) = parties::obey(client, names, &words).await? {
        return Ok(answer);
    }
    members::obey(client, names, &words).await?.ok_or_else(|| "not understood".into())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Anything<()> {
    let address = std::env::args().nth(1).ok_or("the address of a server is missing")?;
    let client = Client::connect(&address).await?;
    let names = Names::default();
    let (lines, mut received) = tokio::sync::mpsc::channel(64);
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.blocking_send(line).is_err() {
                return;
            }
        }
    });
    while let Some(line) = received.recv().await {
        let (client, names) = (client.clone(), names.clone());
        tokio::spawn(async move {
            match obey(&client, &names, &line).await {
                Ok(answer) => say(&answer),
                Err(error) => say(&format!("error: {line}: {error}")),
            }
        });
    }
    client.close().await?;
    Ok(())
}
