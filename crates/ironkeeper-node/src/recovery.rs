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
    for (file, error) in &report.refused_snapshots {
        tracing::warn!(file = %file.display(), %error, "snapshot rejected");
    }
    if let Some(tail) = &report.torn_tail {
        tracing::warn!(
            file = %tail.file.display(),
            offset = tail.offset,
            bytes = tail.dropped_bytes,
            error = %tail.reason,
            "torn tail of the log dropped, no acknowledged write is lost"
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
        tracing::warn!(txns = recovered.digest_mismatches, "digest mismatch while replaying");
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

#[cfg(test)]
mod tests {
    use ironkeeper_proto::txn::{self, CreateKind, TxnHeader};
    use ironkeeper_proto::{AclVec, OpCode};
    use ironkeeper_simdisk::SimDisk;
    use ironkeeper_store::{Dirs, StoreOptions};

    use super::*;

    const MEMBER: ServerKind =
        ServerKind::Member { history_count_max: 500, history_bytes_max: 1 << 20 };

    fn store(disk: &SimDisk) -> Store<SimDisk> {
        let options = StoreOptions { trust_empty: true, ..StoreOptions::default() };
        Store::open(disk.clone(), Dirs::single("/data"), options).expect("a good disk")
    }

    fn recovered(store: &Store<SimDisk>) -> Recovery {
        recover(store, TreeConfig::default(), MEMBER, || {}).expect("the files are good")
    }

    /// Appends a create of `/n<zxid>`.
    fn append(store: &Store<SimDisk>, zxids: std::ops::RangeInclusive<i64>) {
        let mut writer = store.log_writer();
        for zxid in zxids {
            let (path, kind) = (format!("/n{zxid}"), CreateKind::Persistent);
            let header = TxnHeader {
                session: SessionId(1),
                cxid: 1,
                zxid: Zxid(zxid),
                time: 1,
                op: OpCode::Create,
            };
            let mut body = Vec::new();
            header.encode(&mut body);
            let version = zxid as i32;
            let acl = AclVec::OPEN;
            txn::encode::create(OpCode::Create, &path, None, acl, kind, version, &mut body);
            writer.append(Zxid(zxid), &body).expect("it is small");
        }
        writer.commit().expect("there is room");
    }

    #[test]
    fn a_first_start_continues_with_the_state_that_the_next_start_recovers() {
        for txns in [0, 5] {
            let disk = SimDisk::new(7);
            let store = store(&disk);
            if txns > 0 {
                append(&store, 1..=txns);
            }
            let mut first = recovered(&store);
            assert_eq!((first.report.snapshot.is_none(), first.report.fresh), (true, txns == 0));
            write_first_snapshot(&store, &mut first).expect("there is room");

            let second = recovered(&store);
            let zxid = Zxid(txns);
            assert_eq!(second.report.snapshot.map(|(zxid, _)| zxid), Some(zxid));
            assert_eq!(second.report.txns, 0);
            let digest = |recovered: &Recovered| recovered.state.tree.digest();
            assert_eq!(digest(&first.recovered), digest(&second.recovered));
            assert_eq!(first.recovered.state.applied(), zxid);
            let position = |of: &LogHistory| (of.base, of.last, of.txns_base, of.txns.len());
            assert_eq!(position(&first.history), position(&second.history));
            append(&store, txns + 1..=txns + 2);
            let third = recovered(&store);
            assert_eq!((third.report.txns, third.history.txns.len()), (2, 2));
            assert_eq!(third.recovered.digest_mismatches, 0);
        }
    }

    #[test]
    fn the_driver_learns_when_the_replay_begins() {
        let store = store(&SimDisk::new(7));
        let mut first = recovered(&store);
        write_first_snapshot(&store, &mut first).expect("there is room");
        append(&store, 1..=3);
        let mut calls = 0;
        recover(&store, TreeConfig::default(), MEMBER, || calls += 1).expect("the files are good");
        assert_eq!(calls, 1);
    }

    #[test]
    fn the_history_in_memory_is_the_end_of_the_log_within_its_bound() {
        let store = store(&SimDisk::new(7));
        append(&store, 1..=9);
        let kind = ServerKind::Member { history_count_max: 4, history_bytes_max: 1 << 20 };
        let history =
            recover(&store, TreeConfig::default(), kind, || {}).expect("good files").history;
        let zxids: Vec<i64> = history.txns.iter().map(|(zxid, _)| zxid.0).collect();
        assert_eq!((zxids, history.txns_base, history.last), (vec![6, 7, 8, 9], Zxid(5), Zxid(9)));
        let kind = ServerKind::Standalone;
        let history =
            recover(&store, TreeConfig::default(), kind, || {}).expect("good files").history;
        assert_eq!((history.txns.len(), history.last), (0, Zxid(9)));
    }
}
