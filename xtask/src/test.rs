//! `cargo xtask test`: everything that has to hold before a change lands.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::repo;

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub struct Options {
    /// Leave out what needs foreign software: the interoperation and differential runs.
    #[arg(long)]
    own: bool,
    /// Seeds of the differential run in each arrangement.
    #[arg(long, value_name = "N", default_value_t = 40)]
    seeds: u64,
}

/// One command and what it is for.
struct Step {
    what: &'static str,
    arguments: Vec<String>,
}

fn step(what: &'static str, arguments: &str) -> Step {
    Step { what, arguments: arguments.split(' ').map(str::to_owned).collect() }
}

/// Runs the steps in order and stops at the first that fails: later ones take long.
pub fn run(options: &Options) -> Result<bool> {
    let mut steps = vec![
        step("formatting", "fmt --all --check"),
        step("lints", "clippy --quiet --workspace --all-targets --all-features -- -D warnings"),
        step("unit, model, fault and process tests", "test --quiet --workspace --all-features"),
        step("threads in every order", "xtask permutations"),
        step("simulated clusters", "xtask sim --seeds 2000"),
    ];
    if !options.own {
        let seeds = options.seeds;
        steps.push(step("foreign software against the server", "xtask interop"));
        steps.push(step("ensembles under load, with Apache ZooKeeper's members", "xtask ensemble"));
        steps.push(step(
            "our client against Apache ZooKeeper",
            "xtask interop --peer apache --only client",
        ));
        steps.push(Step {
            what: "the same requests to Apache ZooKeeper and to Ironkeeper",
            arguments: format!("xtask differential --seeds {seeds}")
                .split(' ')
                .map(str::to_owned)
                .collect(),
        });
    }
    let mut times = Vec::new();
    for step in steps {
        println!("\n== {}: cargo {}", step.what, step.arguments.join(" "));
        let began = Instant::now();
        let status = Command::new(env!("CARGO"))
            .args(&step.arguments)
            .current_dir(repo::root())
            .status()
            .with_context(|| format!("cargo {} did not start", step.arguments.join(" ")))?;
        times.push((step.what, began.elapsed()));
        if !status.success() {
            println!("\nfailed: {}", step.what);
            return Ok(false);
        }
    }
    println!("\nall is well:");
    for (what, took) in times {
        println!("  {:>4} s  {what}", took.as_secs());
    }
    Ok(true)
}
