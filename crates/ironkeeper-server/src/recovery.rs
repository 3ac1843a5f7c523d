//! From the files to a state: the store reads records, the engine folds them.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ironkeeper_engine::recover::{Recovered, Recovery};
use ironkeeper_proto::snapshot_record::{SnapshotDigest, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, Visitor};
use ironkeeper_tree::TreeConfig;

use crate::server::StartError;

struct Fold {
    recovery: Recovery,
    /// When the snapshot was complete: from then on transactions were read.
    snapshot_read: Instant,
}

impl Visitor for Fold {
    fn snapshot_start(&mut self, _: Zxid, _: &Path) {
        self.recovery.begin_snapshot();
    }

    fn session(&mut self, id: SessionId, timeout_ms: i32) {
        self.recovery.session(id, timeout_ms);
    }

    fn acl(&mut self, id: i64, list: AclVec<'_>) {
        self.recovery.acl(id, list);
    }

    fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), String> {
        self.recovery.node(node)
    }

    fn snapshot_end(&mut self, zxid: Zxid, digest: Option<SnapshotDigest>) -> Result<(), String> {
        let ended = self.recovery.end_snapshot(zxid, digest);
        self.snapshot_read = Instant::now();
        ended
    }

    fn txn(&mut self, txn: &FullTxn<'_>, _: &[u8]) -> Result<(), String> {
        self.recovery.txn(txn)
    }
}

/// What was found, for the operator.
#[derive(Debug)]
pub struct Report {
    pub snapshot: Option<PathBuf>,
    pub txns: u64,
    pub fresh: bool,
    /// How long the snapshot took to load, with those that turned out to be broken.
    pub snapshot_took: Duration,
    /// How long it took to replay the transactions.
    pub txns_took: Duration,
}

pub(crate) fn recover<D: Disk>(
    store: &Store<D>,
    config: TreeConfig,
) -> Result<(Recovered, Report), StartError> {
    let began = Instant::now();
    let mut fold = Fold { recovery: Recovery::new(config), snapshot_read: began };
    let found = store.recover(&mut fold)?;
    let (snapshot_took, txns_took) = (fold.snapshot_read - began, fold.snapshot_read.elapsed());
    for (file, reason) in &found.refused_snapshots {
        tracing::warn!("{} was not used: {reason}", file.display());
    }
    if let Some(tail) = &found.torn_tail {
        tracing::warn!(
            "{}: the last {} bytes from offset {} are a write that was never finished ({}); \
             nothing that was acknowledged is missing",
            tail.file.display(),
            tail.dropped_bytes,
            tail.offset,
            tail.reason
        );
    }
    let recovered = fold.recovery.finish().map_err(StartError::Recovery)?;
    if recovered.digest_mismatches > 0 {
        tracing::warn!(
            "{} transactions lead to another digest than they carry",
            recovered.digest_mismatches
        );
    }
    let snapshot = found.snapshot.map(|(_, path)| path);
    let (txns, fresh) = (found.txns, found.fresh);
    Ok((recovered, Report { snapshot, txns, fresh, snapshot_took, txns_took }))
}
