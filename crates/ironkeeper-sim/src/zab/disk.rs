//! A disk that keeps synced data and, if the machine stops, a part of the rest.
//!
//! One thread executes commands in order, as the server's log thread does: it writes a batch of
//! records, syncs, reports. A process that reads back sees the change of a command at once, but the
//! change survives a power failure only if the command has completed; before that, a random part of
//! it is kept.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::{Epoch, Zxid};
use ironkeeper_zab::{Durable, Epochs, LinkId, LogRead, Recovered};

use crate::random::Random;
use crate::zab::state::State;

#[derive(Clone, Debug)]
pub enum Command {
    Append(Zxid, Bytes),
    Step(Step),
}

/// A command that is executed alone.
#[derive(Clone, Debug)]
pub enum Step {
    Accepted(Epoch),
    Current(Epoch),
    Truncate(Zxid),
    Install(LinkId, State),
}

/// A command that is being executed.
#[derive(Debug)]
enum Working {
    /// The records up to `written` have been written and are being synced.
    Sync {
        written: usize,
    },
    Step(Step),
}

/// How the machine stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The process is killed; its writes are still in the kernel's cache.
    Kill,
    /// The power fails: unsynced writes are lost in full or in part.
    PowerLoss,
}

#[derive(Debug)]
pub struct Disk {
    accepted: Epoch,
    current: Epoch,
    /// Snapshots, oldest first. The first one is of the empty state.
    snapshots: Vec<State>,
    /// The zxid before the first record of the log.
    log_base: Zxid,
    log: Vec<(Zxid, Bytes)>,
    /// The number of records that survive a power failure.
    synced: usize,
    queue: VecDeque<Command>,
    working: Option<Working>,
    /// The maximal number of records in one write.
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

    /// Starts the next command if there is one and none is in progress.
    pub fn begin(&mut self) -> bool {
        if self.working.is_some() {
            return false;
        }
        for _ in 0..self.batch_max {
            match self.queue.pop_front() {
                None => break,
                Some(Command::Append(zxid, txn)) => {
                    self.log.push((zxid, txn));
                    self.working = Some(Working::Sync { written: self.log.len() });
                }
                Some(Command::Step(step)) if self.working.is_none() => {
                    self.working = Some(Working::Step(step));
                    break;
                }
                Some(step) => {
                    self.queue.push_front(step);
                    break;
                }
            }
        }
        self.working.is_some()
    }

    /// Completes the command. Returns the report, and the state if it has changed.
    pub fn finish(&mut self) -> Option<(Durable, Option<State>)> {
        match self.working.take()? {
            Working::Sync { written } => {
                self.synced = written;
                let last = self.log.last().map_or(self.log_base, |(zxid, _)| *zxid);
                Some((Durable::Flushed(last), None))
            }
            Working::Step(step) => Some(match step {
                Step::Accepted(epoch) => {
                    self.accepted = epoch;
                    (Durable::AcceptedEpoch(epoch), None)
                }
                Step::Current(epoch) => {
                    self.current = epoch;
                    (Durable::CurrentEpoch(epoch), None)
                }
                Step::Truncate(zxid) => match self.truncate(zxid) {
                    Some(state) => (Durable::Truncated { zxid, state: () }, Some(state)),
                    None => (Durable::CannotTruncate(zxid), None),
                },
                Step::Install(_, state) => {
                    self.install(state, 3);
                    (Durable::Installed { zxid: state.last, state: () }, Some(state))
                }
            }),
        }
    }

    /// Truncates to `zxid` if the log contains it and a snapshot precedes it.
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

    /// Installs a leader's snapshot in three steps. `steps` is the number that is executed before
    /// the machine stops.
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

    /// Returns the newest snapshot, the state after the records that follow it, and these records.
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

    /// Stops the machine. The command in progress is completed, partly executed or lost.
    pub fn stop(&mut self, stop: Stop, random: &mut Random) {
        self.queue.clear();
        match self.working.take() {
            Some(Working::Step(Step::Install(_, state))) => self.install(state, random.below(4)),
            Some(Working::Step(step)) => {
                if random.chance(500) {
                    self.working = Some(Working::Step(step));
                    self.finish();
                }
            }
            Some(Working::Sync { .. }) | None => {}
        }
        let unsynced = self.log.len() - self.synced;
        // An unsynced write may have ended anywhere; a power failure may remove any suffix of it.
        let kept = match stop {
            Stop::Kill if random.chance(800) => unsynced,
            _ => random.below(unsynced as u64 + 1) as usize,
        };
        self.log.truncate(self.synced + kept);
    }

    /// Reads everything back. The log is synced first, so that cached records are durable before
    /// the server votes with them. The returned state is the newest snapshot; the log after it is
    /// in `Recovered`.
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

    /// Keeps only the newest snapshot and the log after it, as a purge does.
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

    /// Writes a snapshot of the running server. Removes old snapshots and, with `purge`, the log
    /// before them.
    pub fn snapshot(&mut self, state: State, purge: bool) {
        // A snapshot may contain only synced transactions: after a crash the log must still reach
        // its zxid.
        let synced = self.log[..self.synced].last().map_or(self.log_base, |(zxid, _)| *zxid);
        if self.snapshots.last().is_some_and(|last| last.last >= state.last) || state.last > synced
        {
            return;
        }
        self.snapshots.push(state);
        if self.snapshots.len() > 3 {
            self.snapshots.remove(0);
        }
        // A command in progress refers to records by their number.
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
