//! A cluster in one thread: the product's own ZAB machine on a simulated network, simulated disks and
//! simulated clocks.
//!
//! Everything follows from a seed: the shape of the cluster, the load, the faults, the order of events.
//! The same seed gives the same trace. [`run_seed`] builds a [`World`], lets it suffer, heals it and asks
//! the [`checkers`] whether anything went wrong that must never go wrong.
//!
//! The replicated state is an opaque log, known by its length and a running hash: enough to see every
//! loss, every divergence and every change of order.

pub mod checkers;
pub mod disk;
pub mod faults;
pub mod network;
pub mod node;
pub mod random;
pub mod state;
pub mod world;

pub use world::{Failure, Plan, Report, World};

use ironkeeper_zab::Bug;

/// Runs one seed from beginning to end.
pub fn run_seed(seed: u64, bug: Option<Bug>, verbose: bool) -> Result<Report, Failure> {
    let mut plan = Plan::from_seed(seed);
    plan.settings.bug = bug;
    let mut world = World::new(seed, plan, verbose);
    world.run()
}

/// The command that shows a failure again.
pub fn reproduction(seed: u64) -> String {
    format!("cargo xtask sim --seed {seed}")
}
