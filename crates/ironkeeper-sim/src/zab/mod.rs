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
mod starts;
pub mod state;
mod trouble;
mod world;

pub use plan::{Plan, membership};
pub use world::World;

use ironkeeper_zab::Bug;

use crate::outcome::{Failure, Report};

/// Runs one seed from beginning to end: a cluster in trouble, and the start of another one without.
pub fn run_seed(seed: u64, bug: Option<Bug>, verbose: bool) -> Result<Report, Failure> {
    let mut plan = Plan::from_seed(seed);
    plan.settings.bug = bug;
    let mut report = World::new(seed, plan, verbose).run()?;
    report += &run_start(seed, bug, verbose)?;
    Ok(report)
}

/// The start of a cluster on a busy machine, and members that end and come back.
pub fn run_start(seed: u64, bug: Option<Bug>, verbose: bool) -> Result<Report, Failure> {
    let mut plan = Plan::start(seed);
    plan.settings.bug = bug;
    World::new(seed, plan, verbose).run_start()
}
