//! Names and ids, against a real server, with and without faults.

#[path = "../world/mod.rs"]
mod world;

mod ids;
mod names;
mod snowflake;
