//! ZooKeeper's files: transaction log, snapshots, epochs, recovery, purge.
//!
//! The files have the formats of Apache ZooKeeper, byte for byte, so a data directory can move
//! between the two servers in both directions. This crate reads and writes records; it has no tree
//! and does not decide when to write.
//!
//! Start with [`Store`] (a data directory), [`LogWriter`] (append, then one commit for many
//! records), [`SnapshotWriter`] and [`Visitor`] (the receiver of recovered records). A backup or a
//! restore reads with [`Store::snapshots`], [`Store::read_snapshot`] and [`Store::read_log`], which
//! takes a [`LogRange`]. All I/O goes
//! through [`disk::Disk`]: [`disk::RealDisk`] is the file system; `SimDisk` of the unpublished
//! crate `ironkeeper-simdisk` is a simulated disk with crashes.
//!
//! Two guarantees determine the design:
//!
//! - **Recovery finds what was committed.** [`LogWriter::commit`] returns after the bytes, the file
//!   and its directory entry are on the medium. A failed fsync is final.
//! - **No loss is silent.** Recovery treats an unreadable record as a torn tail only where an
//!   unacknowledged write can have been torn; every other damage is an error that names the file
//!   and the offset.
//!
//! The crate uses no clock, no threads, no randomness and no environment variables.
//!
//! ```
//! use ironkeeper_proto::{OpCode, Put, SessionId, TxnHeader, Zxid};
//! use ironkeeper_store::disk::RealDisk;
//! use ironkeeper_store::{Dirs, LogRange, Store, StoreOptions};
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let home = tempfile::tempdir()?;
//!     let store = Store::open(RealDisk, Dirs::single(home.path()), StoreOptions::default())?;
//!     let (session, zxid, op) = (SessionId(7), Zxid(1), OpCode::CreateSession);
//!     let mut txn = Vec::new();
//!     TxnHeader { session, cxid: 0, zxid, time: 1_700_000_000_000, op }.encode(&mut txn);
//!     txn.put_i32(10_000); // the timeout of the session
//!
//!     let mut log = store.log_writer();
//!     log.append(zxid, &txn)?;
//!     log.commit()?; // now it is on the medium
//!     let mut records = store.read_log(LogRange::from(zxid))?;
//!     let first = records.next()?.expect("a durable record");
//!     assert_eq!((first.record.zxid, first.record.body), (zxid, &txn[..]));
//!     Ok(())
//! }
//! ```

#![warn(unreachable_pub)]

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

pub use catalog::SnapshotFile;
pub use epochs::Epochs;
pub use error::StoreError;
pub use log::catch_up::LogTail;
pub use log::range::LogRange;
pub use log::reader::{LogEnd, LogReader, LogRecord, Next};
pub use log::stream::LogStream;
pub use log::writer::LogWriter;
pub use recover::{RecoveryReport, TornTail, Visitor};
pub use snapshot::Compression;
pub use snapshot::reader::{SnapshotSummary, read_snapshot, read_snapshot_file};
pub use snapshot::writer::SnapshotWriter;
pub use store::{Dirs, Store, StoreOptions};
