//! One server without a network: what it answers, refuses, limits and in which order.

mod bad_input;
mod limits;
mod order;
mod sessions;
mod watches;
#[path = "../world/mod.rs"]
mod world;
mod writes;
