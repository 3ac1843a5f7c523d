//! The tree: lookups, links between nodes, and totals.

use std::iter;

use ironkeeper_proto::acl::{self, Acl, AclVec, Perms};
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::stat::{OwnerKind, StatPersisted};
use ironkeeper_proto::{SessionId, Zxid};

use crate::acl_table::{AclHandle, AclTable};
use crate::arena::{Arena, Record, Slot};
use crate::block::Block;
use crate::digest;
use crate::index::Index;
use crate::node::Node;
use crate::owners::Owners;
use crate::quota::Quotas;
use crate::snapshot::Snapshots;
use crate::totals::{Below, Totals};

/// The settings of a tree that are not in its transactions.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeConfig {
    /// Whether TTL nodes are enabled (`extendedTypesEnabled`).
    pub ttl_enabled: bool,
    /// Whether the TTL encoding of 3.5.3 is recognised as well.
    pub emulate_353_ttl: bool,
    /// Protects the index from names chosen to collide. Does not affect results.
    pub hash_seed: u64,
}

/// The tree of znodes at one zxid.
///
/// One writer owns it; readers share it between writes.
#[derive(Debug)]
pub struct Tree {
    pub(crate) config: TreeConfig,
    pub(crate) arena: Arena,
    pub(crate) index: Index,
    pub(crate) acls: AclTable,
    pub(crate) owners: Owners,
    pub(crate) quotas: Quotas,
    pub(crate) totals: Totals,
    pub(crate) snapshots: Snapshots,
    pub(crate) last_zxid: Zxid,
    pub(crate) digest: u64,
    pub(crate) data_bytes: usize,
    /// The largest czxid loaded from a snapshot. Children with a larger czxid are listed in the
    /// order of creation; loaded children are listed in the order of the snapshot.
    pub(crate) in_order_after: Zxid,
}

impl Tree {
    /// Returns the tree of a new server.
    pub fn new(config: TreeConfig) -> Tree {
        let mut tree =
            Tree::with_root(config, &StatPersisted::default(), Some(b""), AclHandle::OPEN);
        let fresh = StatPersisted::default();
        let zookeeper = tree.attach(Slot::ROOT, "/zookeeper", Some(b""), AclHandle::OPEN, &fresh);
        tree.attach(zookeeper, "/zookeeper/quota", Some(b""), AclHandle::OPEN, &fresh);
        tree.add_config_node(zookeeper);
        tree
    }

    /// Returns a tree with only the root.
    pub(crate) fn with_root(
        config: TreeConfig,
        stat: &StatPersisted,
        data: Option<&[u8]>,
        acl: AclHandle,
    ) -> Tree {
        let mut tree = Tree {
            config,
            arena: Arena::default(),
            index: Index::new(config.hash_seed),
            acls: AclTable::new(config.hash_seed),
            owners: Owners::default(),
            quotas: Quotas::new(config.hash_seed),
            totals: Totals::new(config.hash_seed),
            snapshots: Snapshots::default(),
            last_zxid: Zxid::ZERO,
            digest: 0,
            // The root counts with the length of its visible path, 1.
            data_bytes: 1 + data.map_or(0, <[u8]>::len),
            in_order_after: Zxid::ZERO,
        };
        let record = Record::new(stat, Block::new("", data), acl, digest::prefix_crc("", data));
        tree.digest = record.digest();
        let root = tree.arena.insert(record);
        debug_assert_eq!(root, Slot::ROOT);
        tree
    }

    /// Adds `/zookeeper/config`, which all clients may read and none may write. Its aversion is -1,
    /// the value that results in Apache ZooKeeper from setting the ACL without a version check.
    pub(crate) fn add_config_node(&mut self, zookeeper: Slot) {
        let mut list = Vec::new();
        acl::encode_list(&[Acl::new(Perms::READ, "world", "anyone")], &mut list);
        let list = AclVec::decode(&mut Reader::new(&list)).ok().flatten();
        let acl = self.acls.acquire(list.expect("encoded just now"));
        let stat = StatPersisted { aversion: -1, ..StatPersisted::default() };
        self.attach(zookeeper, "/zookeeper/config", Some(b""), acl, &stat);
    }

