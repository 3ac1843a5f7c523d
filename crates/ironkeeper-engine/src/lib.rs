//! The pure ZooKeeper server.
//!
//! Sessions, requests, watches, ACLs, the order of reads and writes: all of the protocol, without
//! sockets, threads, files and clocks. Inputs go in, outputs come out; time and randomness are
//! arguments. The server's threads drive it in production, the simulator in tests.
//!
//! Start from [`engine::Engine`] (which decides everything), [`conn::Conn`] (the protocol of one
//! client) and [`database::Database`] (the state that the two share, and the rule for access to
//! it).

pub mod auth;
pub mod baton;
pub mod config;
pub mod conn;
mod containers;
pub mod database;
mod ended_sessions;
pub mod engine;
pub mod expiry;
pub mod gate;
pub mod io;
mod lane;
pub mod large_requests;
mod local_writes;
mod long_lists;
pub mod outbox;
pub mod outbox_sender;
mod overlay;
#[doc(hidden)]
pub mod planted;
mod prepare;
mod quota_warnings;
mod reads;
pub mod recover;
pub mod request_throttle;
pub mod session_table;
mod sessions;
pub mod snapshot;
mod snapshot_schedule;
pub mod state;
pub mod stats;
mod sync;
pub mod throttle;
pub mod time;
pub mod unsent;
pub mod watch;

pub use config::EngineConfig;
pub use conn::Conn;
pub use database::Database;
pub use engine::Engine;
pub use io::{Input, LogItem, MemberStart, Output, ToPeers};
pub use time::Now;
