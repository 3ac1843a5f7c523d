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
    /// Measure lock handovers per second, ours beside Curator's, on Ironkeeper and on Apache
    /// ZooKeeper.
    BenchHandovers(bench_handovers::Options),
    /// Run third-party software against a standalone server: kazoo's tests, zkCli, the Java client,
    /// Curator, the C client and zookeeper-client.
    Interop(interop::Options),
    /// Run ensembles of real processes, Ironkeeper's and Apache's, under load while members are
    /// killed, paused, partitioned and replaced, and check the replies to clients against the state
    /// of every member.
    Ensemble(ensemble::Options),
    /// Send the same requests, generated from seeds and written by hand, to Apache ZooKeeper and to
    /// Ironkeeper, and compare all replies and events.
    Differential(differential::Options),
    /// Attack a server and an ensemble as hostile clients and peers, and measure the effect on
    /// another client, on memory and on the log.
    Hostile(hostile::Options),
    /// Run the engine's threads in thousands of orders, generated from a seed.
    Permutations(permutations::Options),
    /// Run simulated clusters with seeded faults and report the seeds that violate a rule.
    Sim(sim::Options),
    /// Run the checks that every change has to pass: format, lints, all tests, permutations,
    /// simulator. Needs only the Rust toolchain and a C compiler.
    Test(test::Options),
    /// Run everything with third-party software, downloaded by its package managers: interop,
    /// ensemble, differential, hostile.
    Conformance(conformance::Options),
    /// Run a command and kill it after a timeout.
    #[command(hide = true)]
    Limited(limited::Options),
    /// Download the third-party software that the other chores need, without running it.
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
