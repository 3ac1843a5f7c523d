//! Recovery at the start, with the time that it took.

use std::time::{Duration, Instant};

use ironkeeper_node::{Recovery, RecoveryError, ServerKind};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{RecoveryReport, Store};
use ironkeeper_tree::TreeConfig;

/// What a start found on the disk, for the operator.
#[derive(Debug)]
pub struct StartReport {
    pub files: RecoveryReport,
    pub took: RecoveryTimes,
}

/// The times of a recovery.
#[derive(Clone, Copy, Debug)]
pub struct RecoveryTimes {
    /// The time to load the snapshot, including attempts with damaged snapshots.
    pub snapshot: Duration,
    /// The time to replay the transactions.
    pub txns: Duration,
}

/// Recovers the state from the files.
pub(crate) fn recover<D: Disk>(
    store: &Store<D>,
    config: TreeConfig,
    kind: ServerKind,
) -> Result<(Recovery, RecoveryTimes), RecoveryError> {
    let began = Instant::now();
    let mut snapshot_read = began;
    let recovery =
        ironkeeper_node::recover(store, config, kind, || snapshot_read = Instant::now())?;
    let took = RecoveryTimes { snapshot: snapshot_read - began, txns: snapshot_read.elapsed() };
    Ok((recovery, took))
}
