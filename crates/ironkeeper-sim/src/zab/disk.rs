//! A disk that keeps what was synced and, when the machine dies, some of the rest.
//!
//! One thread works through commands in order, as the server's log thread does: it writes a batch of
//! records, syncs, reports. What a command changes is seen at once by a process that reads it back, but it
//! survives a loss of power only when the command has ended; before that, chance decides how much of it
//! is there.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::{Epoch, Zxid};
use ironkeeper_zab::{Durable, Epochs, LinkId, LogRead, Recovered};

use crate::random::Random;
use crate::zab::state::State;

#[derive(Clone, Debug)]
pub enum Command {
    Append(Zxid, Bytes),
    Accepted(Epoch),
    Current(Epoch),
    Truncate(Zxid),
    Install(LinkId, State),
}

/// A command that is being worked on.
#[derive(Debug)]
enum Working {
    /// Records up to there have been written and are being synced.
    Sync {
        written: usize,
    },
    Other(Command),
}

/// How the machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The process dies; what it has written is still in the kernel's hands.
    Kill,
    /// The power goes: what was not synced is lost, or half of it.
    PowerLoss,
}

#[derive(Debug)]
pub struct Disk {
    accepted: Epoch,
    current: Epoch,
    /// Trees, oldest first. The empty one is a snapshot like any other.
    snapshots: Vec<State>,
    /// What comes before the first record of the log.
    log_base: Zxid,
    log: Vec<(Zxid, Bytes)>,
    /// How many records survive a loss of power.
    synced: usize,
    queue: VecDeque<Command>,
    working: Option<Working>,
    /// Records in one write.
    batch_max: usize,
}

impl Disk {
    pub fn new() -> Disk {
        Disk {
            accepted: Epoch(0),
            current: Epoch(0),
            snapshots: vec![State::default()],
            log_base: Zxid::ZERO,
            log: Vec::new(),
            synced: 0,
            queue: VecDeque::new(),
            working: None,
            batch_max: 64,
        }
    }

    pub fn epochs(&self) -> Epochs {
        Epochs { accepted: self.accepted, current: self.current }
    }

    pub fn submit(&mut self, command: Command) {
        self.queue.push_back(command);
    }

    /// Takes up the next piece of work, if there is some and none is under way.
    pub fn begin(&mut self) -> bool {
        if self.working.is_some() {
            return false;
        }
        let mut records = 0;
        while records < self.batch_max && matches!(self.queue.front(), Some(Command::Append(..))) {
            if let Some(Command::Append(zxid, txn)) = self.queue.pop_front() {
                self.log.push((zxid, txn));
                records += 1;
            }
        }
        self.working = if records > 0 {
            Some(Working::Sync { written: self.log.len() })
        } else {
            self.queue.pop_front().map(Working::Other)
        };
        self.working.is_some()
    }

    /// The work is done: what to report, and the tree if it has changed.
    pub fn finish(&mut self) -> Option<(Durable, Option<State>)> {
        match self.working.take()? {
            Working::Sync { written } => {
                self.synced = written;
                let last = self.log.last().map_or(self.log_base, |(zxid, _)| *zxid);
                Some((Durable::Flushed(last), None))
            }
            Working::Other(command) => Some(match command {
                Command::Append(..) => unreachable!("appends are batched"),
                Command::Accepted(epoch) => {
                    self.accepted = epoch;
                    (Durable::AcceptedEpoch(epoch), None)
                }
                Command::Current(epoch) => {
                    self.current = epoch;
                    (Durable::CurrentEpoch(epoch), None)
                }
                Command::Truncate(zxid) => match self.truncate(zxid) {
                    Some(state) => (Durable::Truncated(zxid), Some(state)),
                    None => (Durable::CannotTruncate(zxid), None),
                },
                Command::Install(_, state) => {
                    self.install(state, 3);
                    (Durable::Installed(state.last), Some(state))
                }
            }),
        }
    }

    /// Goes back to `zxid` if the log has it and a tree to start from.
    fn truncate(&mut self, zxid: Zxid) -> Option<State> {
        let base = *self.snapshots.iter().rev().find(|snapshot| snapshot.last <= zxid)?;
        let known = base.last == zxid
            || self.log.iter().any(|(entry, _)| *entry == zxid) && base.last >= self.log_base;
        if !known {
            return None;
        }
        self.log.retain(|(entry, _)| *entry <= zxid);
        self.synced = self.synced.min(self.log.len());
        self.snapshots.retain(|snapshot| snapshot.last <= zxid);
        Some(self.replay().1)
    }

