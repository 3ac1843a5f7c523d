//! Barriers, each against a real server, with and without faults.

mod count_down_latch;
mod cyclic;
mod double;
mod plain;
