//! One server of an ensemble, driven by hand. Most of these are ways in which ZooKeeper has once lost data or
//! come to a halt.

mod choices;
mod joining;
mod promises;
mod server;
mod strangers;
mod syncs;
