//! Exact snapshots of one moment, taken during writes.
//!
//! A walk visits slots in order, in slices between writes. Three rules keep it exact:
//!
//! - Before a slot that was not emitted yet changes, its content is kept (a *pre-image*).
//! - Before a node is deleted, its parent and name are kept even if the node was emitted: a
//!   descendant that existed at the beginning and is emitted later needs them for its path.
//! - A slot that was free at the beginning is marked as emitted when a new node takes it.
//!
//! Loaders require parents before children, so emitting a node first emits those of its ancestors
//! that were not emitted; one bit per slot records that. The bits are atomic because the walker has
//! the tree only shared; the lock between writers and readers also orders the accesses to the bits.
//!
//! A snapshot costs one bit per slot and the pre-images of nodes that change during the walk.
//! Without a running snapshot a write costs one branch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::snapshot_record;
use ironkeeper_proto::stat::StatPersisted;

use crate::acl_list::AclList;
use crate::acl_table::AclHandle;
use crate::arena::{Arena, Record, Slot};
use crate::block::Block;
use crate::tree::Tree;

/// The progress of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slice {
    /// Nodes are left.
    More,
    /// All nodes have been emitted.
    Done,
    /// The tree that began the walk was replaced by another one: the walk can never finish.
    Lost,
}

/// The cursor of one running snapshot. Its owner passes it to [`Tree::snapshot_slice`] until that
/// returns [`Slice::Done`], then to [`Tree::end_snapshot`]. If a walk is dropped instead, the tree
/// discards its part at the next transaction.
#[derive(Debug)]
pub struct SnapshotWalk {
    zxid: Zxid,
    digest: u64,
    node_count: usize,
    acls: Vec<(AclHandle, Arc<AclList>)>,
    /// Shared with the tree's part of the walk; also identifies the walk.
    emitted: Arc<Emitted>,
    cursor: u32,
    /// The path of the last node's parent: the next node is often a sibling.
    parent: Slot,
    parent_path: String,
}

impl SnapshotWalk {
    /// Returns the zxid of the last transaction in the snapshot.
    pub fn zxid(&self) -> Zxid {
        self.zxid
    }

    /// Returns the tree's digest at that transaction.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the number of node records in all slices.
    pub fn node_count(&self) -> usize {
        self.node_count
    }

    /// Writes the table of access control lists: count and entries. It precedes the nodes.
    pub fn encode_head(&self, out: &mut Vec<u8>) {
        out.put_len(self.acls.len());
        for (handle, list) in &self.acls {
            snapshot_record::encode_acl(handle.id(), list.as_vec(), out);
        }
    }
}

/// The memory that a finished snapshot retains. Dropping it frees memory in proportion to the
/// changes during the walk, so the writer can pass it to another thread.
#[derive(Debug)]
pub struct SnapshotRemains {
    _running: Option<Running>,
}

/// One bit for each slot below the arena's limit when the snapshot began, in use or free.
#[derive(Debug)]
struct Emitted {
    limit: u32,
    bits: Box<[AtomicU64]>,
}

impl Emitted {
    fn new(limit: u32) -> Emitted {
        let words = limit.div_ceil(u64::BITS);
        Emitted { limit, bits: (0..words).map(|_| AtomicU64::new(0)).collect() }
    }

    fn contains(&self, slot: Slot) -> bool {
        self.bits[(slot.0 / u64::BITS) as usize].load(Ordering::Relaxed) & bit(slot) != 0
    }

    fn insert(&self, slot: Slot) {
        self.bits[(slot.0 / u64::BITS) as usize].fetch_or(bit(slot), Ordering::Relaxed);
    }
}

fn bit(slot: Slot) -> u64 {
    1 << (slot.0 % u64::BITS)
}

/// A node as it was when the snapshot began. For a node that was already emitted, only the parent
/// and the name are needed, and only these are meaningful.
#[derive(Debug)]
struct PreImage {
    stat: StatPersisted,
    acl: AclHandle,
    parent: Slot,
    block: Block,
}

