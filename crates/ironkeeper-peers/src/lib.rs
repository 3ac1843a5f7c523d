//! Servers as child processes, Apache ZooKeeper and Ironkeeper, and the third-party software that
//! runs against them.
//!
//! [`cache`] installs third-party software on the machine; [`server`] starts and stops one server,
//! Apache's or ours, behind one type; [`cluster`] runs several as an ensemble, with [`links`] that
//! can be cut; [`connection`] sends and receives frames without decoding them.
//!
//! The crate contains no checks. It never starts a server that its value does not own.
//!
//! Start from [`cache::Cache`], [`server::Server`] and [`cluster::Cluster`].

pub mod apache;
pub mod cache;
pub mod cluster;
pub mod connection;
pub mod java;
pub mod links;
pub mod members;
pub mod ports;
pub mod rng;
pub mod server;
pub mod tools;
