//! Clusters of the ZAB machine alone, on a small model of log, tree and disk.
//!
//! The replicated state is an opaque log, known by its length and a running hash: enough to see every
//! loss, every divergence and every change of order. Fast, so that many seeds can be tried.

mod agreement;
pub mod disk;
mod links;
mod load;
pub mod node;
mod plan;
pub mod state;
mod trouble;
mod world;

pub use plan::{Plan, membership};
pub use world::World;

use ironkeeper_zab::Bug;

use crate::outcome::{Failure, Report};

/// Runs one seed from beginning to end.
pub fn run_seed(seed: u64, bug: Option<Bug>, verbose: bool) -> Result<Report, Failure> {
    let mut plan = Plan::from_seed(seed);
    plan.settings.bug = bug;
    let mut world = World::new(seed, plan, verbose);
    world.run()
}
