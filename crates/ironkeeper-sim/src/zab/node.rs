//! One server: the machine, its disk, its clock, and the little around it that the product's driver
//! does.

use ironkeeper_proto::{ServerId, Zxid};
use ironkeeper_zab::{Ensemble, LinkId, Settings, Zab};

use crate::clock::Clock;
use crate::zab::disk::Disk;
use crate::zab::state::State;

/// What is gone when the process is.
#[derive(Debug)]
pub struct Process {
    pub zab: Zab,
    pub state: State,
    /// The transactions applied in this life: zxid and chain, the first one behind `base`.
    pub applied: Vec<(Zxid, u64)>,
    /// The state before the first of them.
    pub base: State,
    /// A leader's tree, received and not yet installed.
    pub received: Option<(LinkId, State)>,
    /// When the next wake-up is planned.
    pub wake_us: u64,
    /// `sync`s asked for and not answered.
    pub syncs: usize,
    /// Requests forwarded in this life.
    pub forwarded: u64,
}

impl Process {
    /// Zxid and chain of the transaction with this number, if it was applied in this life.
    pub fn at(&self, index: u64) -> Option<(Zxid, u64)> {
        if index == self.base.index {
            return Some((self.base.last, self.base.chain));
        }
        let at = index.checked_sub(self.base.index + 1)?;
        self.applied.get(at as usize).copied()
    }

    pub fn reset(&mut self, state: State) {
        // Going back to what was applied in this life keeps what came before it.
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
    /// Counts its lives.
    pub boot: u64,
    pub process: Option<Process>,
    pub paused_until_us: u64,
    /// How long the disk takes, in microseconds.
    pub disk_us: (u64, u64),
    /// The members it knows of, as its configuration file has them.
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