    /// Returns a node. `""` is another name of the root; an invalid path is not found.
    #[inline]
    pub fn find(&self, path: &str) -> Option<Node<'_>> {
        self.slot_of(path).map(|slot| Node::new(self, slot))
    }

    /// Returns the zxid of the last transaction applied, of any kind.
    pub fn last_zxid(&self) -> Zxid {
        self.last_zxid
    }

    /// Returns the digest after the last transaction.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// Returns the count as Apache ZooKeeper reports it, which counts the root twice: a new tree
    /// has 5.
    pub fn node_count(&self) -> usize {
        self.arena.len() + 1
    }

    /// Returns the sum of the lengths of all paths and all data.
    pub fn data_bytes(&self) -> usize {
        self.data_bytes
    }

    /// Returns the number of ephemeral nodes.
    pub fn ephemeral_count(&self) -> usize {
        self.owners.ephemeral_count()
    }

    /// Returns the paths of a session's ephemerals.
    pub fn ephemerals(&self, session: SessionId) -> impl Iterator<Item = String> {
        self.owners.ephemerals(session).map(|slot| self.path_of(slot))
    }

    /// Returns the sessions that have ephemerals.
    pub fn ephemeral_sessions(&self) -> impl Iterator<Item = SessionId> {
        self.owners.sessions()
    }

    /// Returns all container nodes.
    pub fn container_paths(&self) -> impl Iterator<Item = Node<'_>> {
        self.owners.containers().map(|slot| Node::new(self, slot))
    }

    /// Returns all TTL nodes; none unless TTL nodes are enabled.
    pub fn ttl_nodes(&self) -> impl Iterator<Item = Node<'_>> {
        self.owners.ttls().map(|slot| Node::new(self, slot))
    }

    /// Returns the number of nodes without their access control list. It can be more than zero
    /// after a fuzzy snapshot of Apache ZooKeeper was loaded; replaying the log after it must bring
    /// it to zero. Until then such nodes grant no permissions.
    pub fn nodes_without_acl(&self) -> u64 {
        self.acls.missing_uses()
    }

    /// Interprets an ephemeral owner according to the configuration, which affects nothing else.
    #[inline]
    pub(crate) fn owner_kind(&self, owner: i64) -> OwnerKind {
        OwnerKind::of(owner, self.config.ttl_enabled, self.config.emulate_353_ttl)
    }

    #[inline]
    pub(crate) fn slot_of(&self, path: &str) -> Option<Slot> {
        if path.len() <= 1 {
            return (path.is_empty() || path == "/").then_some(Slot::ROOT);
        }
        // Only the root has an empty name, so paths with doubled or trailing slashes are not found.
        let (mut parent, mut rest) = (Slot::ROOT, path.strip_prefix('/')?);
        // For short names, `split` costs more than the search in the index.
        while let Some(end) = rest.bytes().position(|byte| byte == b'/') {
            parent = self.child(parent, &rest[..end])?;
            rest = &rest[end + 1..];
        }
        self.child(parent, rest)
    }

    #[inline]
    pub(crate) fn child(&self, parent: Slot, name: &str) -> Option<Slot> {
        self.index.find(&self.arena, self.index.hash(parent, name), parent, name)
    }

    pub(crate) fn path_of(&self, slot: Slot) -> String {
        if slot == Slot::ROOT {
            return "/".to_owned();
        }
        let mut names = Vec::new();
        let mut at = slot;
        while at != Slot::ROOT {
            let record = &self.arena[at];
            names.push(record.name());
            at = record.parent;
        }
        let mut path = String::with_capacity(names.iter().map(|name| name.len() + 1).sum());
        for name in names.into_iter().rev() {
            path.push('/');
            path.push_str(name);
        }
        path
    }

    pub(crate) fn child_slots(&self, parent: Slot) -> impl Iterator<Item = Slot> {
        iter::successors(self.arena[parent].first_child.some(), |&child| {
            self.arena[child].next.some()
        })
    }

    /// Returns the totals below a node.
    pub(crate) fn below(&self, slot: Slot) -> Below {
        if slot == Slot::ROOT {
            // No caller uses the bytes of the whole tree.
            return Below { nodes: self.arena.len() - 1, bytes: 0 };
        }
        self.totals.of(slot)
    }

    /// Returns a node and all nodes below it, parents first, without a stack: trees can be deep.
    pub(crate) fn subtree(&self, top: Slot) -> impl Iterator<Item = Slot> {
        iter::successors(Some(top), move |&slot| {
            if let Some(child) = self.arena[slot].first_child.some() {
                return Some(child);
            }
            let mut at = slot;
            while at != top {
                let record = &self.arena[at];
                if let Some(next) = record.next.some() {
                    return Some(next);
                }
                at = record.parent;
            }
            None
        })
    }

    /// Adds a node that does not exist yet below a parent that exists. Updates everything that
    /// depends on the node alone: links, index, owner sets, digest, totals.
    pub(crate) fn attach(
        &mut self,
        parent: Slot,
        path: &str,
        data: Option<&[u8]>,
        acl: AclHandle,
        stat: &StatPersisted,
    ) -> Slot {
        let name = ironkeeper_proto::path::name(path);
        let hash = self.index.hash(parent, name);
        debug_assert!(self.index.find(&self.arena, hash, parent, name).is_none());
        self.attach_hashed(hash, parent, path, data, acl, stat)
    }

    /// Does the same as [`Tree::attach`] for a caller that has already hashed and searched the
    /// name.
    pub(crate) fn attach_hashed(
        &mut self,
        hash: u64,
        parent: Slot,
        path: &str,
        data: Option<&[u8]>,
        acl: AclHandle,
        stat: &StatPersisted,
    ) -> Slot {
        let name = ironkeeper_proto::path::name(path);
        let mut record =
            Record::new(stat, Block::new(name, data), acl, digest::prefix_crc(path, data));
        if digest::counts(path) {
            self.digest = self.digest.wrapping_add(record.digest());
        }
        let sibling = self.arena[parent].first_child;
        record.parent = parent;
        record.next = sibling;
        let slot = self.arena.insert(record);
        self.snapshots.slot_taken(slot);
        if sibling != Slot::NONE {
            self.arena[sibling].prev = slot;
        }
        let parent = &mut self.arena[parent];
        parent.first_child = slot;
        parent.child_count += 1;
        self.index.insert(&self.arena, hash, slot);
        self.owners.insert(self.owner_kind(stat.ephemeral_owner), stat.ephemeral_owner, slot);
        let data_len = data.map_or(0, <[u8]>::len);
        self.data_bytes += path_chars(path) + data_len;
        self.totals.added(&self.arena, self.arena[slot].parent, data_len);
        slot
    }

    /// Removes a node without children: the reverse of [`Tree::attach`], except that the caller
    /// releases the ACL, which it may still have to read.
    pub(crate) fn detach(&mut self, slot: Slot, path: &str) -> AclHandle {
        let record = &self.arena[slot];
        debug_assert_eq!(record.child_count, 0, "{path}");
        if digest::counts(path) {
            self.digest = self.digest.wrapping_sub(record.digest());
        }
        let (parent, next, prev) = (record.parent, record.next, record.prev);
        let (owner, acl) = (record.owner, record.acl);
        let data_len = record.block().data_len();
        self.data_bytes -= path_chars(path) + data_len;
        self.totals.removed(&self.arena, parent, data_len);
        self.index.remove(self.index.hash(parent, record.name()), slot);
        self.snapshots.before_remove(&self.arena, slot);
        self.owners.remove(self.owner_kind(owner), owner, slot);
        match prev.some() {
            Some(prev) => self.arena[prev].next = next,
            None => self.arena[parent].first_child = next,
        }
        if let Some(next) = next.some() {
            self.arena[next].prev = prev;
        }
        self.arena[parent].child_count -= 1;
        drop(self.arena.remove(slot));
        acl
    }

    /// Returns the czxid of the oldest sibling of a node, if no scan of the siblings is needed: the
    /// node is the oldest itself, and the next one was not loaded from a snapshot.
    pub(crate) fn oldest_without(&self, slot: Slot) -> Option<Zxid> {
        let record = &self.arena[slot];
        let is_last = record.next == Slot::NONE;
        let next_oldest = record.prev.some().filter(|_| is_last)?;
        let czxid = self.arena[next_oldest].czxid;
        (czxid > self.in_order_after).then_some(czxid)
    }

    /// Changes the stored part of a node (not its links) and updates the digest. Every change of a
    /// node that is not deleted uses this function, so that snapshots can keep a pre-image.
    #[inline]
    pub(crate) fn change(&mut self, slot: Slot, path: &str, change: impl FnOnce(&mut Record)) {
        self.snapshots.before_change(&self.arena, slot);
        let record = &mut self.arena[slot];
        if digest::counts(path) {
            let before = record.digest();
            change(record);
            let after = record.digest();
            self.digest = self.digest.wrapping_sub(before).wrapping_add(after);
        } else {
            change(record);
        }
    }

    /// Replaces the data of a node; `also` changes its stat in the same step. Returns the old
    /// length.
    pub(crate) fn replace_data(
        &mut self,
        slot: Slot,
        path: &str,
        data: Option<&[u8]>,
        also: impl FnOnce(&mut Record),
    ) -> usize {
        let block = Block::new(self.arena[slot].name(), data);
        let prefix_crc = digest::prefix_crc(path, data);
        let old_len = self.arena[slot].block().data_len();
        self.data_bytes = self.data_bytes - old_len + block.data_len();
        let parent = self.arena[slot].parent;
        self.totals.resized(&self.arena, parent, old_len, block.data_len());
        self.change(slot, path, |record| {
            record.block = Some(block);
            record.prefix_crc = prefix_crc;
            also(record);
        });
        old_len
    }
}

