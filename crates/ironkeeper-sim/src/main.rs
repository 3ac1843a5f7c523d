//! Runs seeds and says how many, how fast, and which of them failed.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Parser;
use ironkeeper_sim::{Report, run_seed};

/// A cluster in one thread, many times over.
#[derive(Debug, Parser)]
struct Options {
    /// How many seeds.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first one.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Go on for so long, however many seeds that takes.
    #[arg(long)]
    minutes: Option<f64>,
    /// Run this one alone and tell everything that happens.
    #[arg(long)]
    seed: Option<u64>,
    /// Stop after so many failures.
    #[arg(long, default_value_t = 5)]
    failures: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if let Some(seed) = options.seed {
        return match run_seed(seed, None, true) {
            Ok(report) => {
                println!("{report:?}");
                ExitCode::SUCCESS
            }
            Err(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        };
    }
    let start = Instant::now();
    let limit = options.minutes.map(|minutes| Duration::from_secs_f64(minutes * 60.0));
    let mut total = Report::default();
    let (mut seeds, mut failures) = (0, 0);
    let mut seed = options.from;
    loop {
        let over = match limit {
            Some(limit) => start.elapsed() >= limit,
            None => seeds >= options.seeds,
        };
        if over || failures >= options.failures {
            break;
        }
        match run_seed(seed, None, false) {
            Ok(report) => {
                total.simulated_us += report.simulated_us;
                total.events += report.events;
                total.committed += report.committed;
                total.leaders += report.leaders;
                total.truncations += report.truncations;
                total.snapshots += report.snapshots;
                total.faults += report.faults;
                total.reconfigurations += report.reconfigurations;
            }
            Err(failure) => {
                failures += 1;
                println!("{failure}");
            }
        }
        seeds += 1;
        seed += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{seeds} seeds in {seconds:.1} s ({:.0} a minute), {:.1} simulated hours, {} events, \
         {} commits, {} leaders, {} truncations, {} snapshots, {} faults, {} changes of members, {failures} failures",
        seeds as f64 / seconds * 60.0,
        total.simulated_us as f64 / 3.6e9,
        total.events,
        total.committed,
        total.leaders,
        total.truncations,
        total.snapshots,
        total.faults,
        total.reconfigurations,
    );
    if failures == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
