//! `cargo xtask`: the chores of this repository.

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

use ironkeeper_steps::limited;
use xtask::{permutations, sim, suites, test, tidy};

/// Chores of the Ironkeeper repository.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Debug, Subcommand)]
enum Chore {
    /// Measure Apache ZooKeeper and Ironkeeper side by side and print one table.
    #[command(disable_help_flag = true)]
    Bench(suites::Arguments),
    /// Measure our client beside `zookeeper-client` and Apache's Java client on one server.
    #[command(disable_help_flag = true)]
    BenchClients(suites::Arguments),
    /// Measure lock handovers per second, ours beside Curator's, on Ironkeeper and on Apache
    /// ZooKeeper.
    #[command(disable_help_flag = true)]
    BenchHandovers(suites::Arguments),
    /// Run third-party software against a standalone server: kazoo's tests, zkCli, the Java client,
    /// Curator, the C client and zookeeper-client.
    #[command(disable_help_flag = true)]
    Interop(suites::Arguments),
    /// Run ensembles of real processes, Ironkeeper's and Apache's, under load while members are
    /// killed, paused, partitioned and replaced, and check the replies to clients against the state
    /// of every member.
    #[command(disable_help_flag = true)]
    Ensemble(suites::Arguments),
    /// Send the same requests, generated from seeds and written by hand, to Apache ZooKeeper and to
    /// Ironkeeper, and compare all replies and events.
    #[command(disable_help_flag = true)]
    Differential(suites::Arguments),
    /// Attack a server and an ensemble as hostile clients and peers, and measure the effect on
    /// another client, on memory and on the log.
    #[command(disable_help_flag = true)]
    Hostile(suites::Arguments),
    /// Run the engine's threads in thousands of orders, generated from a seed.
    Permutations(permutations::Options),
    /// Run simulated clusters with seeded faults and report the seeds that violate a rule.
    Sim(sim::Options),
    /// Run the checks that every change has to pass: format, lints, all tests, permutations,
    /// simulator. Needs only the Rust toolchain and a C compiler.
    Test(test::Options),
    /// Check the sources without compiling them (widths, words, paths in documents, commit
    /// subjects), and print counts of their size.
    Tidy(tidy::Options),
    /// Run everything with third-party software, downloaded by its package managers: interop,
    /// ensemble, differential, hostile.
    #[command(disable_help_flag = true)]
    Conformance(suites::Arguments),
    /// Run a command and kill it after a timeout.
    #[command(hide = true)]
    Limited(limited::Options),
    /// Download the third-party software that the other chores need, without running it.
    #[command(disable_help_flag = true)]
    Peers(suites::Arguments),
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
        Chore::Bench(arguments) => suites::run("bench", &arguments),
        Chore::BenchClients(arguments) => suites::run("bench-clients", &arguments),
        Chore::BenchHandovers(arguments) => suites::run("bench-handovers", &arguments),
        Chore::Interop(arguments) => suites::run("interop", &arguments),
        Chore::Ensemble(arguments) => suites::run("ensemble", &arguments),
        Chore::Differential(arguments) => suites::run("differential", &arguments),
        Chore::Hostile(arguments) => suites::run("hostile", &arguments),
        Chore::Limited(options) => limited::run(&options),
        Chore::Permutations(options) => permutations::run(&options),
        Chore::Sim(options) => sim::run(&options),
        Chore::Test(options) => test::run(&options),
        Chore::Tidy(options) => tidy::run(&options),
        Chore::Conformance(arguments) => suites::run("conformance", &arguments),
        Chore::Peers(arguments) => suites::run("peers", &arguments),
    }
}
