//! Recovery at the start, with the time that it took.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ironkeeper_engine::recover::Recovered;
use ironkeeper_node::{For, LogEnd, RecoveryError};
use ironkeeper_store::Store;
use ironkeeper_store::disk::Disk;
use ironkeeper_tree::TreeConfig;

/// The result of a recovery, for the operator.
#[derive(Debug)]
pub struct Report {
    pub snapshot: Option<PathBuf>,
    pub txns: u64,
    pub fresh: bool,
    /// The time to load the snapshot, including attempts with damaged snapshots.
    pub snapshot_took: Duration,
    /// The time to replay the transactions.
    pub txns_took: Duration,
}

/// Recovers the state from the files.
pub(crate) fn recover<D: Disk>(
    store: &Store<D>,
    config: TreeConfig,
    whom: For,
) -> Result<(Recovered, LogEnd, Report), RecoveryError> {
    let began = Instant::now();
    let mut snapshot_read = began;
    let on_snapshot_read = || snapshot_read = Instant::now();
    let (recovered, end, report) = ironkeeper_node::recover(store, config, whom, on_snapshot_read)?;
    let ironkeeper_node::Report { snapshot, txns, fresh } = report;
    let (snapshot_took, txns_took) = (snapshot_read - began, snapshot_read.elapsed());
    Ok((recovered, end, Report { snapshot, txns, fresh, snapshot_took, txns_took }))
}
