//! The commands of the program `ironkeeper-suites`: conformance, chaos, benchmarks.

use std::ffi::{OsStr, OsString};
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use ironkeeper_steps::stages;

/// The arguments of a suite, which its own program parses.
#[derive(Debug, Args)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    arguments: Vec<OsString>,
}

/// Returns the command that builds the program and runs the suite. The program is built in the
/// profile of the tests and shares their build of every crate.
pub fn command(suite: &str, arguments: impl IntoIterator<Item = impl AsRef<OsStr>>) -> Command {
    let mut cargo = stages::cargo("run --quiet --package ironkeeper-suites --");
    cargo.arg(suite).args(arguments);
    cargo
}

/// Runs the suite; returns whether it succeeded.
pub fn run(suite: &str, arguments: &Arguments) -> Result<bool> {
    let mut command = command(suite, &arguments.arguments);
    Ok(command.status().context("cargo did not start")?.success())
}
