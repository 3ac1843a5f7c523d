//! A cluster in one thread, on a simulated network, simulated disks and simulated clocks.
//!
//! The seed determines everything: the shape of the cluster, the load, the faults, the order of
//! events. The same seed gives the same trace. [`run_seed`] builds a world, runs it with faults,
//! removes all faults and checks that no rule was violated.
//!
//! There are three worlds. In [`zab`] the product's ZAB machine runs on a small model of everything
//! else, at many seeds per second. In [`server`] whole servers run, with their connections and
//! files, and with clients that check every reply. In [`recipes`] the product's own client and
//! recipes run on such servers.

pub mod broken_rules;
pub mod campaign;
pub mod clock;
pub mod faults;
pub mod leadership;
pub mod network;
mod outcome;
pub mod random;
pub mod recipes;
pub mod schedule;
pub mod server;
pub mod zab;

pub use outcome::{Failure, Layer, Report};

/// Runs one seed.
pub fn run_seed(layer: Layer, seed: u64, verbose: bool) -> Result<Report, Failure> {
    match layer {
        Layer::Zab => zab::run_seed(seed, None, verbose),
        Layer::Server => server::run_seed(seed, verbose),
        Layer::Recipes => recipes::run_seed(seed, verbose),
    }
}
