//! The program behind the commands of `cargo xtask` that run the conformance, chaos and benchmark
//! suites. It is apart from `xtask`, so that the other commands start without compiling the client
//! and the recipes.

mod conformance;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use ironkeeper_bench_peers::{bench, bench_clients, bench_handovers};
use ironkeeper_chaos::{ensemble, hostile};
use ironkeeper_conformance::{differential, interop};
use ironkeeper_peers::cache::Cache;

/// Suites with third-party software, faults and attacks, and benchmarks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    suite: Suite,
}

#[derive(Debug, Subcommand)]
enum Suite {
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
    /// Run everything with third-party software, downloaded by its package managers: interop,
    /// ensemble, differential, hostile.
    Conformance(conformance::Options),
    /// Download the third-party software that the other chores need, without running it.
    Peers,
}

fn main() -> ExitCode {
    match run(Cli::parse().suite) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(suite: Suite) -> Result<bool> {
    match suite {
        Suite::Bench(options) => bench::run(&options),
        Suite::BenchClients(options) => bench_clients::run(&options),
        Suite::BenchHandovers(options) => bench_handovers::run(&options),
        Suite::Interop(options) => interop::run(&options),
        Suite::Ensemble(options) => ensemble::run(&options),
        Suite::Differential(options) => differential::run(&options),
        Suite::Hostile(options) => hostile::run(&options),
        Suite::Conformance(options) => conformance::run(&options),
        Suite::Peers => {
            let cache = Cache::open()?;
            println!("foreign software is kept in {}", cache.root().display());
            Ok(cache.fetch_all())
        }
    }
}
