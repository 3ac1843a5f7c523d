//! Long lists of children, encoded once for all clients that read them at the same time.
//!
//! The names of children are scattered in memory, so encoding a list of a hundred thousand takes 4
//! to 10 milliseconds, with the gate locked. Clients that request the same list while it is being
//! sent to another client share its bytes. The list is freed when the last of them has sent it.

use std::sync::{Arc, PoisonError, Weak};

use bytes::Bytes;
use hashbrown::HashMap;
use ironkeeper_proto::{Put, Zxid};
use ironkeeper_tree::Node;

use crate::database::Hasher;
use crate::sync::Mutex;

/// A list of at least this many children is shared: it has more than 4 KiB.
const LONG_LIST_CHILDREN: u32 = 1000;
const BUFFER_BYTES: usize = 64 << 10;
/// The maximum number of lists in the table; further lists are not shared.
const LISTS_MAX: usize = 4096;

/// The encoded lists in use; see the module documentation.
#[derive(Debug)]
pub struct LongLists {
    lists: Mutex<HashMap<Version, Weak<LongList>, Hasher>>,
}

/// The encoded names, in buffers of bounded size: a single buffer would be copied repeatedly while
/// it grows.
#[derive(Debug)]
pub(crate) struct LongList(Vec<Vec<u8>>);

/// The key of a list: a node with its children at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Version {
    created: Zxid,
    /// A multi creates several nodes with one zxid.
    slot: u32,
    /// Every deletion of a child changes it, and every creation until the node has had 2^31 of
    /// them.
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
    pub(crate) fn new(hasher: Hasher) -> LongLists {
        LongLists { lists: Mutex::new(HashMap::with_hasher(hasher)) }
    }

    /// Returns whether a node has so many children that their list is shared.
    pub(crate) fn is_long(node: &Node<'_>) -> bool {
        node.child_count() >= LONG_LIST_CHILDREN
    }

    /// Returns the encoded list of a node's children.
    pub(crate) fn of(&self, node: &Node<'_>) -> Arc<LongList> {
        let version = Version::of(node);
        let lists = || self.lists.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = lists().get(&version).and_then(Weak::upgrade) {
            return list;
        }
        let list = Arc::new(LongList::new(node));
        let mut lists = lists();
        if lists.len() >= LISTS_MAX {
            lists.retain(|_, list| list.strong_count() > 0);
        }
        if lists.len() < LISTS_MAX {
            lists.insert(version, Arc::downgrade(&list));
        }
        list
    }
}

impl LongList {
    fn new(node: &Node<'_>) -> LongList {
        let mut buffers = Vec::new();
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        buffer.put_len(node.child_count() as usize);
        for name in node.children() {
            if buffer.len() + 4 + name.len() > BUFFER_BYTES {
                buffers.push(std::mem::replace(&mut buffer, Vec::with_capacity(BUFFER_BYTES)));
            }
            buffer.put_str(name);
        }
        buffer.shrink_to_fit();
        buffers.push(buffer);
        LongList(buffers)
    }

    pub(crate) fn len(&self) -> usize {
        self.0.iter().map(Vec::len).sum()
    }

    /// Returns the list for sending without a copy.
    pub(crate) fn pieces(self: &Arc<LongList>) -> impl Iterator<Item = Bytes> + '_ {
        let piece = |at| Bytes::from_owner(Piece { list: Arc::clone(self), at });
        (0..self.0.len()).map(piece)
    }
}

struct Piece {
    list: Arc<LongList>,
    at: usize,
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.list.0[self.at]
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
        let (world, lists) = (World::new(), LongLists::new(Hasher::with_seed(7)));
        assert!(LongLists::is_long(&world.wide()));
        let (first, second) = (lists.of(&world.wide()), lists.of(&world.wide()));
        assert!(Arc::ptr_eq(&first, &second));
        assert_eq!(first.0.iter().map(Vec::capacity).sum::<usize>(), first.len(), "no more memory");
        let pieces: Vec<Bytes> = first.pieces().collect();
        drop((first, second));
        let is_there = || lists.lists.lock().unwrap().values().any(|list| list.strong_count() > 0);
        assert!(is_there(), "it is on its way");
        let mut encoded = Vec::new();
        put_children(&world.wide(), &mut encoded);
        assert_eq!(pieces.concat(), encoded);
        drop(pieces);
        assert!(!is_there());
    }

    #[test]
    fn a_list_of_many_buffers_is_the_same_list() {
        let mut world = World::new();
        let long = "x".repeat(BUFFER_BYTES / 3);
        (0..10).for_each(|at| world.create(&format!("/wide/{long}{at}")));
        world.create(&format!("/wide/{}", "y".repeat(2 * BUFFER_BYTES)));
        let list = LongLists::new(Hasher::with_seed(7)).of(&world.wide());
        let mut encoded = Vec::new();
        put_children(&world.wide(), &mut encoded);
        assert!(list.0.len() > 5);
        assert_eq!((list.pieces().collect::<Vec<Bytes>>().concat(), list.len()), {
            let len = encoded.len();
            (encoded, len)
        });
    }

    #[test]
    fn a_list_is_never_older_than_the_node() {
        let (mut world, lists) = (World::new(), LongLists::new(Hasher::with_seed(7)));
        let before = lists.of(&world.wide());
        world.create("/wide/another");
        let with_another = lists.of(&world.wide());
        assert!(with_another.len() > before.len());
        let bytes = |list: &Arc<LongList>| list.pieces().collect::<Vec<Bytes>>().concat();
        world.apply(OpCode::Delete, &Txn::Delete { path: "/wide/0".into() });
        let without = lists.of(&world.wide());
        assert_ne!(bytes(&without), bytes(&with_another));
        assert_eq!(lists.lists.lock().unwrap().len(), 3);
    }
}
