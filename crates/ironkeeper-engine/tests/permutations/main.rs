//! Interleavings of threads: gate, lane, outbox, sender, combining lock and the wake-ups between
//! them.
//!
//! Built with `--cfg shuttle`, the engine's locks are switching points at which any thread may
//! continue (`src/sync.rs`). Each test runs thousands of times, each time in another order drawn
//! from a seed; a thread that waits for an event that never occurs is found as a deadlock. The
//! engine, the connections and their senders are those of the product; only streams and the disk
//! are simulated by this test ([`server::Server`], [`stream::Stream`]).
//!
//! `cargo xtask permutations` builds and runs it; without the flag this file is empty. A failure
//! prints a schedule, with which `shuttle::replay` repeats the same run.

#![cfg(shuttle)]

mod ends;
mod order;
mod primitives;
mod sender;
mod server;
mod stream;
#[path = "../world/mod.rs"]
mod world;

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

/// In one half of the runs the next thread is drawn at random. In the other half threads have
/// priorities that change at this many points, which finds bugs that need a long unlikely sequence.
const PRIORITY_CHANGES: usize = 4;

/// Runs `test` many times, each time in another order of threads.
fn check(test: impl Fn() + Send + Sync + 'static) {
    check_part(1, test);
}

/// Does the same with a fraction of the runs, for a long test or one of several similar ones.
fn check_part(fraction: usize, test: impl Fn() + Send + Sync + 'static) {
    let runs = (from_env("IRONKEEPER_PERMUTATIONS", 2000) as usize).div_ceil(fraction);
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
    // An unoptimised engine needs more than the few pages that a thread gets by default.
    config.stack_size = 256 << 10;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || test());
}

#[expect(clippy::disallowed_methods, reason = "longer runs are requested by the environment")]
fn from_env(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")),
        Err(_) => default,
    }
}
