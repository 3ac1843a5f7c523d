//! The index from (parent, name) to the child's slot.
//!
//! A hash table that grows by one bucket at a time (linear hashing): no create waits for a copy of
//! the table, no outgrown copies waste memory, and the load factor is the same at every size. The
//! table holds slots and one byte of each hash, which avoids nearly all reads of nodes that do not
//! match. Names and parents are read from the nodes.
//!
//! ```text
//! bucket, one cache line | 12 hash bytes | 12 slots | overflow bucket |
//! ```
//! With 9 nodes per bucket on average the table takes about 8.5 bytes per node. A lookup reads one
//! cache line, or two for one node in twelve.

use std::hash::{BuildHasher, Hasher};

use foldhash::quality::FixedState;

use crate::arena::{Arena, Slot};

const WIDTH: usize = 12;
/// Nodes per bucket above which the table grows. A larger value would save little memory and add
/// overflow buckets to lookups.
const FILL: usize = 9;
/// Chunks of 128 KiB, which allocators provide without much waste.
const CHUNK_BITS: u32 = 11;
const CHUNK_LEN: usize = 1 << CHUNK_BITS;
/// The end of a list of buckets.
const END: u32 = u32::MAX;

#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u8; WIDTH],
    /// Filled from the front; unused entries are `NONE`.
    slots: [Slot; WIDTH],
    overflow: u32,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Bucket = Bucket { tags: [0; WIDTH], slots: [Slot::NONE; WIDTH], overflow: END };

    fn len(&self) -> usize {
        self.slots.iter().position(|slot| *slot == Slot::NONE).unwrap_or(WIDTH)
    }

    /// Stores a slot; returns false if the bucket is full.
    fn try_put(&mut self, tag: u8, slot: Slot) -> bool {
        let len = self.len();
        if len == WIDTH {
            return false;
        }
        self.tags[len] = tag;
        self.slots[len] = slot;
        true
    }

    /// Removes a slot; returns whether it was present.
    fn remove(&mut self, slot: Slot) -> bool {
        let Some(at) = self.slots.iter().position(|other| *other == slot) else { return false };
        let last = self.len() - 1;
        self.tags.swap(at, last);
        self.slots.swap(at, last);
        self.slots[last] = Slot::NONE;
        true
    }
}

/// A list of buckets that never move.
#[derive(Debug, Default)]
struct Buckets {
    chunks: Vec<Box<[Bucket; CHUNK_LEN]>>,
    len: u32,
}

impl Buckets {
    fn push(&mut self) -> u32 {
        assert!(self.len < END, "there are fewer buckets than nodes");
        let at = self.len;
        if at as usize == self.chunks.len() << CHUNK_BITS {
            let chunk: Box<[Bucket]> = vec![Bucket::EMPTY; CHUNK_LEN].into_boxed_slice();
            self.chunks.push(chunk.try_into().expect("as many buckets as a chunk has"));
        }
        self.len += 1;
        at
    }
}

impl std::ops::Index<u32> for Buckets {
    type Output = Bucket;

    #[inline]
    fn index(&self, at: u32) -> &Bucket {
        &self.chunks[(at >> CHUNK_BITS) as usize][at as usize & (CHUNK_LEN - 1)]
    }
}

impl std::ops::IndexMut<u32> for Buckets {
    #[inline]
    fn index_mut(&mut self, at: u32) -> &mut Bucket {
        &mut self.chunks[(at >> CHUNK_BITS) as usize][at as usize & (CHUNK_LEN - 1)]
    }
}

#[derive(Debug)]
pub(crate) struct Index {
    /// Addressed by hash.
    primary: Buckets,
    /// Addressed by other buckets. Free buckets form a list linked through `overflow`.
    spare: Buckets,
    free_spare: u32,
    /// The number of nodes in the table.
    len: usize,
    hasher: FixedState,
}

impl Index {
    pub(crate) fn new(seed: u64) -> Index {
        let mut primary = Buckets::default();
        primary.push();
        Index {
            primary,
            spare: Buckets::default(),
            free_spare: END,
            len: 0,
            hasher: FixedState::with_seed(seed),
        }
    }

