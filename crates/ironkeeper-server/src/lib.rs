//! The ZooKeeper server as a program: sockets, threads, disks.
//!
//! `ironkeeper-engine` implements the protocol; this crate connects it to clients, a clock and
//! files. Start from [`Server`].
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
mod alarm;
mod clock;
mod core;
mod cut_log;
mod durable_steps;
mod four_letter;
mod io;
mod limits;
mod log_reader;
mod log_thread;
mod log_work;
mod member;
mod member_files;
mod metrics;
mod open_files;
mod outlet;
pub mod panics;
pub mod peer;
mod recovery;
mod rehearsal;
mod repeats;
mod role;
mod server;
mod server_lists;
mod session_log;
mod settings;
mod shared;
mod shutdown;
mod snapshot_thread;
pub mod unused_memory;

/// The parts that need neither threads nor sockets nor a clock, for drivers with simulated time,
/// such as the simulator: the files of a server, and the bytes between servers.
pub mod parts {
    pub use crate::durable_steps::{DurableSteps, MemberFiles, withdraw_unlogged};
    pub use crate::log_reader::read as read_log;
    pub use crate::log_work::{LogItem, LogWork, Progress};
    pub use crate::peer::{Broken, Expect, Intake, ReceivedTree, encode_vote};
    pub use crate::recovery::{For, LogEnd, recover, write_first_snapshot};
    pub use crate::snapshot_thread::{SnapshotQueue, write as write_snapshot};
}

pub use four_letter::ZOOKEEPER_VERSION;
pub use recovery::Report;
pub use rehearsal::{Rehearsal, rehearse};
pub use server::{Server, StartError};
pub use shared::Shared;
