//! Queues, each against a real server, with and without faults.

#[path = "../barrier/watch_events.rs"]
mod watch_events;
#[path = "../world/mod.rs"]
mod world;

mod ordered;
mod sharded;
mod simple;
mod work;
