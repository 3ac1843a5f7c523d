//! Elections, each against a real server, with and without faults.

mod latch;
mod others;
mod selector;
