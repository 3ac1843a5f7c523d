//! `cargo xtask permutations`: runs the engine's threads in thousands of orders.
//!
//! The tests are in `crates/ironkeeper-engine/tests/permutations`. They need a separate build, in
//! which the engine's locks are those of shuttle; it has its own profile, so that it does not share
//! artifacts with other builds.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use ironkeeper_steps::repo;

/// Options of `cargo xtask permutations`.
#[derive(Debug, Args)]
pub struct Options {
    /// The number of orders in which each test runs.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    runs: u64,
    /// The seed of the orders.
    #[arg(long, value_name = "SEED", default_value_t = 7)]
    seed: u64,
    /// Run only tests whose name contains this.
    #[arg(value_name = "TEST")]
    only: Option<String>,
}

/// Returns cargo with the settings of this build.
fn cargo() -> Command {
    // Existing `RUSTFLAGS` are kept; the flag for shuttle is added to them.
    let flags = std::env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = ironkeeper_steps::cargo::command();
    command
        .args(["test", "--quiet", "--profile", "permutations"])
        .args(["--package", "ironkeeper-engine", "--test", "permutations"])
        .env("RUSTFLAGS", format!("{flags} --cfg shuttle").trim_start())
        .env_remove("CARGO_ENCODED_RUSTFLAGS");
    command
}

/// Returns the command that builds the tests without running them.
pub fn build_command() -> Command {
    let mut command = cargo();
    command.arg("--no-run");
    command
}

/// Returns the command that runs the tests; a failed test prints its schedule.
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

/// Runs the tests; returns `false` if a test failed, after it has printed its schedule.
pub fn run(options: &Options) -> Result<bool> {
    Ok(command(options).status().context("cargo test did not start")?.success())
}
