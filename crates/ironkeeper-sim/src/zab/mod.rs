//! Clusters of the ZAB machine alone, on a small model of log, tree and disk.
//!
//! The replicated state is an opaque log, represented by its length and a running hash. This is
//! sufficient to detect every loss, every divergence and every change of order, and it is fast, so
//! that many seeds can be run.

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

/// Runs one seed: a cluster with faults, and the start of another one without faults.
pub fn run_seed(seed: u64, bug: Option<Bug>, verbose: bool) -> Result<Report, Failure> {
    let mut plan = Plan::from_seed(seed);
    plan.settings.bug = bug;
    let mut report = World::new(seed, plan, verbose).run()?;
    report += &run_start(seed, bug, verbose)?;
    Ok(report)
}

/// Runs the start of a cluster on a busy machine, and the end and restart of members.
pub fn run_start(seed: u64, bug: Option<Bug>, verbose: bool) -> Result<Report, Failure> {
    let mut plan = Plan::start(seed);
    plan.settings.bug = bug;
    World::new(seed, plan, verbose).run_start()
}
