//! One server without a network: its replies, errors, limits and order.

mod bad_input;
mod limits;
mod order;
mod sessions;
mod watches;
#[path = "../world/mod.rs"]
mod world;
mod writes;
