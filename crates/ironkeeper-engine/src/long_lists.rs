//! Long lists of children, encoded once for all clients that read them at the same time.
//!
//! The names of children lie scattered in memory, so that a list of a hundred thousand takes ten
//! milliseconds to encode while the gate is held. Clients that ask for the same list while it is
//! on its way to another one share its bytes. When the last of them has sent it, it is gone.

use std::collections::VecDeque;
use std::sync::{Arc, PoisonError, Weak};

use bytes::Bytes;
use ironkeeper_proto::{Put, Zxid};
use ironkeeper_tree::Node;

use crate::sync::Mutex;

/// A list of at least so many children is shared.
const LONG_LIST_CHILDREN: u32 = 200;
/// How many lists are remembered.
const LISTS_MAX: usize = 64;

/// See the head of this file.
#[derive(Debug, Default)]
pub struct LongLists {
    /// Newest last.
    lists: Mutex<VecDeque<(Version, Weak<Vec<u8>>)>>,
}

/// A node with the children that it has at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Version {
    created: Zxid,
    /// A multi creates several nodes with one transaction id.
    slot: u32,
    /// Every delete of a child changes it, and every create until the node has had 2^31 of them.
    children_changed: Zxid,
    children: u32,
}

impl Version {
    fn of(node: &Node<'_>) -> Version {
        let stat = node.persisted();
        Version {
            created: stat.czxid,
            slot: node.number(),
            children_changed: stat.pzxid,
            children: node.child_count(),
        }
    }
}

impl LongLists {
    /// Whether a node has so many children that their list is shared.
    pub(crate) fn is_long(node: &Node<'_>) -> bool {
        node.child_count() >= LONG_LIST_CHILDREN
    }

    /// The encoded list of a node's children.
    pub(crate) fn of(&self, node: &Node<'_>) -> Bytes {
        let version = Version::of(node);
        let mut lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lists.iter().find(|(known, _)| *known == version);
        if let Some(list) = known.and_then(|(_, list)| list.upgrade()) {
            return Bytes::from_owner(Shared(list));
        }
        drop(lists);
        let mut encoded = Vec::new();
        put_children(node, &mut encoded);
        let list = Arc::new(encoded);
        lists = self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        lists.retain(|(known, list)| list.strong_count() > 0 && *known != version);
        if lists.len() == LISTS_MAX {
            lists.pop_front();
        }
        lists.push_back((version, Arc::downgrade(&list)));
        Bytes::from_owner(Shared(list))
    }
}

struct Shared(Arc<Vec<u8>>);

impl AsRef<[u8]> for Shared {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

pub(crate) fn put_children(node: &Node<'_>, out: &mut Vec<u8>) {
    out.put_len(node.child_count() as usize);
    node.children().for_each(|name| out.put_str(name));
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use ironkeeper_proto::txn::{CreateKind, CreateTxn};
    use ironkeeper_proto::{AclVec, OpCode, SessionId, Txn, TxnHeader};
    use ironkeeper_tree::{NoChanges, Tree, TreeConfig};

    use super::*;

    struct World {
        tree: Tree,
        zxid: i64,
    }

    impl World {
        fn new() -> World {
            let mut world = World { tree: Tree::new(TreeConfig::default()), zxid: 0 };
            world.create("/wide");
            (0..LONG_LIST_CHILDREN).for_each(|at| world.create(&format!("/wide/{at}")));
            world
        }

        fn apply(&mut self, op: OpCode, txn: &Txn<'_>) {
            self.zxid += 1;
            let (session, zxid) = (SessionId(1), Zxid(self.zxid));
            let header = TxnHeader { session, cxid: 0, zxid, time: 0, op };
            self.tree.apply(&header, txn, &mut NoChanges);
        }

        fn create(&mut self, path: &str) {
            let (kind, acl) = (CreateKind::Persistent, AclVec::OPEN);
            let parent_cversion = i32::try_from(self.zxid).unwrap() + 1;
            let create = CreateTxn { path: path.into(), data: None, acl, kind, parent_cversion };
            self.apply(OpCode::Create, &Txn::Create(create));
        }

        fn wide(&self) -> Node<'_> {
            self.tree.find("/wide").unwrap()
        }
    }

    #[test]
    fn clients_share_a_list_while_one_of_them_has_it() {
        let (world, lists) = (World::new(), LongLists::default());
        assert!(LongLists::is_long(&world.wide()));
        let (first, second) = (lists.of(&world.wide()), lists.of(&world.wide()));
        assert_eq!(first.as_ptr(), second.as_ptr());
        let mut encoded = Vec::new();
        put_children(&world.wide(), &mut encoded);
        assert_eq!(first, encoded);
        drop((first, second));
        let kept = lists.lists.lock().unwrap();
        assert!(kept.iter().all(|(_, list)| list.strong_count() == 0));
    }

    #[test]
    fn a_list_is_never_older_than_the_node() {
        let (mut world, lists) = (World::new(), LongLists::default());
        let before = lists.of(&world.wide());
        world.create("/wide/another");
        let with_another = lists.of(&world.wide());
        assert!(with_another.len() > before.len());
        world.apply(OpCode::Delete, &Txn::Delete { path: "/wide/0".into() });
        let without = lists.of(&world.wide());
        assert_ne!(without, with_another);
        assert_eq!(lists.lists.lock().unwrap().len(), 3);
    }
}
