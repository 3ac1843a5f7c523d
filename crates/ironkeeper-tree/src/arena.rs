//! The storage of nodes: chunks of fixed-size records that never move.
//!
//! Growing adds a chunk and does not touch the others, so no create pays for copying the tree.
//! Freed slots are used again, last freed first. Chunks are never freed.

use ironkeeper_proto::Zxid;
use ironkeeper_proto::stat::StatPersisted;

use crate::acl_table::AclHandle;
use crate::block::Block;

/// Chunks of 192 KiB; much larger chunks leave gaps in the pages of common allocators.
const CHUNK_BITS: u32 = 11;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;

/// The position of a node in the arena, stable for the node's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Slot(pub(crate) u32);

impl Slot {
    /// The root is created first and never deleted.
    pub(crate) const ROOT: Slot = Slot(0);
    /// No node: the root's parent, or the end of a list of siblings.
    pub(crate) const NONE: Slot = Slot(u32::MAX);

    #[inline]
    pub(crate) fn some(self) -> Option<Slot> {
        (self != Slot::NONE).then_some(self)
    }
}

/// A node as it is stored. The fields of the stat are listed one by one, because `StatPersisted`
/// would be padded.
#[derive(Debug)]
pub(crate) struct Record {
    pub(crate) czxid: Zxid,
    pub(crate) mzxid: Zxid,
    pub(crate) pzxid: Zxid,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    /// The raw ephemeral owner, with container and TTL marks.
    pub(crate) owner: i64,
    /// `None` in a slot that is not in use.
    pub(crate) block: Option<Block>,
    pub(crate) version: i32,
    pub(crate) cversion: i32,
    pub(crate) aversion: i32,
    pub(crate) parent: Slot,
    /// Children form a doubly linked list, newest first.
    pub(crate) first_child: Slot,
    pub(crate) next: Slot,
    pub(crate) prev: Slot,
    pub(crate) child_count: u32,
    pub(crate) acl: AclHandle,
    /// CRC-32 of path and data, see the `digest` module.
    pub(crate) prefix_crc: u32,
}

const _: () = assert!(size_of::<Record>() == 96);

impl Record {
    const VACANT: Record = Record {
        czxid: Zxid::ZERO,
        mzxid: Zxid::ZERO,
        pzxid: Zxid::ZERO,
        ctime: 0,
        mtime: 0,
        owner: 0,
        block: None,
        version: 0,
        cversion: 0,
        aversion: 0,
        parent: Slot::NONE,
        first_child: Slot::NONE,
        next: Slot::NONE,
        prev: Slot::NONE,
        child_count: 0,
        acl: AclHandle::OPEN,
        prefix_crc: 0,
    };

    /// Returns a node without parent, children and siblings; the caller links it.
    pub(crate) fn new(
        stat: &StatPersisted,
        block: Block,
        acl: AclHandle,
        prefix_crc: u32,
    ) -> Record {
        Record {
            czxid: stat.czxid,
            mzxid: stat.mzxid,
            pzxid: stat.pzxid,
            ctime: stat.ctime,
            mtime: stat.mtime,
            owner: stat.ephemeral_owner,
            block: Some(block),
            version: stat.version,
            cversion: stat.cversion,
            aversion: stat.aversion,
            acl,
            prefix_crc,
            ..Record::VACANT
        }
    }

    #[inline]
    pub(crate) fn stat(&self) -> StatPersisted {
        StatPersisted {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.cversion,
            aversion: self.aversion,
            ephemeral_owner: self.owner,
            pzxid: self.pzxid,
        }
    }

    #[inline]
    pub(crate) fn block(&self) -> &Block {
        self.block.as_ref().expect("only slots in use are reached by links and index")
    }

    #[inline]
    pub(crate) fn name(&self) -> &str {
        self.block().name()
    }

    #[inline]
    pub(crate) fn digest(&self) -> u64 {
        u64::from(crate::digest::node_digest(self.prefix_crc, &self.stat()))
    }
}

#[derive(Debug, Default)]
pub(crate) struct Arena {
    chunks: Vec<Box<[Record; CHUNK_LEN]>>,
    /// Slots below this were used at least once.
    limit: u32,
    free: Vec<Slot>,
}

impl Arena {
    /// Returns the first slot that was never used.
    pub(crate) fn limit(&self) -> u32 {
        self.limit
    }

    /// Returns the number of slots in use.
    pub(crate) fn len(&self) -> usize {
        self.limit as usize - self.free.len()
    }

    pub(crate) fn insert(&mut self, record: Record) -> Slot {
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None => self.grow(),
        };
        self[slot] = record;
        slot
    }

    fn grow(&mut self) -> Slot {
        assert!(self.limit < Slot::NONE.0, "the tree holds as many nodes as slots have numbers");
        let slot = Slot(self.limit);
        if self.limit as usize == self.chunks.len() << CHUNK_BITS {
            // Collected on the heap: the array is too large for the stack.
            let records: Box<[Record]> = (0..CHUNK_LEN).map(|_| Record::VACANT).collect();
            self.chunks.push(records.try_into().expect("as many records as a chunk has"));
        }
        self.limit += 1;
        slot
    }

    /// Removes a node and returns its block, so that the caller decides when the block is dropped.
    pub(crate) fn remove(&mut self, slot: Slot) -> Block {
        let record = std::mem::replace(&mut self[slot], Record::VACANT);
        self.free.push(slot);
        record.block.expect("a slot is removed once")
    }
}

impl std::ops::Index<Slot> for Arena {
    type Output = Record;

    #[inline]
    fn index(&self, slot: Slot) -> &Record {
        &self.chunks[(slot.0 >> CHUNK_BITS) as usize][slot.0 as usize & (CHUNK_LEN - 1)]
    }
}

impl std::ops::IndexMut<Slot> for Arena {
    #[inline]
    fn index_mut(&mut self, slot: Slot) -> &mut Record {
        &mut self.chunks[(slot.0 >> CHUNK_BITS) as usize][slot.0 as usize & (CHUNK_LEN - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str) -> Record {
        Record::new(&StatPersisted::default(), Block::new(name, None), AclHandle::OPEN, 0)
    }

    #[test]
    fn freed_slots_are_used_again_before_the_arena_grows() {
        let mut arena = Arena::default();
        let slots: Vec<Slot> = (0..5000).map(|n| arena.insert(record(&n.to_string()))).collect();
        assert_eq!(slots.last(), Some(&Slot(4999)));
        assert_eq!(arena[Slot(4097)].name(), "4097");
        assert_eq!(arena.remove(Slot(17)).name(), "17");
        assert!(arena[Slot(17)].block.is_none());
        assert_eq!((arena.len(), arena.limit()), (4999, 5000));
        assert_eq!(arena.insert(record("again")), Slot(17));
        assert_eq!(arena.insert(record("more")), Slot(5000));
    }
}
