//! A look at one node.

use std::fmt;
use std::sync::Arc;

use ironkeeper_proto::stat::{OwnerKind, Stat, StatPersisted};

use crate::acl_list::AclList;
use crate::arena::{Record, Slot};
use crate::block::SharedBytes;
use crate::tree::Tree;

/// A node of a tree that is not changing while it is looked at.
#[derive(Clone, Copy)]
pub struct Node<'t> {
    tree: &'t Tree,
    slot: Slot,
    record: &'t Record,
}

impl<'t> Node<'t> {
    #[inline]
    pub(crate) fn new(tree: &'t Tree, slot: Slot) -> Node<'t> {
        Node { tree, slot, record: &tree.arena[slot] }
    }

    /// A number that no other node of the tree has at the same time.
    #[inline]
    pub fn number(&self) -> u32 {
        self.slot.0
    }

    /// The stat as clients see it.
    #[inline]
    pub fn stat(&self) -> Stat {
        let data_len = self.record.block().data_len();
        self.record.stat().visible(data_len, self.record.child_count, self.owner_kind())
    }

    /// The stat as it is stored and hashed.
    #[inline]
    pub fn persisted(&self) -> StatPersisted {
        self.record.stat()
    }

    /// `None` is null, which is not the same as empty.
    #[inline]
    pub fn data(&self) -> Option<&'t [u8]> {
        self.record.block().data()
    }

    /// The data, kept alive by the result. `None` if it is null.
    pub fn shared_data(&self) -> Option<SharedBytes> {
        SharedBytes::of(self.record.block())
    }

    #[inline]
    pub fn acl(&self) -> &'t Arc<AclList> {
        self.tree.acls.list(self.record.acl)
    }

    #[inline]
    pub fn child_count(&self) -> u32 {
        self.record.child_count
    }

    /// The names of the children, newest first.
    pub fn children(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        let tree = self.tree;
        tree.child_slots(self.slot).map(|child| tree.arena[child].name())
    }

    /// How many nodes are below this one.
    pub fn descendant_count(&self) -> usize {
        self.tree.below(self.slot).nodes
    }

    /// The child of this name.
    #[inline]
    pub fn child(&self, name: &str) -> Option<Node<'t>> {
        self.tree.child(self.slot, name).map(|slot| Node::new(self.tree, slot))
    }

    #[inline]
    pub fn owner_kind(&self) -> OwnerKind {
        self.tree.owner_kind(self.record.owner)
    }

    /// Empty for the root.
    pub fn name(&self) -> &'t str {
        self.record.name()
    }

    /// Rebuilt from the names on the way to the root.
    pub fn path(&self) -> String {
        self.tree.path_of(self.slot)
    }

    /// What [`digest::node_digest`](crate::digest::node_digest) starts from.
    #[inline]
    pub fn prefix_crc(&self) -> u32 {
        self.record.prefix_crc
    }
}

impl fmt::Debug for Node<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("path", &self.path()).field("stat", &self.persisted()).finish()
    }
}
