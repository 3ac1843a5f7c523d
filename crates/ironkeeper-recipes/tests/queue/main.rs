//! Queues, each against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod blocking;
mod ordered;
mod sharded;
mod simple;
mod work;
