//! Tests of snapshots that a leader sends to a learner.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ironkeeper_engine::snapshot::{LEARNER_SIGNATURE, Slice};
use ironkeeper_node::{Recovery, ServerKind, recover};
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::snapshot_record::{END_PATH, SnapshotNode};
use ironkeeper_proto::stat::StatPersisted;
use ironkeeper_proto::{Packet, Zxid};
use ironkeeper_tree::TreeConfig;
use ironkeeper_zab::{Input, LinkId, LinkOp};

use super::hosts::{Host, leader_and_learner};
use crate::peer::tree_out::tests::Slices;

/// Returns a snapshot in slices that end at arbitrary bytes, with `signature` after its last node.
fn tree(nodes: usize, data_len: usize, signature: &str) -> VecDeque<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.put_i32(0);
    bytes.put_i32(0);
    let data = vec![7; data_len];
    for index in 0..nodes {
        let path = if index == 0 { String::new() } else { format!("/node-{index}") };
        let stat = StatPersisted::default();
        SnapshotNode { path: path.into(), data: Some(&data), acl: -1, stat }.encode(&mut bytes);
    }
    bytes.put_str(END_PATH);
    bytes.put_str(signature);
    bytes.chunks(10_007).map(<[u8]>::to_vec).collect()
}

fn begin(leader: &Host, to_learner: LinkId, slices: VecDeque<Vec<u8>>) -> Arc<AtomicUsize> {
    let ended = Arc::new(AtomicUsize::new(0));
    let source = Slices { slices, last: Slice::Done, ended: Arc::clone(&ended) };
    leader.links.perform(LinkOp::Send { link: to_learner, packet: Packet::Snap { zxid: Zxid(9) } });
    leader.links.send_snapshot(to_learner, Box::new(source));
    leader.perform(LinkOp::Send { link: to_learner, packet: Packet::UpToDate });
    ended
}

/// Returns the next input other than [`Input::TreeMoved`], whose number depends on the length of
/// the snapshot.
fn behind_the_tree(host: &mut Host) -> Input {
    loop {
        match host.next() {
            Input::TreeMoved { .. } => {}
            other => return other,
        }
    }
}

#[test]
fn a_tree_arrives_between_the_packets_around_it_and_becomes_a_snapshot() {
    let (leader, to_learner, mut learner, link) = leader_and_learner();
    let ended = begin(&leader, to_learner, tree(3000, 1000, LEARNER_SIGNATURE));
    let snap = Packet::Snap { zxid: Zxid(9) };
    assert_eq!(learner.next(), Input::Packet { link, packet: snap });
    learner.perform(LinkOp::ReceiveSnapshot { link });
    assert_eq!(behind_the_tree(&mut learner), Input::SnapshotReceived { link });
    assert_eq!(learner.next(), Input::Packet { link, packet: Packet::UpToDate });
    assert_eq!(ended.load(Ordering::SeqCst), 1);

    let received = learner.links.take_snapshot(link).expect("it is kept");
    assert!(learner.links.take_snapshot(link).is_none(), "it is taken once");
    assert_eq!(received.zxid(), Zxid(9));
    learner.store.install_snapshot(Zxid(9), received.into_writer()).unwrap();
    let kind = ServerKind::Standalone;
    let Recovery { recovered, .. } =
        recover(&learner.store, TreeConfig::default(), kind, || {}).unwrap();
    assert_eq!(recovered.state.applied(), Zxid(9));
    for index in 1..3000 {
        let node = recovered.state.tree.find(&format!("/node-{index}")).expect("it was sent");
        assert_eq!(node.data(), Some(&[7; 1000][..]));
    }
}

#[test]
fn a_tree_that_was_not_taken_goes_with_its_link() {
    let (leader, to_learner, mut learner, link) = leader_and_learner();
    begin(&leader, to_learner, tree(3, 3, LEARNER_SIGNATURE));
    learner.next();
    learner.perform(LinkOp::ReceiveSnapshot { link });
    assert_eq!(learner.next(), Input::SnapshotReceived { link });
    learner.hang_up(link);
    assert!(learner.links.take_snapshot(link).is_none());
    let files: Vec<_> = std::fs::read_dir(learner.dir.path().join("version-2")).unwrap().collect();
    assert_eq!(files.len(), 1, "only the lock is left: {files:?}");
}

#[test]
fn a_tree_nobody_reads_goes_back_when_the_link_ends() {
    let (mut leader, to_learner, mut learner, link) = leader_and_learner();
    let ended = begin(&leader, to_learner, tree(30_000, 1000, LEARNER_SIGNATURE));
    assert!(matches!(learner.next(), Input::Packet { packet: Packet::Snap { .. }, .. }));
    // The learner never reads the snapshot, which is larger than the buffers of the kernel.
    learner.hang_up(link);
    assert_eq!(behind_the_tree(&mut leader), Input::Closed { link: to_learner });
    assert_eq!(ended.load(Ordering::SeqCst), 1);
}

#[test]
fn a_tree_without_its_signature_is_refused() {
    let (leader, to_learner, mut learner, link) = leader_and_learner();
    begin(&leader, to_learner, tree(3, 3, "BenWasNotHere"));
    learner.next();
    learner.perform(LinkOp::ReceiveSnapshot { link });
    assert_eq!(learner.next(), Input::Closed { link });
    assert!(learner.links.take_snapshot(link).is_none());
}

#[test]
fn a_tree_that_is_exchanged_while_it_is_sent_ends_the_link() {
    let (mut leader, to_learner, mut learner, link) = leader_and_learner();
    let slices = tree(30, 3, LEARNER_SIGNATURE);
    let source = Slices { slices, last: Slice::Lost, ended: Arc::default() };
    leader.perform(LinkOp::Send { link: to_learner, packet: Packet::Snap { zxid: Zxid(9) } });
    leader.links.send_snapshot(to_learner, Box::new(source));
    assert_eq!(leader.next(), Input::Closed { link: to_learner });
    learner.next();
    learner.perform(LinkOp::ReceiveSnapshot { link });
    assert_eq!(learner.next(), Input::Closed { link });
}
