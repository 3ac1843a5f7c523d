//! A part of a test, not an example to copy: the Rust side of the interoperation with Curator's and
//! kazoo's recipes. It carries out the orders on its standard input, line by line, and writes the
//! outcomes to its standard output. Run by `cargo xtask interop`.
//!
//! Each module has a list of the orders it understands. An order that takes its time, because it waits for
//! something, does not hold up those behind it.

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

/// What any recipe may come to.
type Anything<T> = Result<T, Box<dyn Error + Send + Sync>>;

/// What an order came to: what is said then, or nothing if the module does not know such an order.
type Answer = Anything<Option<String>>;

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever does not listen any more has ended us.
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
