//! The pure half of a server's drivers: what connects the engine, ZAB and the store without
//! threads, sockets and clocks.
//!
//! `ironkeeper-server` runs these parts on its threads, and the simulator runs the same parts on
//! simulated disks and networks. They start no thread, wait for nothing and read no clock; a driver
//! measures times and decides when to call them.
//!
//! | part | start from |
//! | --- | --- |
//! | durable steps: appends, one sync for many of them, epochs, membership, truncation, installation | [`LogWork`], [`DurableSteps`], [`LogDriver`] |
//! | recovery of the state from the files | [`recover`] |
//! | writing a snapshot | [`write_snapshot`] |
//! | reading the log for a learner | [`read_log`] |
//! | decoding of the bytes of a peer, also of a leader's snapshot | [`Intake`] |

mod durable_steps;
mod intake;
mod log_query;
mod log_work;
mod notification;
mod received_snapshot;
mod recovery;
mod snapshot;
mod snapshot_scanner;

pub use durable_steps::{Done, DurableSteps, MemberFiles, withdraw_unlogged};
pub use intake::{Broken, Expect, Intake, TREE_STEP_BYTES};
pub use log_query::read_log;
pub use log_work::{LogDriver, LogItem, LogWork, Progress};
pub use notification::encode_vote;
pub use received_snapshot::{IncomingTree, ReceivedTree, TreeError};
pub use recovery::{
    LogHistory, NO_DATABASE, Recovery, RecoveryError, ServerKind, recover, write_first_snapshot,
};
pub use snapshot::write_snapshot;
