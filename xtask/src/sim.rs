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

/// What is built, and how.
const BUILD: [&str; 5] =
    ["--quiet", "--profile", ironkeeper::CHECKED, "--package", "ironkeeper-sim"];

/// Builds the simulator and does not run it.
pub fn build_command() -> Command {
    let mut command = Command::new(env!("CARGO"));
    command.arg("build").args(BUILD);
    command
}

pub fn run(options: &Options) -> Result<bool> {
    let mut arguments =
        vec![format!("--seeds={}", options.seeds), format!("--from={}", options.from)];
    arguments.extend(options.layer.iter().map(|layer| format!("--layer={layer}")));
    arguments.extend(options.minutes.map(|minutes| format!("--minutes={minutes}")));
    arguments.extend(options.seed.map(|seed| format!("--seed={seed}")));
    arguments.extend(options.broken_rules.then(|| "--broken-rules".to_owned()));
    let status = Command::new(env!("CARGO"))
        .arg("run")
        .args(BUILD)
        .arg("--")
        .args(arguments)
        .current_dir(repo::root())
        .status()
        .context("the simulator did not start")?;
    Ok(status.success())
}
