//! `cargo xtask permutations`: the engine's threads in thousands of orders.
//!
//! The tests are in `crates/ironkeeper-engine/tests/permutations`. They need a build of their own, in
//! which the engine's locks are shuttle's; it has a profile of its own, so that it is kept apart from
//! every other build.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::repo;

/// Options of `cargo xtask permutations`.
#[derive(Debug, Args)]
pub struct Options {
    /// Orders in which each test is run.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    runs: u64,
    /// Where the orders are drawn from.
    #[arg(long, value_name = "SEED", default_value_t = 7)]
    seed: u64,
    /// Run only tests whose name contains this.
    #[arg(value_name = "TEST")]
    only: Option<String>,
}

/// Cargo with what belongs to this build.
fn cargo() -> Command {
    // Flags of the surroundings stay in force: the one for shuttle is added to them.
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = Command::new(env!("CARGO"));
    command
        .args(["test", "--quiet", "--profile", "permutations"])
        .args(["--package", "ironkeeper-engine", "--test", "permutations"])
        .env("RUSTFLAGS", format!("{flags} --cfg shuttle").trim_start())
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// Builds the tests and runs none.
pub fn build_command() -> Command {
    let mut command = cargo();
    command.arg("--no-run");
    command
}

/// Runs the tests; the schedule of one that fails is printed.
pub fn command(options: &Options) -> Command {
    let mut command = cargo();
    command
        .arg("--")
        .args(&options.only)
        .env("IRONKEEPER_PERMUTATIONS", options.runs.to_string())
        .env("IRONKEEPER_PERMUTATIONS_SEED", options.seed.to_string())
        .current_dir(repo::root());
    command
}

/// False if a test failed; it has shown the schedule by then.
pub fn run(options: &Options) -> Result<bool> {
    Ok(command(options).status().context("cargo test did not start")?.success())
}
