//! ZooKeeper's files: transaction log, snapshots, epochs, recovery, purge.
//!
//! Everything a server keeps on disk passes through here, in Apache ZooKeeper's formats byte for
//! byte, so that a data directory can move between the two servers in both directions. This crate
//! yields records and takes bytes; it knows no tree and decides nothing about when to write.
//!
//! Start with [`Store`] (a data directory), [`LogWriter`] (append, then one commit for many
//! records), [`SnapshotWriter`] and [`Visitor`] (what recovery tells). All input and output goes
//! through [`disk::Disk`]: the real one is [`disk::RealDisk`], the one that crashes on demand is
//! [`disk::sim::SimDisk`].
//!
//! Two promises shape the code:
//!
//! - **What was committed is found again.** [`LogWriter::commit`] returns after the bytes, the file
//!   and its directory entry are on the medium. A failed fsync is final.
//! - **Nothing is lost in silence.** Recovery stops at a torn record only where a write that nobody
//!   was promised can have been torn; every other damage is an error that names file and offset.
//!
//! No clock, no threads, no randomness, no environment.

mod catalog;
pub mod disk;
mod epochs;
mod error;
mod install;
pub mod log;
mod purge;
mod recover;
mod set_aside;
pub mod snapshot;
mod store;

pub use epochs::Epochs;
pub use error::StoreError;
pub use log::catch_up::LogTail;
pub use log::reader::{LogEnd, LogReader, LogRecord, Next};
pub use log::stream::LogStream;
pub use log::writer::LogWriter;
pub use recover::{Recovered, TornTail, Visitor};
pub use snapshot::Compression;
pub use snapshot::reader::{SnapshotSummary, read_snapshot, read_snapshot_file};
pub use snapshot::writer::SnapshotWriter;
pub use store::{Dirs, Store, StoreOptions};
