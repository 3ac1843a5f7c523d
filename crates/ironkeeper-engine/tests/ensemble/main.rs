//! Tests of engines that are members of one ensemble.

mod catch_up;
mod cluster;
mod disk;
mod local_sessions;
mod members;
mod network;
mod read_only;
mod roles;
mod sessions;
mod sizes;
mod trouble;
#[path = "../world/mod.rs"]
mod world;
mod writes;
