//! A cluster in one thread, on a simulated network, simulated disks and simulated clocks.
//!
//! Everything follows from a seed: the shape of the cluster, the load, the faults, the order of events.
//! The same seed gives the same trace. [`run_seed`] builds a world, lets it suffer, heals it and asks
//! whether anything went wrong that must never go wrong.
//!
//! There are three worlds. In [`zab`] the product's ZAB machine runs on a small model of everything else, many
//! seeds a second. In [`server`] whole servers run, with their connections and files, and clients that hold
//! them to their promises. In [`recipes`] the product's own client and recipes run on such servers.

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

/// Runs one seed from beginning to end.
pub fn run_seed(layer: Layer, seed: u64, verbose: bool) -> Result<Report, Failure> {
    match layer {
        Layer::Zab => zab::run_seed(seed, None, verbose),
        Layer::Server => server::run_seed(seed, verbose),
        Layer::Recipes => recipes::run_seed(seed, verbose),
    }
}
