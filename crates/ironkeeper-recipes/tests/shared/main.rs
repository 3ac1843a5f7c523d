//! Shared values, counts and atomic numbers, each against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod atomic;
mod map;
mod value;