/// The tree's part of a walk.
#[derive(Debug)]
struct Running {
    emitted: Arc<Emitted>,
    before: HashMap<u32, PreImage, FixedState>,
}

impl Running {
    /// Returns whether the slot existed when the snapshot began and has no pre-image yet.
    fn is_untouched(&self, slot: Slot) -> bool {
        slot.0 < self.emitted.limit && !self.before.contains_key(&slot.0)
    }

    fn keep(&mut self, record: &Record, slot: Slot, block: Block) {
        let image = PreImage { stat: record.stat(), acl: record.acl, parent: record.parent, block };
        self.before.insert(slot.0, image);
    }

    /// Returns the slot's content at the beginning of the snapshot, `None` if it was free.
    fn view<'t>(&'t self, arena: &'t Arena, slot: Slot) -> Option<View<'t>> {
        if let Some(image) = self.before.get(&slot.0) {
            return Some(View {
                stat: image.stat,
                acl: image.acl,
                parent: image.parent,
                block: &image.block,
            });
        }
        let record = &arena[slot];
        let block = record.block.as_ref()?;
        Some(View { stat: record.stat(), acl: record.acl, parent: record.parent, block })
    }
}

struct View<'t> {
    stat: StatPersisted,
    acl: AclHandle,
    parent: Slot,
    block: &'t Block,
}

/// The running snapshots; usually none, never many.
#[derive(Debug, Default)]
pub(crate) struct Snapshots {
    running: Vec<Running>,
}

impl Snapshots {
    /// Keeps a pre-image. Must be called before the stored part of a node changes.
    #[inline]
    pub(crate) fn before_change(&mut self, arena: &Arena, slot: Slot) {
        if !self.running.is_empty() {
            self.keep_changing(arena, slot);
        }
    }

    #[cold]
    fn keep_changing(&mut self, arena: &Arena, slot: Slot) {
        for running in &mut self.running {
            if running.is_untouched(slot) && !running.emitted.contains(slot) {
                let record = &arena[slot];
                running.keep(record, slot, record.block().clone());
            }
        }
    }

    /// Keeps a pre-image. Must be called before a node is removed from the arena.
    #[inline]
    pub(crate) fn before_remove(&mut self, arena: &Arena, slot: Slot) {
        if !self.running.is_empty() {
            self.keep_removed(arena, slot);
        }
    }

    #[cold]
    fn keep_removed(&mut self, arena: &Arena, slot: Slot) {
        for running in &mut self.running {
            if running.is_untouched(slot) {
                let record = &arena[slot];
                let block = if running.emitted.contains(slot) {
                    Block::new(record.name(), None)
                } else {
                    record.block().clone()
                };
                running.keep(record, slot, block);
            }
        }
    }

    /// Marks a slot as emitted if it has no pre-image: it was free when the snapshot began. Must be
    /// called when a new node has taken a slot.
    #[inline]
    pub(crate) fn slot_taken(&mut self, slot: Slot) {
        for running in &self.running {
            if running.is_untouched(slot) {
                running.emitted.insert(slot);
            }
        }
    }

    /// Drops the tree's part of walks that were dropped, so that they do not collect pre-images
    /// forever.
    #[inline]
    pub(crate) fn forget_abandoned(&mut self) {
        if !self.running.is_empty() {
            self.running.retain(|running| Arc::strong_count(&running.emitted) > 1);
        }
    }

    fn of(&self, walk: &SnapshotWalk) -> Option<&Running> {
        self.running.iter().find(|running| Arc::ptr_eq(&running.emitted, &walk.emitted))
    }
}

impl Tree {
    /// Begins a snapshot of the present tree. Costs one bit per slot and one reference per distinct
    /// access control list.
    pub fn begin_snapshot(&mut self) -> SnapshotWalk {
        self.snapshots.forget_abandoned();
        let emitted = Arc::new(Emitted::new(self.arena.limit()));
        self.snapshots.running.push(Running {
            emitted: emitted.clone(),
            before: HashMap::with_hasher(FixedState::with_seed(self.config.hash_seed)),
        });
        SnapshotWalk {
            zxid: self.last_zxid,
            digest: self.digest,
            node_count: self.arena.len(),
            acls: self.acls.listed().map(|(handle, list)| (handle, list.clone())).collect(),
            emitted,
            cursor: 0,
            parent: Slot::NONE,
            parent_path: String::new(),
        }
    }

