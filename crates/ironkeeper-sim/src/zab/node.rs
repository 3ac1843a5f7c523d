//! One server: the ZAB machine, its disk, its clock, and a minimal driver.

use ironkeeper_proto::{ServerId, Zxid};
use ironkeeper_zab::{Ensemble, LinkId, Settings, Zab};

use crate::clock::Clock;
use crate::zab::disk::Disk;
use crate::zab::state::State;

/// The state that is lost when the process ends.
#[derive(Debug)]
pub struct Process {
    pub zab: Zab,
    pub state: State,
    /// The transactions applied in this boot: zxid and chain, the first one after `base`.
    pub applied: Vec<(Zxid, u64)>,
    /// The state before the first of them.
    pub base: State,
    /// A leader's snapshot that is received and not yet installed.
    pub received: Option<(LinkId, State)>,
    /// The time of the next scheduled wake-up.
    pub wake_us: u64,
    /// The number of outstanding `sync` requests.
    pub syncs: usize,
    /// The number of requests forwarded in this boot.
    pub forwarded: u64,
}

impl Process {
    /// Returns zxid and chain of the transaction with this number, if it was applied in this boot.
    pub fn at(&self, index: u64) -> Option<(Zxid, u64)> {
        if index == self.base.index {
            return Some((self.base.last, self.base.chain));
        }
        let at = index.checked_sub(self.base.index + 1)?;
        self.applied.get(at as usize).copied()
    }

    pub fn reset(&mut self, state: State) {
        // A truncation to a transaction of this boot keeps the transactions before it.
        if self.at(state.index) == Some((state.last, state.chain)) {
            self.applied.truncate((state.index - self.base.index) as usize);
        } else {
            self.applied.clear();
            self.base = state;
        }
        self.state = state;
    }
}

#[derive(Debug)]
pub struct Node {
    pub id: ServerId,
    pub disk: Disk,
    pub clock: Clock,
    /// The boot number.
    pub boot: u64,
    pub process: Option<Process>,
    pub paused_until_us: u64,
    /// The range of the duration of a disk command, in microseconds.
    pub disk_us: (u64, u64),
    /// The members in its configuration file.
    pub ensemble: Ensemble,
}

impl Node {
    pub fn start(&mut self, settings: &Settings, seed: u64) -> &mut Process {
        self.boot += 1;
        let (base, recovered) = self.disk.recover();
        let (mut state, mut applied) = (base, Vec::new());
        for (zxid, txn) in &recovered.history {
            state.apply(*zxid, txn);
            applied.push((*zxid, state.chain));
        }
        let zab = Zab::member(self.id, settings.clone(), self.ensemble.clone(), recovered, seed);
        self.process.insert(Process {
            zab,
            state,
            applied,
            base,
            received: None,
            wake_us: u64::MAX,
            syncs: 0,
            forwarded: 0,
        })
    }
}
