//! Groups, against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod command;
mod heartbeat;
mod member;
mod partition;
mod party;
mod progress;
