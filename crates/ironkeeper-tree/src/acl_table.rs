//! Access control lists, each stored once.
//!
//! Nodes refer to a list by a small number. The number is also the list's id in snapshots, except
//! for the open list (used by nearly all nodes), which has id -1 in snapshots and is in no table
//! there.

use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use ironkeeper_proto::acl::{self, Acl, AclVec, Perms};
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::snapshot_record::OPEN_ACL_ID;

use crate::acl_list::AclList;

/// A node's reference to its list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct AclHandle(u32);

impl AclHandle {
    pub(crate) const OPEN: AclHandle = AclHandle(0);

    /// Returns the id of the list in a snapshot.
    pub(crate) fn id(self) -> i64 {
        if self == AclHandle::OPEN { OPEN_ACL_ID } else { i64::from(self.0) }
    }
}

#[derive(Debug)]
struct Entry {
    /// `None` if the number is free.
    list: Option<Arc<AclList>>,
    /// The number of nodes that refer to the list. Not counted for the open list, which is never
    /// removed.
    uses: u64,
    /// Whether this entry replaces a list that was missing from a snapshot.
    missing: bool,
}

#[derive(Debug)]
pub(crate) struct AclTable {
    entries: Vec<Entry>,
    free: Vec<AclHandle>,
    by_bytes: HashTable<AclHandle>,
    hasher: FixedState,
}

impl AclTable {
    pub(crate) fn new(seed: u64) -> AclTable {
        let open =
            Entry { list: Some(Arc::new(AclList::new(AclVec::OPEN))), uses: 0, missing: false };
        AclTable {
            entries: vec![open],
            free: Vec::new(),
            by_bytes: HashTable::new(),
            hasher: FixedState::with_seed(seed),
        }
    }

    #[inline]
    pub(crate) fn list(&self, handle: AclHandle) -> &Arc<AclList> {
        self.entries[handle.0 as usize].list.as_ref().expect("a list in use is not freed")
    }

    fn hash(&self, raw: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(raw);
        hasher.finish()
    }

    /// Returns the number of a list and counts one more use.
    pub(crate) fn acquire(&mut self, list: AclVec<'_>) -> AclHandle {
        if list.raw() == acl::OPEN_ENCODED {
            return AclHandle::OPEN;
        }
        let hash = self.hash(list.raw());
        let found = self.by_bytes.find(hash, |&handle| self.list(handle).raw() == list.raw());
        let handle = match found {
            Some(&handle) => handle,
            None => {
                let handle = self.add(Arc::new(AclList::new(list)), false);
                let (entries, hasher) = (&self.entries, &self.hasher);
                self.by_bytes.insert_unique(hash, handle, |&handle| {
                    let list = entries[handle.0 as usize].list.as_ref();
                    let mut hasher = hasher.build_hasher();
                    hasher.write(list.expect("only lists in use are found by bytes").raw());
                    hasher.finish()
                });
                handle
            }
        };
        self.entries[handle.0 as usize].uses += 1;
        handle
    }

    fn add(&mut self, list: Arc<AclList>, missing: bool) -> AclHandle {
        let entry = Entry { list: Some(list), uses: 0, missing };
        match self.free.pop() {
            Some(handle) => {
                self.entries[handle.0 as usize] = entry;
                handle
            }
            None => {
                self.entries.push(entry);
                AclHandle(u32::try_from(self.entries.len() - 1).expect("fewer lists than nodes"))
            }
        }
    }

    /// Adds a list that grants nothing, for nodes whose own list the snapshot does not contain. The
    /// entry is never shared with other nodes and has no use yet.
    pub(crate) fn add_missing(&mut self) -> AclHandle {
        let nobody = Acl::new(Perms(0), "world", "anyone");
        let mut encoded = Vec::new();
        acl::encode_list(&[nobody], &mut encoded);
        let list = AclVec::decode(&mut Reader::new(&encoded));
        let list = AclList::new(list.ok().flatten().expect("encoded just now"));
        self.add(Arc::new(list), true)
    }

    pub(crate) fn use_again(&mut self, handle: AclHandle) {
        self.entries[handle.0 as usize].uses += 1;
    }

    pub(crate) fn release(&mut self, handle: AclHandle) {
        if handle == AclHandle::OPEN {
            return;
        }
        let entry = &mut self.entries[handle.0 as usize];
        debug_assert!(entry.uses > 0, "a list is released as often as it was acquired");
        entry.uses -= 1;
        if entry.uses == 0 {
            self.forget(handle);
        }
    }

    fn forget(&mut self, handle: AclHandle) {
        let entry = &mut self.entries[handle.0 as usize];
        let Some(list) = entry.list.take() else { return };
        let indexed = !entry.missing;
        entry.missing = false;
        self.free.push(handle);
        if indexed {
            let hash = self.hash(list.raw());
            match self.by_bytes.find_entry(hash, |&other| other == handle) {
                Ok(entry) => drop(entry.remove()),
                Err(_) => unreachable!("every list but the open one is found by bytes"),
            }
        }
    }

    /// Returns the number of nodes whose list was missing from the snapshot and has not been
    /// replaced.
    pub(crate) fn missing_uses(&self) -> u64 {
        self.entries.iter().filter(|entry| entry.missing).map(|entry| entry.uses).sum()
    }

    /// Returns the lists that are written to a snapshot.
    pub(crate) fn listed(&self) -> impl Iterator<Item = (AclHandle, &Arc<AclList>)> {
        self.entries
            .iter()
            .enumerate()
            .skip(1)
            .filter_map(|(number, entry)| Some((AclHandle(number as u32), entry.list.as_ref()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(entries: &[Acl]) -> Vec<u8> {
        let mut bytes = Vec::new();
        acl::encode_list(entries, &mut bytes);
        bytes
    }

    fn vec(bytes: &[u8]) -> AclVec<'_> {
        AclVec::decode(&mut Reader::new(bytes)).unwrap().unwrap()
    }

    #[test]
    fn equal_lists_share_a_number_until_nobody_uses_it() {
        let mut table = AclTable::new(7);
        let read = encoded(&[Acl::new(Perms::READ, "world", "anyone")]);
        let write = encoded(&[Acl::new(Perms::WRITE, "ip", "10.0.0.1")]);
        assert_eq!(table.acquire(AclVec::OPEN), AclHandle::OPEN);
        let first = table.acquire(vec(&read));
        assert_eq!(table.acquire(vec(&read)), first);
        let second = table.acquire(vec(&write));
        assert_ne!(first, second);
        assert_eq!((AclHandle::OPEN.id(), first.id(), second.id()), (-1, 1, 2));
        table.release(first);
        assert_eq!(table.listed().count(), 2);
        table.release(first);
        assert_eq!(table.listed().count(), 1);
        assert_eq!(table.acquire(vec(&write)), second);
        let third = encoded(&[]);
        assert_eq!(table.acquire(vec(&third)), first, "the freed number is used again");
    }

    #[test]
    fn a_missing_list_grants_nothing_and_is_counted() {
        let mut table = AclTable::new(0);
        let missing = table.add_missing();
        table.use_again(missing);
        assert!(!table.list(missing).allows_anyone(Perms::ALL));
        assert_eq!(table.missing_uses(), 1);
        let same_bytes = encoded(&[Acl::new(Perms(0), "world", "anyone")]);
        assert_ne!(table.acquire(vec(&same_bytes)), missing);
        table.release(missing);
        assert_eq!(table.missing_uses(), 0);
    }
}