    /// Appends the next node records, parents first: about `node_max` of them, or until `byte_max`
    /// is exceeded. Each call visits at least one node.
    pub fn snapshot_slice(
        &self,
        walk: &mut SnapshotWalk,
        out: &mut Vec<u8>,
        node_max: usize,
        byte_max: usize,
    ) -> Slice {
        let Some(running) = self.snapshots.of(walk) else {
            return Slice::Lost;
        };
        let byte_end = out.len().saturating_add(byte_max);
        let mut budget = node_max.max(1);
        // Ancestors that must be emitted first, nearest first.
        let mut waiting = Vec::new();
        while walk.cursor < running.emitted.limit {
            let slot = Slot(walk.cursor);
            if !running.emitted.contains(slot) && running.view(&self.arena, slot).is_some() {
                waiting.clear();
                let mut at = slot;
                while at != Slot::NONE && !running.emitted.contains(at) {
                    waiting.push(at);
                    at = self.parent_at_begin(running, at);
                }
                while let Some(slot) = waiting.pop() {
                    self.emit(running, walk, slot, out);
                    budget = budget.saturating_sub(1);
                    if (budget == 0 || out.len() >= byte_end) && !waiting.is_empty() {
                        // The cursor stays: the next slice starts here again and finds these
                        // ancestors emitted.
                        return Slice::More;
                    }
                }
            } else {
                budget -= 1;
            }
            walk.cursor += 1;
            if (budget == 0 || out.len() >= byte_end) && walk.cursor < running.emitted.limit {
                return Slice::More;
            }
        }
        Slice::Done
    }

    /// Ends a walk, finished or not. The caller decides when to drop the result.
    pub fn end_snapshot(&mut self, walk: SnapshotWalk) -> SnapshotRemains {
        let running = &mut self.snapshots.running;
        let at = running.iter().position(|other| Arc::ptr_eq(&other.emitted, &walk.emitted));
        drop(walk);
        SnapshotRemains { _running: at.map(|at| running.swap_remove(at)) }
    }

    fn parent_at_begin(&self, running: &Running, slot: Slot) -> Slot {
        let view = running.view(&self.arena, slot);
        view.expect("nodes and their ancestors stay known until the walk ends").parent
    }

    fn emit(&self, running: &Running, walk: &mut SnapshotWalk, slot: Slot, out: &mut Vec<u8>) {
        let view = running.view(&self.arena, slot).expect("only nodes that were there are emitted");
        running.emitted.insert(slot);
        if slot == Slot::ROOT {
            out.put_str("");
        } else {
            if walk.parent != view.parent {
                walk.parent = view.parent;
                self.write_path_at_begin(running, view.parent, &mut walk.parent_path);
            }
            let parent_len = walk.parent_path.len();
            walk.parent_path.push('/');
            walk.parent_path.push_str(view.block.name());
            out.put_str(&walk.parent_path);
            walk.parent_path.truncate(parent_len);
        }
        out.put_buf(view.block.data());
        out.put_i64(view.acl.id());
        view.stat.encode(out);
    }

    /// Writes the path that the node had when the snapshot began; empty for the root.
    fn write_path_at_begin(&self, running: &Running, slot: Slot, path: &mut String) {
        let mut names = Vec::new();
        let mut at = slot;
        while at != Slot::ROOT {
            let view = running.view(&self.arena, at);
            let view = view.expect("nodes and their ancestors stay known until the walk ends");
            names.push(view.block.name());
            at = view.parent;
        }
        path.clear();
        for name in names.into_iter().rev() {
            path.push('/');
            path.push_str(name);
        }
    }
}
