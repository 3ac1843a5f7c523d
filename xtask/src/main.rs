//! `cargo xtask`: the chores of this repository.

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

use xtask::{
    bench, bench_clients, bench_handovers, conformance, differential, ensemble, hostile, interop,
    limited, peers, permutations, sim, test,
};

/// Chores of the Ironkeeper repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Measure Apache ZooKeeper and Ironkeeper side by side and print one table.
    Bench(bench::Options),
    /// Measure our client beside `zookeeper-client` and Apache's Java client on one server.
    BenchClients(bench_clients::Options),
    /// Measure how often a lock changes hands, ours beside Curator's, on Ironkeeper and on Apache ZooKeeper.
    BenchHandovers(bench_handovers::Options),
    /// Run foreign software against a standalone server: kazoo's tests, zkCli, the Java client, Curator, the
    /// C client and zookeeper-client.
    Interop(interop::Options),
    /// Run ensembles of real processes, Ironkeeper's and Apache's, under load while members are killed,
    /// paused, cut off and replaced, and hold what clients were told against what every member holds.
    Ensemble(ensemble::Options),
    /// Send the same requests, made from seeds and written down, to Apache ZooKeeper and to Ironkeeper, and
    /// compare everything that comes back.
    Differential(differential::Options),
    /// Attack a server and an ensemble as bad clients and bad peers would, and measure what that
    /// does to another client, to memory and to the log.
    Hostile(hostile::Options),
    /// Run the engine's threads in thousands of orders, drawn from a seed.
    Permutations(permutations::Options),
    /// Run simulated clusters with seeded faults and say which seeds break a rule.
    Sim(sim::Options),
    /// Run what has to hold before a change lands: format, lints, all tests, permutations,
    /// simulator. Needs the Rust toolchain and a C compiler alone.
    Test(test::Options),
    /// Run everything with foreign software, fetched with its package clients: interop, ensemble,
    /// differential.
    Conformance(conformance::Options),
    /// Run a command and end it if it takes longer.
    #[command(hide = true)]
    Limited(limited::Options),
    /// Fetch the foreign software the other chores need, without running anything.
    Peers,
}

fn main() -> ExitCode {
    match run(Cli::parse().chore) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<bool> {
    match chore {
        Chore::Bench(options) => bench::run(&options),
        Chore::BenchClients(options) => bench_clients::run(&options),
        Chore::BenchHandovers(options) => bench_handovers::run(&options),
        Chore::Ensemble(options) => ensemble::run(&options),
        Chore::Interop(options) => interop::run(&options),
        Chore::Differential(options) => differential::run(&options),
        Chore::Hostile(options) => hostile::run(&options),
        Chore::Limited(options) => limited::run(&options),
        Chore::Permutations(options) => permutations::run(&options),
        Chore::Sim(options) => sim::run(&options),
        Chore::Test(options) => test::run(&options),
        Chore::Conformance(options) => conformance::run(&options),
        Chore::Peers => {
            let cache = peers::Cache::open()?;
            println!("foreign software is kept in {}", cache.root().display());
            Ok(cache.fetch_all())
        }
    }
}
