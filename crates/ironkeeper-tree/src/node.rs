//! A view of one node.

use std::fmt;
use std::sync::Arc;

use ironkeeper_proto::stat::{OwnerKind, Stat, StatPersisted};

use crate::acl_list::AclList;
use crate::arena::{Record, Slot};
use crate::block::SharedBytes;
use crate::tree::Tree;

/// A node of a borrowed tree, which therefore does not change.
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

    /// Returns a number that is unique among the nodes that exist at the same time.
    #[inline]
    pub fn number(&self) -> u32 {
        self.slot.0
    }

    /// Returns the stat as clients receive it.
    #[inline]
    pub fn stat(&self) -> Stat {
        let data_len = self.record.block().data_len();
        self.record.stat().visible(data_len, self.record.child_count, self.owner_kind())
    }

    /// Returns the stat as it is stored and hashed.
    #[inline]
    pub fn persisted(&self) -> StatPersisted {
        self.record.stat()
    }

    /// Returns the data. `None` is null data, which differs from empty data.
    #[inline]
    pub fn data(&self) -> Option<&'t [u8]> {
        self.record.block().data()
    }

    /// Returns the data in a handle that keeps it alive. `None` if the data is null.
    pub fn shared_data(&self) -> Option<SharedBytes> {
        SharedBytes::of(self.record.block())
    }

    /// Returns the access control list.
    #[inline]
    pub fn acl(&self) -> &'t Arc<AclList> {
        self.tree.acls.list(self.record.acl)
    }

    /// Returns the number of children.
    #[inline]
    pub fn child_count(&self) -> u32 {
        self.record.child_count
    }

    /// Returns the names of the children, newest first.
    pub fn children(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        let tree = self.tree;
        tree.child_slots(self.slot).map(|child| tree.arena[child].name())
    }

    /// Returns the number of nodes below this node.
    pub fn descendant_count(&self) -> usize {
        self.tree.below(self.slot).nodes
    }

    /// Returns the child with this name.
    #[inline]
    pub fn child(&self, name: &str) -> Option<Node<'t>> {
        self.tree.child(self.slot, name).map(|slot| Node::new(self.tree, slot))
    }

    /// Returns whether the node is ephemeral, a container or has a time to live.
    #[inline]
    pub fn owner_kind(&self) -> OwnerKind {
        self.tree.owner_kind(self.record.owner)
    }

    /// Returns the name; empty for the root.
    pub fn name(&self) -> &'t str {
        self.record.name()
    }

    /// Returns the path, built from the names on the way to the root.
    pub fn path(&self) -> String {
        self.tree.path_of(self.slot)
    }

    /// Returns the CRC of path and data, the input of
    /// [`digest::node_digest`](crate::digest::node_digest).
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
