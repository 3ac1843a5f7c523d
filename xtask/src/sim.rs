//! `cargo xtask sim`: simulated clusters, many of them.
//!
//! The simulator is built with optimizations and with its assertions on. A seed that fails is printed with
//! the command that shows it again, event by event.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::{ironkeeper, repo};

/// Options of `cargo xtask sim`.
#[derive(Debug, Args)]
pub struct Options {
    /// What runs in the cluster, `zab`, `server` or `recipes`; without it all do.
    #[arg(long)]
    layer: Option<String>,
    /// How many seeds, of all layers.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    seeds: u64,
    /// The first of them.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Go on for so long, however many seeds that takes.
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Run this one alone and tell everything that happens.
    #[arg(long)]
    seed: Option<u64>,
    /// See that rules which are broken on purpose are noticed.
    #[arg(long)]
    broken_rules: bool,
}

/// The simulator with its options; it is built if need be.
pub fn command(options: &Options) -> Result<Command> {
    let mut command = Command::new(ironkeeper::build_simulator()?);
    command
        .arg(format!("--seeds={}", options.seeds))
        .arg(format!("--from={}", options.from))
        .args(options.layer.iter().map(|layer| format!("--layer={layer}")))
        .args(options.minutes.map(|minutes| format!("--minutes={minutes}")))
        .args(options.seed.map(|seed| format!("--seed={seed}")))
        .args(options.broken_rules.then_some("--broken-rules"))
        .current_dir(repo::root());
    Ok(command)
}

pub fn run(options: &Options) -> Result<bool> {
    let status = command(options)?.status().context("the simulator did not start")?;
    Ok(status.success())
}
