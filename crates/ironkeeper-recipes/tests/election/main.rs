//! Elections, each against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod latch;
mod others;
mod selector;
