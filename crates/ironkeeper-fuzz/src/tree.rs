//! The tree under a sequence of decoded transactions.

use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::snapshot_record::{END_PATH, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, Zxid};
use ironkeeper_tree::{Loader, NoChanges, Slice, Tree, TreeConfig};

/// The input is a sequence of transactions, each after its length (two bytes). A snapshot walk
/// starts in the middle and is compared with the tree at its start.
pub(crate) fn tree(bytes: &[u8]) {
    let Some((flags, mut rest)) = bytes.split_first() else { return };
    let config =
        TreeConfig { ttl_enabled: flags & 1 != 0, emulate_353_ttl: flags & 2 != 0, hash_seed: 7 };
    let walk_at = usize::from(flags >> 2);
    let mut tree = Tree::new(config);
    let mut walk = None;
    let mut records = Vec::new();
    for step in 0.. {
        if step == walk_at {
            walk = Some(tree.begin_snapshot());
        }
        let Some((len, behind)) = rest.split_first_chunk() else { break };
        let len = usize::from(u16::from_be_bytes(*len)).min(behind.len());
        let (txn, behind) = behind.split_at(len);
        rest = behind;
        if let Ok(full) = FullTxn::decode(txn) {
            tree.apply(&full.header, &full.txn, &mut NoChanges);
        }
        if let Some(walk) = &mut walk {
            tree.snapshot_slice(walk, &mut records, 1, usize::MAX);
        }
    }
    check(&mut tree, config);
    let Some(mut walk) = walk else { return };
    while tree.snapshot_slice(&mut walk, &mut records, usize::MAX, usize::MAX) == Slice::More {}
    let (zxid, digest, nodes) = (walk.zxid(), walk.digest(), walk.node_count());
    let mut head = Vec::new();
    walk.encode_head(&mut head);
    drop(tree.end_snapshot(walk));
    let loaded = load(config, &head, &records, zxid);
    assert_eq!(loaded.digest(), digest);
    let mut reader = Reader::new(&records);
    let read = std::iter::from_fn(|| (!reader.is_empty()).then(|| next_node(&mut reader)));
    assert_eq!(read.count(), nodes);
}

/// Compares the tree with what is loaded from its snapshot.
fn check(tree: &mut Tree, config: TreeConfig) {
    let mut walk = tree.begin_snapshot();
    let (mut head, mut records) = (Vec::new(), Vec::new());
    walk.encode_head(&mut head);
    while tree.snapshot_slice(&mut walk, &mut records, 3, 100) == Slice::More {}
    drop(tree.end_snapshot(walk));
    let loaded = load(config, &head, &records, tree.last_zxid());
    assert_eq!(loaded.digest(), tree.digest());
    assert_eq!(loaded.node_count(), tree.node_count());
    assert_eq!(loaded.data_bytes(), tree.data_bytes());
    assert_eq!(loaded.ephemeral_count(), tree.ephemeral_count());
    let mut reader = Reader::new(&records);
    while !reader.is_empty() {
        let node = next_node(&mut reader);
        let path = if node.path.is_empty() { END_PATH } else { &*node.path };
        let found = tree.find(path).expect("a node of the snapshot is in the tree");
        assert_eq!((found.data(), found.persisted()), (node.data, node.stat));
        assert_eq!(found.path(), path);
        assert_eq!(found.children().count(), found.child_count() as usize);
        let twin = loaded.find(path).expect("a node of the snapshot is in the loaded tree");
        assert_eq!((twin.stat(), twin.acl().entries()), (found.stat(), found.acl().entries()));
    }
}

fn load(config: TreeConfig, head: &[u8], records: &[u8], zxid: Zxid) -> Tree {
    let mut loader = Loader::new(config);
    let mut reader = Reader::new(head);
    for _ in 0..reader.i32().expect("a table of lists begins with its length") {
        let id = reader.i64().expect("an entry begins with its id");
        let list = AclVec::decode(&mut reader).expect("an entry contains a list");
        loader.add_acl(id, list.expect("the tree writes no null lists"));
    }
    let mut reader = Reader::new(records);
    while !reader.is_empty() {
        loader.add_node(&next_node(&mut reader)).expect("a snapshot of a tree is a tree");
    }
    loader.finish(zxid).expect("a snapshot of a tree is a tree")
}

fn next_node<'a>(reader: &mut Reader<'a>) -> SnapshotNode<'a> {
    let path = reader.str().expect("a record begins with its path");
    SnapshotNode::decode_body(path, reader).expect("a record is complete")
}