    /// The three steps in which a leader's tree takes the place of ours. After each of them there may
    /// be no next one.
    fn install(&mut self, state: State, steps: u64) {
        if steps >= 1 {
            self.log.retain(|(entry, _)| *entry <= state.last);
            self.synced = self.synced.min(self.log.len());
            self.snapshots.retain(|snapshot| snapshot.last < state.last);
        }
        if steps >= 2 {
            self.snapshots.push(state);
        }
        if steps >= 3 {
            self.snapshots = vec![state];
            self.log.clear();
            self.synced = 0;
            self.log_base = state.last;
        }
    }

    /// The newest snapshot, the tree with the records behind it, and these records.
    fn replay(&self) -> (State, State, Vec<(Zxid, Bytes)>) {
        let base = *self.snapshots.last().expect("there is always one");
        let records: Vec<_> =
            self.log.iter().filter(|(zxid, _)| *zxid > base.last).cloned().collect();
        let mut state = base;
        for (zxid, txn) in &records {
            state.apply(*zxid, txn);
        }
        (base, state, records)
    }

    /// The machine stops. What was under way is finished, begun or lost.
    pub fn stop(&mut self, stop: Stop, random: &mut Random) {
        self.queue.clear();
        match self.working.take() {
            Some(Working::Other(command)) => match command {
                Command::Install(_, state) => self.install(state, random.below(4)),
                other if random.chance(500) => {
                    self.working = Some(Working::Other(other));
                    self.finish();
                }
                _ => {}
            },
            Some(Working::Sync { .. }) | None => {}
        }
        let unsynced = self.log.len() - self.synced;
        // A write that was under way may have ended anywhere; a power loss takes any end of it.
        let kept = match stop {
            Stop::Kill if random.chance(800) => unsynced,
            _ => random.below(unsynced as u64 + 1) as usize,
        };
        self.log.truncate(self.synced + kept);
    }

    /// Reads everything back. The log is synced first: what was only in a cache becomes certain before
    /// anybody votes with it. The tree is the newest snapshot, the log behind it is in `Recovered`.
    pub fn recover(&mut self) -> (State, Recovered) {
        self.synced = self.log.len();
        let (base, state, history) = self.replay();
        let recovered = Recovered {
            epochs: self.epochs(),
            last: state.last,
            log_from: base.last.max(self.log_base),
            history,
            history_base: base.last,
        };
        (base, recovered)
    }

    pub fn read_log(&self, after: Zxid, count_max: usize) -> LogRead {
        let start = if after == self.log_base {
            Some(0)
        } else {
            self.log.iter().position(|(zxid, _)| *zxid == after).map(|at| at + 1)
        };
        match start {
            None => LogRead::default(),
            Some(start) => LogRead {
                found: true,
                txns: self.log[start..].iter().take(count_max).cloned().collect(),
            },
        }
    }

    /// Leaves only the newest tree and the log behind it, as a purge does.
    pub fn forget_old_snapshots(&mut self) {
        if let Some(newest) = self.snapshots.pop() {
            self.snapshots = vec![newest];
            if self.working.is_none() {
                self.drop_log_before(newest.last);
            }
        }
    }

    fn drop_log_before(&mut self, zxid: Zxid) {
        let gone = self.log[..self.synced].partition_point(|(entry, _)| *entry <= zxid);
        if gone > 0 {
            self.log_base = self.log[gone - 1].0;
            self.log.drain(..gone);
            self.synced -= gone;
        }
    }

    /// A tree is written by the running server. Old ones go, and perhaps the log before them.
    pub fn snapshot(&mut self, state: State, purge: bool) {
        // Only what the log has as well is certain to be found behind it again.
        let synced = self.log[..self.synced].last().map_or(self.log_base, |(zxid, _)| *zxid);
        if self.snapshots.last().is_some_and(|last| last.last >= state.last) || state.last > synced
        {
            return;
        }
        self.snapshots.push(state);
        if self.snapshots.len() > 3 {
            self.snapshots.remove(0);
        }
        // A command under way counts records.
        if purge && self.working.is_none() {
            self.drop_log_before(self.snapshots[0].last);
        }
    }
}

impl Default for Disk {
    fn default() -> Disk {
        Disk::new()
    }
}