    #[inline]
    pub(crate) fn hash(&self, parent: Slot, name: &str) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write_u32(parent.0);
        hasher.write(name.as_bytes());
        hasher.finish()
    }

    /// Returns the bucket of a hash at the present size. Buckets below `len - 2^n`, where `2^n` is
    /// the largest power of two not above `len`, are already split into two.
    #[inline]
    fn home(&self, hash: u64) -> u32 {
        let half = 1 << self.primary.len.ilog2();
        let at = hash as u32 & (2 * half - 1);
        if at < self.primary.len { at } else { at & (half - 1) }
    }

    #[inline(always)]
    pub(crate) fn find(&self, arena: &Arena, hash: u64, parent: Slot, name: &str) -> Option<Slot> {
        let tag = tag(hash);
        let mut bucket = &self.primary[self.home(hash)];
        loop {
            for at in 0..WIDTH {
                if bucket.tags[at] == tag && bucket.slots[at] != Slot::NONE {
                    let record = &arena[bucket.slots[at]];
                    if record.parent == parent && record.name() == name {
                        return Some(bucket.slots[at]);
                    }
                }
            }
            if bucket.overflow == END {
                return None;
            }
            bucket = &self.spare[bucket.overflow];
        }
    }

    /// Adds a node that is already linked and not yet in the index.
    pub(crate) fn insert(&mut self, arena: &Arena, hash: u64, slot: Slot) {
        self.put(self.home(hash), tag(hash), slot);
        self.len += 1;
        if self.len > self.primary.len as usize * FILL && self.primary.len < END {
            self.split(arena);
        }
    }

    fn put(&mut self, home: u32, tag: u8, slot: Slot) {
        if self.primary[home].try_put(tag, slot) {
            return;
        }
        let first = self.primary[home].overflow;
        let mut at = first;
        while at != END {
            if self.spare[at].try_put(tag, slot) {
                return;
            }
            at = self.spare[at].overflow;
        }
        let spare = self.take_spare();
        self.spare[spare].overflow = first;
        self.spare[spare].try_put(tag, slot);
        self.primary[home].overflow = spare;
    }

    fn take_spare(&mut self) -> u32 {
        if self.free_spare == END {
            return self.spare.push();
        }
        let spare = self.free_spare;
        self.free_spare = self.spare[spare].overflow;
        self.spare[spare] = Bucket::EMPTY;
        spare
    }

    fn release_spare(&mut self, spare: u32) {
        self.spare[spare].overflow = self.free_spare;
        self.free_spare = spare;
    }

    /// Adds a bucket and moves to it the nodes that hash to it, all from one other bucket.
    fn split(&mut self, arena: &Arena) {
        let new = self.primary.push();
        // The nodes of the new address are in the bucket of that address without its highest bit.
        let old = new & !(1 << new.ilog2());
        let mut bucket = std::mem::replace(&mut self.primary[old], Bucket::EMPTY);
        loop {
            // The nodes are far apart in memory. Reading all of them before using any lets the
            // cache misses overlap; reading them one by one would wait for each miss.
            let len = bucket.len();
            let nodes: [(Slot, &str); WIDTH] = std::array::from_fn(|at| {
                let record = (at < len).then(|| &arena[bucket.slots[at]]);
                record.map_or((Slot::NONE, ""), |record| (record.parent, record.name()))
            });
            let hashes = nodes.map(|(parent, name)| self.hash(parent, name));
            for (at, hash) in hashes.into_iter().enumerate().take(len) {
                self.put(self.home(hash), bucket.tags[at], bucket.slots[at]);
            }
            let next = bucket.overflow;
            if next == END {
                return;
            }
            bucket = self.spare[next].clone();
            self.release_spare(next);
        }
    }

    pub(crate) fn remove(&mut self, hash: u64, slot: Slot) {
        let home = self.home(hash);
        let mut removed = self.primary[home].remove(slot);
        let mut at = self.primary[home].overflow;
        while !removed && at != END {
            removed = self.spare[at].remove(slot);
            at = self.spare[at].overflow;
        }
        assert!(removed, "every node but the root is in the index");
        self.len -= 1;
        self.shorten(home);
    }

    /// Moves the first overflow bucket into the primary bucket if all of it fits.
    fn shorten(&mut self, home: u32) {
        let first = self.primary[home].overflow;
        if first == END {
            return;
        }
        let (len, spare_len) = (self.primary[home].len(), self.spare[first].len());
        if len + spare_len > WIDTH {
            return;
        }
        let spare = self.spare[first].clone();
        let bucket = &mut self.primary[home];
        bucket.tags[len..len + spare_len].copy_from_slice(&spare.tags[..spare_len]);
        bucket.slots[len..len + spare_len].copy_from_slice(&spare.slots[..spare_len]);
        bucket.overflow = spare.overflow;
        self.release_spare(first);
    }
}

