//! The pure ZooKeeper server.
//!
//! Sessions, requests, watches, ACLs, the order of reads and writes: everything that is protocol and
//! nothing that is a socket, a thread, a file or a clock. Inputs go in, outputs come out; time and
//! randomness are arguments. The server's threads drive it in the real world, the simulator in an
//! imagined one.
//!
//! Start from [`engine::Engine`] (the one owner of every decision), [`conn::Conn`] (one client's
//! protocol) and [`database::Database`] (what the two share, and the rule under which they do).

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
mod overlay;
#[doc(hidden)]
pub mod planted;
mod prepare;
mod quota_warnings;
mod reads;
pub mod recover;
pub mod request_throttle;
pub mod session_table;
pub mod snapshot;
mod snapshot_schedule;
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
pub use io::{DurableStep, Input, MemberStart, Output};
pub use time::Now;
