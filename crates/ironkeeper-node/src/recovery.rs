//! Recovery of the state from the files: the store reads the records, the engine applies them.

use std::collections::VecDeque;
use std::path::Path;

use bytes::Bytes;
use ironkeeper_engine::recover::{Recovered, SnapshotLoader};
use ironkeeper_proto::snapshot_record::{SnapshotDigest, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{RecoveryReport, Store, StoreError, Visitor};
use ironkeeper_tree::TreeConfig;
use thiserror::Error;

use crate::snapshot;

/// The reason why the state could not be recovered.
#[derive(Debug, Error)]
pub enum RecoveryError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("the snapshot ended too early")]
    UnfinishedSnapshot,
}

/// The kind of server that recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerKind {
    /// A standalone server.
    Standalone,
    /// A member of an ensemble, which keeps the last transactions in memory for learners.
    Member { history_count_max: usize, history_bytes_max: usize },
}

/// The zxid in the votes of a member that has no database and may not create one
/// (`zookeeper.db.autocreate`): other servers ignore its votes until a leader has sent it a
/// snapshot.
pub const NO_DATABASE: Zxid = Zxid(-1);

/// The result of a recovery.
#[derive(Debug)]
pub struct Recovery {
    pub recovered: Recovered,
    pub history: LogHistory,
    pub report: RecoveryReport,
}

/// The end of the recovered log, as a member of an ensemble needs it.
#[derive(Debug, Default)]
pub struct LogHistory {
    /// The zxid of the snapshot onto which the log was replayed.
    pub base: Zxid,
    pub last: Zxid,
    /// The last transactions up to `last`, without gaps. Empty on a standalone server.
    pub txns: VecDeque<(Zxid, Bytes)>,
    /// The zxid before the first of `txns`.
    pub txns_base: Zxid,
}

impl LogHistory {
    /// Returns the history of a log without records after the snapshot at `zxid`.
    fn of_snapshot(zxid: Zxid) -> LogHistory {
        LogHistory { base: zxid, last: zxid, txns: VecDeque::new(), txns_base: zxid }
    }

    /// Returns the state with which ZAB starts.
    pub fn into_recovered(self, epochs: ironkeeper_store::Epochs) -> ironkeeper_zab::Recovered {
        ironkeeper_zab::Recovered {
            epochs: ironkeeper_zab::Epochs { accepted: epochs.accepted, current: epochs.current },
            last: self.last,
            log_from: self.base,
            history: self.txns.into(),
            history_base: self.txns_base,
        }
    }
}

/// The receiver of the recovered records.
struct Replay<L> {
    config: TreeConfig,
    kind: ServerKind,
    stage: Stage,
    history: LogHistory,
    history_bytes: usize,
    on_snapshot_read: L,
}

enum Stage {
    Snapshot(SnapshotLoader),
    Log(Recovered),
}

impl<L: FnMut()> Visitor for Replay<L> {
    fn snapshot_start(&mut self, _: Zxid, _: &Path) {
        self.stage = Stage::Snapshot(SnapshotLoader::new(self.config));
    }

    fn session(&mut self, id: SessionId, timeout_ms: i32) {
        if let Stage::Snapshot(loader) = &mut self.stage {
            loader.session(id, timeout_ms);
        }
    }

    fn acl(&mut self, id: i64, list: AclVec<'_>) {
        if let Stage::Snapshot(loader) = &mut self.stage {
            loader.acl(id, list);
        }
    }

    fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), String> {
        match &mut self.stage {
            Stage::Snapshot(loader) => loader.node(node).map_err(|error| error.to_string()),
            Stage::Log(_) => Err("a node outside of a snapshot".to_owned()),
        }
    }

    fn snapshot_end(&mut self, zxid: Zxid, digest: Option<SnapshotDigest>) -> Result<(), String> {
        (self.on_snapshot_read)();
        let empty = Stage::Log(Recovered::new(self.config));
        let Stage::Snapshot(loader) = std::mem::replace(&mut self.stage, empty) else {
            return Err("the end of a snapshot that never began".to_owned());
        };
        self.stage = Stage::Log(loader.finish(zxid, digest).map_err(|error| error.to_string())?);
        self.history = LogHistory::of_snapshot(zxid);
        Ok(())
    }

    fn txn(&mut self, txn: &FullTxn<'_>, raw: &[u8]) -> Result<(), String> {
        match &mut self.stage {
            Stage::Log(recovered) => recovered.apply(txn),
            Stage::Snapshot(_) => return Err("a transaction inside of a snapshot".to_owned()),
        }
        let history = &mut self.history;
        history.last = txn.header.zxid;
        let ServerKind::Member { history_count_max, history_bytes_max } = self.kind else {
            return Ok(());
        };
        history.txns.push_back((txn.header.zxid, Bytes::copy_from_slice(raw)));
        self.history_bytes += raw.len();
        while history.txns.len() > history_count_max || self.history_bytes > history_bytes_max {
            let Some((zxid, txn)) = history.txns.pop_front() else { break };
            self.history_bytes -= txn.len();
            history.txns_base = zxid;
        }
        Ok(())
    }
}

/// Recovers the state from the files. `on_snapshot_read` is called when the snapshot is read and
/// the replay of the log begins, for a driver that measures times.
pub fn recover<D: Disk>(
    store: &Store<D>,
    config: TreeConfig,
    kind: ServerKind,
    on_snapshot_read: impl FnMut(),
) -> Result<Recovery, RecoveryError> {
    let mut replay = Replay {
        config,
        kind,
        stage: Stage::Log(Recovered::new(config)),
        history: LogHistory::default(),
        history_bytes: 0,
        on_snapshot_read,
    };
    let report = store.recover(&mut replay)?;
    for (file, reason) in &report.refused_snapshots {
        tracing::warn!("{} was not used: {reason}", file.display());
    }
    if let Some(tail) = &report.torn_tail {
        tracing::warn!(
            "{}: the last {} bytes from offset {} are a write that was never finished ({}); \
             nothing that was acknowledged is missing",
            tail.file.display(),
            tail.dropped_bytes,
            tail.offset,
            tail.reason
        );
    }
    let Stage::Log(mut recovered) = replay.stage else {
        return Err(RecoveryError::UnfinishedSnapshot);
    };
    if kind == ServerKind::Standalone {
        // On a standalone server this needs no transaction.
        recovered.state.remove_orphans();
    }
    if recovered.digest_mismatches > 0 {
        tracing::warn!(
            "{} transactions lead to another digest than they carry",
            recovered.digest_mismatches
        );
    }
    let history = match report.last_zxid {
        NO_DATABASE => LogHistory::of_snapshot(NO_DATABASE),
        _ => replay.history,
    };
    Ok(Recovery { recovered, history, report })
}

/// Writes the recovered state as a snapshot, if recovery found none. Apache does not start on a log
/// without a snapshot, so there must always be one.
pub fn write_first_snapshot<D: Disk>(
    store: &Store<D>,
    recovery: &mut Recovery,
) -> Result<(), StoreError> {
    let state = &mut recovery.recovered.state;
    let mut job = state.begin_snapshot();
    snapshot::write_slices(store, &mut job, |job, out| job.next_slice_of(state, out), || true)?;
    recovery.history = LogHistory::of_snapshot(job.zxid());
    state.tree.end_snapshot(job.into_walk());
    Ok(())
}
