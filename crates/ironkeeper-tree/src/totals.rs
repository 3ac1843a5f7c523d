//! The size of the subtree below each node, so that counting it needs no traversal.
//!
//! A node without children has no entry. The root has none either: the whole tree is below it. A
//! change costs one entry for each node between the root and the changed node, that is, at most one
//! for each name in its path.

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use crate::arena::{Arena, Slot};

/// The number of all nodes below a node, and the bytes of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below {
    pub(crate) nodes: usize,
    pub(crate) bytes: usize,
}

/// The entries are divided among this many tables, so that few entries move when one table grows
/// and a write waits for it.
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

    /// Returns the totals below a node other than the root.
    pub(crate) fn of(&self, slot: Slot) -> Below {
        self.tables[slot.0 as usize % TABLES].get(&slot).copied().unwrap_or_default()
    }

    /// Counts a node with `bytes` of data that was created below `parent`.
    pub(crate) fn added(&mut self, arena: &Arena, parent: Slot, bytes: usize) {
        for at in below_root(arena, parent) {
            let below = self.table(at).entry(at).or_default();
            below.nodes += 1;
            below.bytes += bytes;
        }
    }

    /// Subtracts a node with `bytes` of data that was deleted below `parent`.
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

    /// Counts a change of the data of a node below `parent`.
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

/// Returns a node and its ancestors, without the root.
fn below_root(arena: &Arena, from: Slot) -> impl Iterator<Item = Slot> {
    let inner = |slot: Slot| (slot != Slot::ROOT && slot != Slot::NONE).then_some(slot);
    std::iter::successors(inner(from), move |&at| inner(arena[at].parent))
}
