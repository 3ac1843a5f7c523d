//! Persistent nodes and watches, each against a real server, with and without faults.

mod persistent;
mod ttl;
mod watcher;
