//! `cargo xtask conformance`: runs all tests with third-party software, and the attacks on the
//! server.

use anyhow::Result;
use clap::Args;
use ironkeeper_chaos::{ensemble, hostile};
use ironkeeper_conformance::{differential, interop};
use ironkeeper_steps::count::Count;
use ironkeeper_steps::slots::Slots;
use ironkeeper_steps::stages::{self, Stage, Step};
use ironkeeper_steps::{builds, test_binaries};

/// Options of `cargo xtask conformance`.
#[derive(Debug, Args)]
pub struct Options {
    /// The number of seeds of the differential run in each arrangement.
    #[arg(long, value_name = "N", default_value_t = 40)]
    seeds: u64,
    /// The number of suites, ensembles and comparisons that run at a time.
    #[arg(long, value_name = "N", default_value_t = 4)]
    at_once: usize,
}

/// Runs all steps; returns `false` when any of them failed.
pub fn run(options: &Options) -> Result<bool> {
    let slots = Slots::new(options.at_once);
    let build = || {
        builds::build_checked()?;
        test_binaries::build()?;
        Ok(Count::default())
    };
    let stages: Vec<Stage<'_>> = vec![
        vec![vec![Step::new("building the checked server and the tests", build)]],
        vec![
            vec![Step::new("foreign software against the server, our own against Apache", || {
                interop::play(&stages::options(""), &slots)
            })],
            vec![Step::new("ensembles under load, with Apache's members", || {
                ensemble::play(&stages::options(""), &slots)
            })],
            vec![Step::new("the same requests to Apache and to Ironkeeper", || {
                let seeds = format!("--seeds {}", options.seeds);
                differential::play(&stages::options(&seeds), &slots)
            })],
        ],
        // Runs alone, because it measures how long a client waits.
        vec![vec![Step::new("bad clients and bad peers", || {
            hostile::play(&stages::options("--short"))
        })]],
    ];
    Ok(stages::run(stages))
}
