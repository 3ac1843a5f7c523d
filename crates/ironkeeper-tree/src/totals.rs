//! How much is below each node: so that counting a subtree does not take a walk through it.
//!
//! A node without children has no entry, nor has the root, below which everything is. A change
//! costs one entry for each node between the root and the changed one, that is, at most one for
//! each name in its path.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::arena::{Arena, Slot};

/// All nodes below one, and the bytes of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below {
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
}

/// So many tables share the entries: when one of them grows, few entries move while a write waits.
const TABLES: usize = 1024;

type Table = HashMap<Slot, Below, FixedState>;

#[derive(Debug)]
pub(crate) struct Totals {
    tables: Box<[Table]>,
}

impl Totals {
    pub(crate) fn new(seed: u64) -> Totals {
        let table = || HashMap::with_hasher(FixedState::with_seed(seed));
        Totals { tables: (0..TABLES).map(|_| table()).collect() }
    }

    fn table(&mut self, slot: Slot) -> &mut Table {
        &mut self.tables[slot.0 as usize % TABLES]
    }

    /// What is below a node that is not the root.
    pub(crate) fn of(&self, slot: Slot) -> Below {
        self.tables[slot.0 as usize % TABLES].get(&slot).copied().unwrap_or_default()
    }

    /// A node with so much data is new below `parent`.
    pub(crate) fn added(&mut self, arena: &Arena, parent: Slot, bytes: usize) {
        for at in below_root(arena, parent) {
            let below = self.table(at).entry(at).or_default();
            below.nodes += 1;
            below.bytes += bytes;
        }
    }

    /// A node with so much data is gone from below `parent`.
    pub(crate) fn removed(&mut self, arena: &Arena, parent: Slot, bytes: usize) {
        for at in below_root(arena, parent) {
            let below = self.table(at).get_mut(&at).expect("it has had a child");
            below.nodes -= 1;
            below.bytes -= bytes;
            if below.nodes == 0 {
                self.table(at).remove(&at);
            }
        }
    }

    /// A node below `parent` has other data.
    pub(crate) fn resized(&mut self, arena: &Arena, parent: Slot, old: usize, new: usize) {
        if old == new {
            return;
        }
        for at in below_root(arena, parent) {
            let below = self.table(at).get_mut(&at).expect("it has a child");
            below.bytes = below.bytes - old + new;
        }
    }
}

/// A node and those above it, without the root.
fn below_root(arena: &Arena, from: Slot) -> impl Iterator<Item = Slot> {
    let inner = |slot: Slot| (slot != Slot::ROOT && slot != Slot::NONE).then_some(slot);
    std::iter::successors(inner(from), move |&at| inner(arena[at].parent))
}
