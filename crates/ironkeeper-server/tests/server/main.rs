//! A real server on real sockets and threads.

mod bad_clients;
#[allow(dead_code, reason = "other test crates use the rest")]
mod client;
mod in_process;
mod order;
mod sessions;
mod transcript;
