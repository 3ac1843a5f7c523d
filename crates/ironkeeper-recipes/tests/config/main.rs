//! Configuration, against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod faults;
mod history;
mod publish;
