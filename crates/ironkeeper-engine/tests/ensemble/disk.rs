//! A disk that does what it is told, in order and at once, unless it is held up.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_engine::DurableStep;
use ironkeeper_engine::recover::{Recovered, Recovery};
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::snapshot_record::{END_PATH, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::{Durable, Ensemble, Epochs, LogRead};

/// What a log thread is asked for.
#[derive(Debug)]
pub enum Command {
    Append(Zxid, Bytes),
    Step(DurableStep),
}

#[derive(Debug)]
pub struct Disk {
    pub epochs: Epochs,
    pub ensemble: Ensemble,
    /// Trees in the form for learners, oldest first. Without one the log begins with the empty tree.
    snapshots: Vec<(Zxid, Vec<u8>)>,
    log: Vec<(Zxid, Bytes)>,
    /// What comes before the first record of the log.
    log_base: Zxid,
    pub queue: VecDeque<Command>,
    /// Nothing is done while this is set.
    pub is_held: bool,
    /// The tree that came from a leader last.
    pub received: Vec<u8>,
}

/// What a command has led to.
#[derive(Debug)]
pub enum Done {
    Nothing,
    Flushed(Zxid),
    Durable(Durable),
    Rebuilt(Box<Recovered>, Durable),
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

    pub fn work(&mut self) -> Option<Done> {
        if self.is_held {
            return None;
        }
        Some(match self.queue.pop_front()? {
            Command::Append(zxid, txn) => {
                self.log.push((zxid, txn));
                match self.queue.front() {
                    Some(Command::Append(..)) => Done::Nothing,
                    _ => Done::Flushed(zxid),
                }
            }
            Command::Step(step) => self.step(step),
        })
    }

    fn step(&mut self, step: DurableStep) -> Done {
        match step {
            DurableStep::WriteAcceptedEpoch(epoch) => {
                self.epochs.accepted = epoch;
                Done::Durable(Durable::AcceptedEpoch(epoch))
            }
            DurableStep::WriteCurrentEpoch(epoch) => {
                self.epochs.current = epoch;
                Done::Durable(Durable::CurrentEpoch(epoch))
            }
            DurableStep::Truncate(zxid) => {
                let known = self.log.iter().any(|(entry, _)| *entry == zxid)
                    || self.snapshots.iter().any(|(entry, _)| *entry == zxid);
                if !known {
                    return Done::Durable(Durable::CannotTruncate(zxid));
                }
                self.log.retain(|(entry, _)| *entry <= zxid);
                self.snapshots.retain(|(entry, _)| *entry <= zxid);
                Done::Rebuilt(Box::new(self.state()), Durable::Truncated(zxid))
            }
            DurableStep::InstallSnapshot { zxid, .. } => {
                let tree = std::mem::take(&mut self.received);
                self.snapshots = vec![(zxid, tree)];
                self.log.clear();
                self.log_base = zxid;
                Done::Rebuilt(Box::new(self.state()), Durable::Installed(zxid))
            }
            DurableStep::ConfigProposed(next) => {
                self.ensemble.propose(*next);
                Done::Nothing
            }
            DurableStep::ConfigCommitted(next) => {
                self.ensemble.commit(*next);
                Done::Nothing
            }
            DurableStep::ConfigWithdrawn => {
                let committed = self.ensemble.committed().clone();
                self.ensemble = Ensemble::new(committed, None);
                Done::Nothing
            }
        }
    }

    pub fn keep_snapshot(&mut self, zxid: Zxid, tree: Vec<u8>) {
        self.snapshots.push((zxid, tree));
    }

    pub fn has_snapshot(&self) -> bool {
        !self.snapshots.is_empty()
    }

    /// How many transactions the log holds.
    pub fn log_len(&self) -> usize {
        self.log.len()
    }

    /// Forgets the log before the last snapshot, as a purge does.
    pub fn purge(&mut self) {
        if let Some((zxid, _)) = self.snapshots.last() {
            self.log_base = *zxid;
            self.log.retain(|(entry, _)| entry > zxid);
        }
    }

    /// The tree as the files have it.
    pub fn state(&self) -> Recovered {
        let mut recovery = Recovery::new(TreeConfig::default());
        let mut base = Zxid::ZERO;
        if let Some((zxid, tree)) = self.snapshots.last() {
            load(&mut recovery, *zxid, tree);
            base = *zxid;
        }
        for (zxid, txn) in &self.log {
            if *zxid > base {
                recovery.txn(&FullTxn::decode(txn).unwrap()).unwrap();
            }
        }
        recovery.finish_member().unwrap()
    }

    /// The process has died: what was on its way is lost. A snapshot may be ahead of the log then, and
    /// the log is of no use any more.
    pub fn lose_queue(&mut self) {
        self.queue.clear();
        self.is_held = false;
        let newest = self.snapshots.last().map_or(Zxid::ZERO, |(zxid, _)| *zxid);
        if self.log.last().is_some_and(|(last, _)| *last < newest) {
            self.log.clear();
            self.log_base = newest;
        }
    }

    /// What a member starts from, besides the tree.
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

fn load(recovery: &mut Recovery, zxid: Zxid, tree: &[u8]) {
    let mut reader = Reader::new(tree);
    recovery.begin_snapshot();
    for _ in 0..reader.i32().unwrap() {
        recovery.session(SessionId(reader.i64().unwrap()), reader.i32().unwrap());
    }
    for _ in 0..reader.i32().unwrap() {
        let id = reader.i64().unwrap();
        recovery.acl(id, AclVec::decode(&mut reader).unwrap().unwrap());
    }
    loop {
        let path = reader.str().unwrap();
        if path == END_PATH {
            break;
        }
        recovery.node(&SnapshotNode::decode_body(path, &mut reader).unwrap()).unwrap();
    }
    assert_eq!(reader.str().unwrap(), "BenWasHere");
    assert!(reader.is_empty());
    recovery.end_snapshot(zxid, None).unwrap();
}
