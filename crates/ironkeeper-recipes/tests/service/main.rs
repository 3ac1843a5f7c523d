//! Services, against a real server, with and without faults.

#[path = "../barrier/watch_events.rs"]
mod watch_events;
#[path = "../world/mod.rs"]
mod world;

mod connections;
mod discovery;
mod provider;
