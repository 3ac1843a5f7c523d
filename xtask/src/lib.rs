//! Chores of the repository, written in Rust so that they run on every platform that builds the
//! product.
//!
//! The library contains what more than one chore or test needs: [`peers`] installs third-party
//! software on the machine, [`server`] starts and stops a server, Apache ZooKeeper or Ironkeeper,
//! behind one type, and [`ensemble`] runs several of them as an ensemble. The product does not
//! depend on this crate.
//!
//! Start from [`peers::Cache`], [`server::Program`] and [`server::Server`].

pub mod apache;
pub mod bench;
pub mod bench_clients;
pub mod bench_handovers;
pub mod conformance;
mod count;
mod crowd;
pub mod differential;
pub mod ensemble;
mod foreign_races;
pub mod hostile;
pub mod interop;
pub mod ironkeeper;
pub mod java;
#[cfg(test)]
mod known_bugs;
pub mod limited;
pub mod measured;
#[cfg(test)]
mod one_build;
pub mod peers;
pub mod permutations;
pub mod ports;
pub mod repo;
pub mod server;
mod side_by_side;
pub mod sim;
mod steps;
pub mod test;
mod test_binaries;
pub mod tools;
