//! Services, against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod connections;
mod discovery;
mod provider;
