//! A log that Apache ZooKeeper 3.9.5 wrote, applied to our tree. Each record except errors carries
//! the digest that Apache computed after it.

use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{OpCode, Zxid};
use ironkeeper_tree::{NoChanges, Outcome, Tree, TreeConfig};

/// One record per line: all kinds of creates, ephemerals deleted with their session, a sequence,
/// multis that succeed and fail, quotas, a container that is deleted when empty, data on the root.
const LOG: &str = include_str!("apache_log.hex");

fn records() -> Vec<Vec<u8>> {
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    LOG.lines().map(|line| line.as_bytes().chunks(2).map(byte).collect()).collect()
}

#[test]
fn every_transaction_leads_to_the_digest_apache_came_to() {
    let mut tree = Tree::new(TreeConfig { ttl_enabled: true, ..TreeConfig::default() });
    let mut seen = Vec::new();
    for record in records() {
        let full = FullTxn::decode(&record).unwrap();
        let applied = tree.apply(&full.header, &full.txn, &mut NoChanges);
        assert_ne!(applied.outcome, Outcome::Ignored, "{:?}", full.txn);
        assert_eq!(tree.last_zxid(), full.header.zxid);
        match full.digest {
            Some(digest) => assert_eq!(tree.digest(), digest.tree_digest, "{:?}", full.txn),
            None => assert_eq!(full.header.op, OpCode::Error),
        }
        seen.push(full.header.op);
    }
    for op in [
        OpCode::CreateSession,
        OpCode::CloseSession,
        OpCode::Error,
        OpCode::Create,
        OpCode::Create2,
        OpCode::CreateContainer,
        OpCode::CreateTtl,
        OpCode::Delete,
        OpCode::DeleteContainer,
        OpCode::SetData,
        OpCode::SetAcl,
        OpCode::Multi,
    ] {
        assert!(seen.contains(&op), "{op:?}");
    }
    assert_eq!(tree.last_zxid(), Zxid(LOG.lines().count() as i64));
    assert_eq!(tree.ephemeral_count(), 0);
    let stats = tree.find("/zookeeper/quota/app/zookeeper_stats").unwrap();
    assert_eq!(stats.data(), Some(&b"count=4,bytes=28"[..]));
}

/// Replaying the whole log over a tree that already contains it is the worst case of a fuzzy
/// snapshot. Apart from nodes that the log creates and deletes again, such as ephemerals of closed
/// sessions, the result must be the same.
#[test]
fn replay_over_its_own_result_changes_nothing() {
    let mut tree = Tree::new(TreeConfig { ttl_enabled: true, ..TreeConfig::default() });
    let records = records();
    let mut digests = Vec::new();
    for _ in 0..2 {
        for record in &records {
            let full = FullTxn::decode(record).unwrap();
            tree.apply(&full.header, &full.txn, &mut NoChanges);
        }
        digests.push((tree.digest(), tree.node_count(), tree.data_bytes()));
    }
    assert_eq!(digests[0], digests[1]);
}
