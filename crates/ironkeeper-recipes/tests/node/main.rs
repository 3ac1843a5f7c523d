//! Nodes and watches that stay, each against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod persistent;
mod ttl;
mod watcher;
