//! A disk that executes durable steps at once and in order, unless a test sets `is_held`.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_engine::recover::{Recovered, SnapshotLoader};
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::snapshot_record::{END_PATH, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::{Durable, DurableStep, Ensemble, Epochs, LogRead, MembersChange};

#[derive(Debug)]
pub struct Disk {
    pub epochs: Epochs,
    pub ensemble: Ensemble,
    /// Snapshots in the format for learners, oldest first. Without a snapshot the log begins with
    /// the empty tree.
    snapshots: Vec<(Zxid, Vec<u8>)>,
    log: Vec<(Zxid, Bytes)>,
    /// The zxid before the first record of the log.
    log_base: Zxid,
    pub queue: VecDeque<DurableStep>,
    /// No step is executed while this is set.
    pub is_held: bool,
    /// The last snapshot received from a leader.
    pub received: Vec<u8>,
}

impl Disk {
    pub fn new(ensemble: Ensemble) -> Disk {
        Disk {
            epochs: Epochs::default(),
            ensemble,
            snapshots: Vec::new(),
            log: Vec::new(),
            log_base: Zxid::ZERO,
            queue: VecDeque::new(),
            is_held: false,
            received: Vec::new(),
        }
    }

    /// Executes the next step and returns its report. Returns `None` if there is no step or nothing
    /// to report.
    pub fn work(&mut self) -> Option<Durable<Box<Recovered>>> {
        if self.is_held {
            return None;
        }
        match self.queue.pop_front()? {
            DurableStep::Append { zxid, txn } => {
                self.log.push((zxid, txn));
                let is_last = !matches!(self.queue.front(), Some(DurableStep::Append { .. }));
                is_last.then_some(Durable::Flushed(zxid))
            }
            DurableStep::WriteAcceptedEpoch(epoch) => {
                self.epochs.accepted = epoch;
                Some(Durable::AcceptedEpoch(epoch))
            }
            DurableStep::WriteCurrentEpoch(epoch) => {
                self.epochs.current = epoch;
                Some(Durable::CurrentEpoch(epoch))
            }
            DurableStep::Truncate(zxid) => {
                let known = self.log.iter().any(|(entry, _)| *entry == zxid)
                    || self.snapshots.iter().any(|(entry, _)| *entry == zxid);
                if !known {
                    return Some(Durable::CannotTruncate(zxid));
                }
                self.log.retain(|(entry, _)| *entry <= zxid);
                self.snapshots.retain(|(entry, _)| *entry <= zxid);
                Some(Durable::Truncated { zxid, state: Box::new(self.state()) })
            }
            DurableStep::InstallSnapshot { zxid, .. } => {
                let tree = std::mem::take(&mut self.received);
                self.snapshots = vec![(zxid, tree)];
                self.log.clear();
                self.log_base = zxid;
                Some(Durable::Installed { zxid, state: Box::new(self.state()) })
            }
            DurableStep::WriteMembers(change) => {
                match change {
                    MembersChange::Proposed(next) => {
                        self.ensemble.propose(*next);
                    }
                    MembersChange::Committed(next) => {
                        self.ensemble.commit(*next);
                    }
                    MembersChange::Withdrawn => {
                        let committed = self.ensemble.committed().clone();
                        self.ensemble = Ensemble::new(committed, None);
                    }
                }
                None
            }
        }
    }

    pub fn keep_snapshot(&mut self, zxid: Zxid, tree: Vec<u8>) {
        self.snapshots.push((zxid, tree));
    }

    pub fn has_snapshot(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// Returns the number of transactions in the log.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Deletes the log up to the last snapshot, as a purge does.
    pub fn purge(&mut self) {
        if let Some((zxid, _)) = self.snapshots.last() {
            self.log_base = *zxid;
            self.log.retain(|(entry, _)| entry > zxid);
        }
    }

    /// Recovers the tree from the newest snapshot and the log.
    pub fn state(&self) -> Recovered {
        let mut recovered = Recovered::new(TreeConfig::default());
        if let Some((zxid, tree)) = self.snapshots.last() {
            recovered = load(*zxid, tree);
        }
        let base = recovered.state.applied();
        for (zxid, txn) in &self.log {
            if *zxid > base {
                recovered.apply(&FullTxn::decode(txn).unwrap());
            }
        }
        recovered
    }

    /// Drops the queued steps, as the death of the process does. If a snapshot is newer than the
    /// end of the log, the log is useless and is deleted.
    pub fn lose_queue(&mut self) {
        self.queue.clear();
        self.is_held = false;
        let newest = self.snapshots.last().map_or(Zxid::ZERO, |(zxid, _)| *zxid);
        if self.log.last().is_some_and(|(last, _)| *last < newest) {
            self.log.clear();
            self.log_base = newest;
        }
    }

    /// Returns what a member recovers besides the tree.
    pub fn recovered(&self) -> ironkeeper_zab::Recovered {
        let last = self.log.last().map_or(self.log_base, |(zxid, _)| *zxid);
        ironkeeper_zab::Recovered {
            epochs: self.epochs,
            last,
            log_from: self.log_base,
            history: self.log.clone(),
            history_base: self.log_base,
        }
    }

    pub fn read_log(&self, after: Zxid) -> LogRead {
        let at = self.log.iter().position(|(zxid, _)| *zxid == after);
        match at {
            Some(at) => LogRead { found: true, txns: self.log[at + 1..].to_vec() },
            None if after == self.log_base => LogRead { found: true, txns: self.log.clone() },
            None => LogRead::default(),
        }
    }
}

fn load(zxid: Zxid, tree: &[u8]) -> Recovered {
    let mut reader = Reader::new(tree);
    let mut loader = SnapshotLoader::new(TreeConfig::default());
    for _ in 0..reader.i32().unwrap() {
        loader.session(SessionId(reader.i64().unwrap()), reader.i32().unwrap());
    }
    for _ in 0..reader.i32().unwrap() {
        let id = reader.i64().unwrap();
        loader.acl(id, AclVec::decode(&mut reader).unwrap().unwrap());
    }
    loop {
        let path = reader.str().unwrap();
        if path == END_PATH {
            break;
        }
        loader.node(&SnapshotNode::decode_body(path, &mut reader).unwrap()).unwrap();
    }
    assert_eq!(reader.str().unwrap(), "BenWasHere");
    assert!(reader.is_empty());
    loader.finish(zxid, None).unwrap()
}
