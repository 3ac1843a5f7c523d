//! Threads in every order: gate, lane, outbox, baton and the wake-ups between them.
//!
//! Built with `--cfg shuttle`, the engine's locks are places where any thread may go on
//! (`src/sync.rs`). Each test is run thousands of times, each time with another order drawn from a
//! seed; a thread that waits for something that never comes is found as a deadlock. What runs is the
//! product's engine and connections; only sockets and the disk are played by this test
//! ([`server::Server`]).
//!
//! `cargo xtask permutations` builds and runs it; without the flag there is nothing in here. A
//! failure prints a schedule, with which `shuttle::replay` repeats the very run.

#![cfg(shuttle)]

mod ends;
mod order;
mod primitives;
mod server;
#[path = "../world/mod.rs"]
mod world;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// Threads that are ready are chosen among at random in one half of the runs. In the other half they
/// have priorities that change at so many places, which finds what takes a long unlucky streak.
const PRIORITY_CHANGES: usize = 4;

/// Runs `test` many times, each time in another order of threads.
fn check(test: impl Fn() + Send + Sync + 'static) {
    let runs = from_env("IRONKEEPER_PERMUTATIONS", 2000) as usize;
    let seed = from_env("IRONKEEPER_PERMUTATIONS_SEED", 7);
    let test = std::sync::Arc::new(test);
    let half = runs.div_ceil(2);
    run(RandomScheduler::new_from_seed(seed, half), std::sync::Arc::clone(&test));
    run(PctScheduler::new_from_seed(seed, PRIORITY_CHANGES, half), test);
}

fn run(
    scheduler: impl Scheduler + 'static,
    test: std::sync::Arc<impl Fn() + Send + Sync + 'static>,
) {
    let mut config = Config::new();
    // An unoptimised engine needs more than the few pages a thread gets otherwise.
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || test());
}

fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
