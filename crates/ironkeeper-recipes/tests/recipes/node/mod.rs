//! Nodes and watches that stay, each against a real server, with and without faults.

mod persistent;
mod ttl;
mod watcher;
