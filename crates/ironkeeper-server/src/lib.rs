//! The ZooKeeper server as a program: sockets, threads, disks.
//!
//! `ironkeeper-engine` implements the protocol; this crate connects it to clients, a clock and
//! files, with the parts of `ironkeeper-node` on its threads. Start from [`Server`].
//!
//! | thread | what it does |
//! | --- | --- |
//! | `io-0` … | accept connections, parse, serve reads, prepare writes, send replies |
//! | `log` | appends, syncs once for many writes, applies |
//! | `snapshot` | writes snapshots, deletes old files |
//! | `timer` | expires sessions, deletes empty containers, runs ZAB's timers |
//! | `peers` | in an ensemble: connections to the other servers |
//! | `log-reader` | in an ensemble: reads the log for learners that are behind |

mod accept;
mod admin;
mod alarm;
mod clock;
mod connection_log;
mod engine_driver;
mod engine_warnings;
mod four_letter;
mod io;
mod limits;
mod log_reader;
mod log_thread;
mod member;
mod member_files;
mod membership_check;
mod metrics;
mod open_files;
pub mod panics;
pub mod peer;
mod rate_limited;
mod recovery;
mod rehearsal;
mod role;
mod server;
mod session_log;
mod settings;
mod shared;
mod shutdown;
mod snapshot_thread;
pub mod unused_memory;
mod wire;

pub use ironkeeper_admin::ZOOKEEPER_VERSION;
pub use recovery::{RecoveryTimes, StartReport};
pub use rehearsal::{Rehearsal, rehearse};
pub use server::{Server, StartError};
pub use shared::Shared;
