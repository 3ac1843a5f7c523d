//! `cargo xtask sim`: runs many simulated clusters.
//!
//! The simulator is built with optimizations and assertions. A failing seed is printed with the
//! command that repeats it with a trace of all events.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;
use ironkeeper_steps::{builds, repo};

/// Options of `cargo xtask sim`.
#[derive(Debug, Args)]
pub struct Options {
    /// What runs in the cluster: `zab`, `server` or `recipes` [default: all]
    #[arg(long)]
    layer: Option<String>,
    /// The number of seeds, over all layers.
    #[arg(long, value_name = "N", default_value_t = 2000)]
    seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    from: u64,
    /// Run for this time, with any number of seeds.
    #[arg(long, value_name = "M")]
    minutes: Option<f64>,
    /// Run only this seed and print all events.
    #[arg(long)]
    seed: Option<u64>,
    /// Check that rules broken on purpose are detected.
    #[arg(long)]
    broken_rules: bool,
}

/// Returns the command of the simulator with its options; builds the simulator if necessary.
pub fn command(options: &Options) -> Result<Command> {
    let mut command = Command::new(builds::build_simulator()?);
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
