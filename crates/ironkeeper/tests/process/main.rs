//! The binary as a process: killed, without disk space or memory, stopped, and with starts that
//! fail.

#![cfg(target_os = "linux")]

#[path = "../../../ironkeeper-server/tests/server/client.rs"]
#[allow(dead_code, reason = "other test crates use the rest")]
mod client;
mod crash;
mod crowd;
mod dev_cluster;
mod ensemble;
mod full_disk;
mod large;
mod log;
mod log_messages;
mod migrate;
mod panic;
#[path = "../shell/pseudo_terminal.rs"]
#[allow(dead_code, reason = "the tests of the shell use the rest")]
mod pseudo_terminal;
mod refusal;
mod server_process;
mod stop;
