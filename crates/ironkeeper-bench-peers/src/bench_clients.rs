//! `cargo xtask bench-clients`: measures three clients on one server.
//!
//! `ironkeeper-client`, `zookeeper-client` from crates.io and Apache's Java client read one node of
//! 100 bytes from the same Ironkeeper server: once with many requests in flight on one session,
//! once with one request in flight. Each Rust client runs once in a task of tokio's thread pool and
//! once in the main future, which has its own thread; the two rates differ by a factor of several,
//! and the requirement must hold in both. Each client is a small program (see `measured.rs`). The
//! clients run in short turns, in rounds. The table shows medians, and the requirement applies to
//! the median of the ratios of the rounds: a machine that is slow for a while is slow for all
//! clients.

use std::collections::HashMap;
use std::fmt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ironkeeper_peers::cache::Cache;
use ironkeeper_peers::java;
use ironkeeper_peers::server::{Program, Server, Setup};
use ironkeeper_steps::{builds, process};

use crate::measured;

/// The node that all clients read, created by `ironkeeper bench`.
const NODE: &str = "/bench/00000000";

/// The required ratio of pipelined reads per second of CPU to the best of the other Rust clients.
const CPU_RATIO_MIN: f64 = 2.0;

#[derive(Debug, clap::Args)]
pub struct Options {
    /// The ironkeeper binary to serve [default: build the release binary of this working tree]
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// The number of turns of each client.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Seconds of each load.
    #[arg(long, default_value_t = 1.5)]
    seconds: f64,
    /// Requests each client keeps in flight when it pipelines.
    #[arg(long, default_value_t = 128)]
    in_flight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Client {
    Ironkeeper(Place),
    Crate(Place),
    Java,
}

/// The execution context of a Rust client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Task,
    Main,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Task => "task",
            Place::Main => "main",
        }
    }
}

/// All clients, in the order of the table.
const CLIENTS: [Client; 5] = [
    Client::Ironkeeper(Place::Task),
    Client::Crate(Place::Task),
    Client::Ironkeeper(Place::Main),
    Client::Crate(Place::Main),
    Client::Java,
];

impl fmt::Display for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Client::Ironkeeper(place) => write!(f, "`ironkeeper-client`, {}", place.name()),
            Client::Crate(place) => write!(f, "`zookeeper-client` 0.11, {}", place.name()),
            Client::Java => f.write_str("Apache's Java client 3.9"),
        }
    }
}

/// The results of one client in one round.
#[derive(Debug, Default, Clone, Copy)]
struct Round {
    pipelined_per_s: f64,
    pipelined_cpu_us: f64,
    one_us: f64,
    one_cpu_us: f64,
}

/// Runs the rounds and prints the table; returns `false` when a required ratio is not reached.
pub fn run(options: &Options) -> Result<bool> {
    let binary = match &options.server {
        Some(path) => path.canonicalize().with_context(|| format!("no {}", path.display()))?,
        None => builds::build()?,
    };
    let cache = Cache::open()?;
    let ours = builds::build_example("ironkeeper-client", "throughput")?;
    let theirs = cache.rust_client_throughput()?;
    let dir = tempfile::tempdir()?;
    let setup = Setup::on_free_port()?;
    let server = Server::start(&Program::Ironkeeper(binary.clone()), setup, dir.path())?;
    let address = server.address();
    process::run(
        Command::new(&binary)
            .args(["bench", "--server", &address, "--prefix", "/bench", "--keep"])
            .args(["read", "--nodes", "1", "--seconds", "0.2"]),
    )?;

    let mut programs = Vec::new();
    for client in CLIENTS {
        let mut command = match client {
            Client::Ironkeeper(_) => Command::new(&ours),
            Client::Crate(_) => Command::new(&theirs),
            Client::Java => java::program(&cache, "Throughput", &["-Dironkeeper.interop.log=OFF"])?,
        };
        let (in_flight, seconds) = (options.in_flight.to_string(), options.seconds.to_string());
        command.args([address.as_str(), NODE, &in_flight, &seconds]);
        if let Client::Ironkeeper(place) | Client::Crate(place) = client {
            command.arg(place.name());
        }
        programs.push((client, command));
    }
    let mut rounds: HashMap<Client, Vec<Round>> = HashMap::new();
    for number in 1..=options.rounds {
        for (client, command) in &mut programs {
            let round = play(command).with_context(|| format!("{client} failed"))?;
            eprintln!(
                "round {number} of {}, {client}: {:.0}/s",
                options.rounds, round.pipelined_per_s
            );
            rounds.entry(*client).or_default().push(round);
        }
    }
    Ok(print(&rounds, options))
}

/// Runs one client program until it exits.
fn play(command: &mut Command) -> Result<Round> {
    let mut round = Round::default();
    for load in measured::run(command)? {
        match load.name.as_str() {
            "pipelined" => {
                round.pipelined_per_s = load.per_second();
                round.pipelined_cpu_us = load.cpu_us();
            }
            "one" => {
                round.one_us = load.each_us();
                round.one_cpu_us = load.cpu_us();
            }
            _ => {}
        }
    }
    if round.one_us == 0.0 {
        bail!("it ended early");
    }
    Ok(round)
}

fn print(rounds: &HashMap<Client, Vec<Round>>, options: &Options) -> bool {
    let median = |client: Client, figure: fn(&Round) -> f64| {
        measured::median(rounds[&client].iter().map(figure))
    };
    println!(
        "| client | reads, {} in flight | client CPU for each | one at a time | client CPU for each |",
        options.in_flight
    );
    println!("| --- | ---: | ---: | ---: | ---: |");
    for client in CLIENTS {
        println!(
            "| {client} | {:.0}/s | {:.2} us | {:.0} us | {:.1} us |",
            median(client, |round| round.pipelined_per_s),
            median(client, |round| round.pipelined_cpu_us),
            median(client, |round| round.one_us),
            median(client, |round| round.one_cpu_us),
        );
    }
    println!();
    let ratio = |over: Client, under: Client, figure: fn(&Round) -> f64| {
        let pairs = rounds[&over].iter().zip(&rounds[&under]);
        measured::median(pairs.map(|(over, under)| figure(over) / figure(under)))
    };
    let mut met = true;
    for place in [Place::Task, Place::Main] {
        let (ours, theirs) = (Client::Ironkeeper(place), Client::Crate(place));
        let cpu = |other| ratio(other, ours, |round| round.pipelined_cpu_us);
        let one = |other| ratio(ours, other, |round| round.one_us);
        println!(
            "{}: reads for each second of CPU {:.2}x the Rust crate's (at least {CPU_RATIO_MIN}x), \
             {:.2}x the Java client's; one at a time {:.2}x and {:.2}x their time (at most 1x)",
            place.name(),
            cpu(theirs),
            cpu(Client::Java),
            one(theirs),
            one(Client::Java),
        );
        met &= cpu(theirs) >= CPU_RATIO_MIN && one(theirs) <= 1.0 && one(Client::Java) <= 1.0;
    }
    met
}
