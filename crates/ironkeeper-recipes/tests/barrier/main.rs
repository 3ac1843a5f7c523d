//! Barriers, each against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod barrier;
mod count_down_latch;
mod cyclic;
mod double;