/// Returns bits of the hash that do not select the bucket.
#[inline]
fn tag(hash: u64) -> u8 {
    (hash >> 56) as u8
}

#[cfg(test)]
mod tests {
    use ironkeeper_proto::stat::StatPersisted;
    use proptest::prelude::*;

    use super::*;
    use crate::acl_table::AclHandle;
    use crate::arena::Record;
    use crate::block::Block;

    fn add(arena: &mut Arena, index: &mut Index, parent: Slot, name: &str) -> Slot {
        let block = Block::new(name, None);
        let mut record = Record::new(&StatPersisted::default(), block, AclHandle::OPEN, 0);
        record.parent = parent;
        let slot = arena.insert(record);
        let hash = index.hash(parent, name);
        index.insert(arena, hash, slot);
        slot
    }

    fn find(arena: &Arena, index: &Index, parent: Slot, name: &str) -> Option<Slot> {
        index.find(arena, index.hash(parent, name), parent, name)
    }

    #[test]
    fn nodes_are_found_at_every_size_and_gone_when_removed() {
        let (mut arena, mut index) = (Arena::default(), Index::new(3));
        let names: Vec<String> = (0..20_000).map(|n| format!("n{n}")).collect();
        let mut slots = Vec::new();
        for (n, name) in names.iter().enumerate() {
            slots.push(add(&mut arena, &mut index, Slot(n as u32 % 7), name));
        }
        assert_eq!(index.primary.len as usize, 20_000 / FILL + 1);
        for (n, name) in names.iter().enumerate() {
            assert_eq!(find(&arena, &index, Slot(n as u32 % 7), name), Some(slots[n]));
            assert_eq!(find(&arena, &index, Slot(n as u32 % 7 + 1), name), None);
        }
        for (n, name) in names.iter().enumerate() {
            index.remove(index.hash(Slot(n as u32 % 7), name), slots[n]);
            assert_eq!(find(&arena, &index, Slot(n as u32 % 7), name), None);
        }
        assert_eq!(index.len, 0);
        let mut in_use = (0..index.primary.len).map(|at| &index.primary[at]);
        assert!(in_use.all(|bucket| bucket.overflow == END && bucket.len() == 0));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(50))]

        #[test]
        fn the_index_is_a_set(ops in prop::collection::vec((any::<bool>(), 0..400u32), 1..1500)) {
            let (mut arena, mut index) = (Arena::default(), Index::new(0));
            let mut there = std::collections::BTreeMap::new();
            for (insert, n) in ops {
                let name = n.to_string();
                prop_assert_eq!(find(&arena, &index, Slot(1), &name), there.get(&n).copied());
                if insert && !there.contains_key(&n) {
                    there.insert(n, add(&mut arena, &mut index, Slot(1), &name));
                } else if let Some(slot) = there.remove(&n) {
                    index.remove(index.hash(Slot(1), &name), slot);
                    arena.remove(slot);
                }
            }
            for (n, slot) in &there {
                prop_assert_eq!(find(&arena, &index, Slot(1), &n.to_string()), Some(*slot));
            }
            prop_assert_eq!(index.len, there.len());
        }
    }
}
