//! Recovery of the state from the files: the store reads the records, the engine applies them.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use ironkeeper_engine::recover::{Recovered, Recovery};
use ironkeeper_engine::{Engine, EngineConfig, Input, Now, Output};
use ironkeeper_proto::snapshot_record::{SnapshotDigest, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Store, StoreError, Visitor};
use ironkeeper_tree::TreeConfig;
use thiserror::Error;

use crate::snapshot;

/// The reason why the state could not be recovered.
#[derive(Debug, Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the data could not be recovered: {0}")]
    State(String),
}

/// The kind of server that recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum For {
    /// A standalone server.
    Standalone,
    /// A member of an ensemble, which keeps the last transactions in memory for learners.
    Member { history_count_max: usize, history_bytes_max: usize },
}

/// The zxid in the votes of a member that has no database and may not create one
/// (`zookeeper.db.autocreate`): other servers ignore its votes until a leader has sent it a
/// snapshot.
pub const NO_DATABASE: Zxid = Zxid(-1);

/// The end of the log, as a member of an ensemble needs it.
#[derive(Debug, Default)]
pub struct LogEnd {
    /// The zxid of the snapshot onto which the log was replayed.
    pub base: Zxid,
    pub last: Zxid,
    /// The last transactions up to `last`, without gaps.
    pub history: VecDeque<(Zxid, Bytes)>,
    /// The zxid before the first transaction of `history`.
    pub history_base: Zxid,
}

impl LogEnd {
    /// Returns the state with which ZAB starts.
    pub fn into_recovered(self, epochs: ironkeeper_store::Epochs) -> ironkeeper_zab::Recovered {
        ironkeeper_zab::Recovered {
            epochs: ironkeeper_zab::Epochs { accepted: epochs.accepted, current: epochs.current },
            last: self.last,
            log_from: self.base,
            history: self.history.into(),
            history_base: self.history_base,
        }
    }
}

struct Fold<L> {
    recovery: Recovery,
    whom: For,
    end: LogEnd,
    history_bytes: usize,
    on_snapshot_read: L,
}

impl<L: FnMut()> Visitor for Fold<L> {
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
        (self.end.base, self.end.last, self.end.history_base) = (zxid, zxid, zxid);
        (self.on_snapshot_read)();
        ended
    }

    fn txn(&mut self, txn: &FullTxn<'_>, raw: &[u8]) -> Result<(), String> {
        self.recovery.txn(txn)?;
        self.end.last = txn.header.zxid;
        let For::Member { history_count_max, history_bytes_max } = self.whom else { return Ok(()) };
        let history = &mut self.end.history;
        history.push_back((txn.header.zxid, Bytes::copy_from_slice(raw)));
        self.history_bytes += raw.len();
        while history.len() > history_count_max || self.history_bytes > history_bytes_max {
            let Some((zxid, txn)) = history.pop_front() else { break };
            self.history_bytes -= txn.len();
            self.end.history_base = zxid;
        }
        Ok(())
    }
}

/// The result of a recovery, for the operator.
#[derive(Clone, Debug)]
pub struct Report {
    pub snapshot: Option<PathBuf>,
    pub txns: u64,
    pub fresh: bool,
}

/// Recovers the state from the files. `on_snapshot_read` is called when the snapshot is read and
/// the replay of the log begins, for a driver that measures times.
pub fn recover<D: Disk>(
    store: &Store<D>,
    config: TreeConfig,
    whom: For,
    on_snapshot_read: impl FnMut(),
) -> Result<(Recovered, LogEnd, Report), RecoveryError> {
    let (recovery, end) = (Recovery::new(config), LogEnd::default());
    let mut fold = Fold { recovery, whom, end, history_bytes: 0, on_snapshot_read };
    let found = store.recover(&mut fold)?;
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
    let recovered = match whom {
        For::Standalone => fold.recovery.finish(),
        For::Member { .. } => fold.recovery.finish_member(),
    };
    let recovered = recovered.map_err(RecoveryError::State)?;
    if recovered.digest_mismatches > 0 {
        tracing::warn!(
            "{} transactions lead to another digest than they carry",
            recovered.digest_mismatches
        );
    }
    if found.last_zxid == NO_DATABASE {
        let end = NO_DATABASE;
        fold.end = LogEnd { base: end, last: end, history_base: end, ..LogEnd::default() };
    }
    let snapshot = found.snapshot.map(|(_, path)| path);
    let (txns, fresh) = (found.txns, found.fresh);
    Ok((recovered, fold.end, Report { snapshot, txns, fresh }))
}

/// Writes the recovered state as a snapshot. Apache does not start on a log without a snapshot, so
/// there must always be one.
pub fn write_first_snapshot<D: Disk>(
    store: &Store<D>,
    config: EngineConfig,
    recovered: Recovered,
    now: Now,
) -> Result<(), StoreError> {
    let (mut engine, db) = Engine::new(config, recovered, 0, now);
    let mut outputs = Vec::new();
    engine.step(now, &mut vec![Input::TakeSnapshot], &mut outputs);
    engine.settle(now, &mut outputs);
    for output in outputs {
        if let Output::Snapshot(mut job) = output {
            snapshot::write_snapshot(store, &db, &mut job, || true)?;
        }
    }
    Ok(())
}
