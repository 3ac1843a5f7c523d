//! Engines that are members of one ensemble.

mod catch_up;
mod cluster;
mod disk;
mod local_sessions;
mod members;
mod read_only;
mod roles;
mod sessions;
#[path = "../world/mod.rs"]
mod world;
mod writes;