/// Returns the length of a path as Apache ZooKeeper counts it: in UTF-16 units.
fn path_chars(path: &str) -> usize {
    if path.is_ascii() { path.len() } else { path.chars().map(char::len_utf16).sum() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_new_tree_is_the_one_apache_starts_with() {
        let tree = Tree::new(TreeConfig::default());
        assert_eq!(tree.digest(), 0x51c6_d660);
        assert_eq!((tree.node_count(), tree.data_bytes(), tree.ephemeral_count()), (5, 44, 0));
        assert_eq!(tree.last_zxid(), Zxid::ZERO);
        let root = tree.find("/").unwrap();
        assert_eq!((root.stat().cversion, root.stat().num_children), (-1, 1));
        assert_eq!(root.descendant_count(), 3);
        let zookeeper = tree.find("/zookeeper").unwrap();
        assert_eq!(zookeeper.stat().cversion, -2);
        assert_eq!(zookeeper.children().collect::<Vec<_>>(), ["config", "quota"]);
        let config = tree.find("/zookeeper/config").unwrap();
        assert_eq!((config.stat().version, config.stat().aversion), (0, -1));
        assert_eq!(config.acl().entries(), [Acl::new(Perms::READ, "world", "anyone")]);
        assert_eq!(config.data(), Some(&b""[..]));
        assert_eq!(config.path(), "/zookeeper/config");
    }

    #[test]
    fn only_exact_paths_are_found() {
        let tree = Tree::new(TreeConfig::default());
        assert_eq!(tree.find("").unwrap().path(), "/");
        for path in ["/zookeeper/quota", "/zookeeper", "/"] {
            assert_eq!(tree.find(path).unwrap().path(), path);
        }
        for path in
            ["zookeeper", "//", "/zookeeper/", "//zookeeper", "/zookeeper//quota", "x", "/x"]
        {
            assert!(tree.find(path).is_none(), "{path}");
        }
    }

    #[test]
    fn the_seed_changes_nothing_that_can_be_seen() {
        let one = Tree::new(TreeConfig { hash_seed: 1, ..TreeConfig::default() });
        let two = Tree::new(TreeConfig { hash_seed: 2, ..TreeConfig::default() });
        assert_eq!(one.digest(), two.digest());
        assert!(one.find("/zookeeper/config").is_some() && two.find("/zookeeper/config").is_some());
    }
}
