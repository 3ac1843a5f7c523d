//! The commands of the program `ironkeeper-suites`: conformance, chaos, benchmarks.

use std::ffi::OsString;

use anyhow::{Context, Result};
use clap::Args;
use ironkeeper_steps::stages;

/// The arguments of a suite, which its own program parses.
#[derive(Debug, Args)]
pub struct Arguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "OPTIONS")]
    arguments: Vec<OsString>,
}

/// Builds the program and runs the suite; returns whether it succeeded. The program is built in the
/// profile of the tests and shares their build of every crate.
pub fn run(suite: &str, arguments: &Arguments) -> Result<bool> {
    let mut cargo = stages::cargo("run --quiet --package ironkeeper-suites --");
    cargo.arg(suite).args(&arguments.arguments);
    Ok(cargo.status().context("cargo did not start")?.success())
}
