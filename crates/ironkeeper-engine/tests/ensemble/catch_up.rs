//! Synchronization of members that were down with the history of the others.

use ironkeeper_proto::OpCode;

use crate::cluster::{Cluster, Node};
use crate::world::*;

/// Creates `count` nodes through the leader.
fn write(cluster: &mut Cluster, prefix: &str, count: usize) {
    let leader = cluster.leader();
    let mut client = cluster.at(leader).connect();
    for at in 0..count {
        let body = create(&format!("/{prefix}-{at}"), b"data", Persistent);
        client.send(&mut cluster.at(leader), OpCode::Create, &body);
        if at % 50 == 0 {
            cluster.settle();
        }
    }
    cluster.settle();
    assert_eq!(client.heard(&cluster.at(leader)).len(), count);
}

fn all_serve(cluster: &mut Cluster) {
    let running = cluster.nodes.iter().filter(|node| node.engine.is_some()).count();
    cluster.until("all serve", |cluster| cluster.serving() == running);
}

#[test]
fn a_little_behind_gets_the_difference() {
    let mut cluster = Cluster::three();
    let away = cluster.follower();
    cluster.kill(away);
    write(&mut cluster, "missed", 20);
    cluster.start(away);
    all_serve(&mut cluster);
    cluster.assert_same();
    assert_eq!(cluster.data("/missed-19"), vec![Some("data".to_owned()); 3]);
    assert!(cluster.nodes[away].disk.log_len() > 20, "its own log goes on");
}

#[test]
fn too_far_behind_for_memory_gets_the_difference_from_the_log() {
    let few = |node: &mut Node| node.settings.history_count_max = 5;
    let mut cluster = Cluster::elected(3, 0, few);
    let away = cluster.follower();
    write(&mut cluster, "before", 5);
    cluster.kill(away);
    write(&mut cluster, "missed", 50);
    let log_len = cluster.nodes[away].disk.log_len();
    cluster.start(away);
    all_serve(&mut cluster);
    cluster.assert_same();
    assert!(cluster.nodes[away].disk.log_len() > log_len + 50, "no tree took the log's place");
}

/// ZOOKEEPER-1319, 1367.
#[test]
fn too_far_behind_for_the_log_gets_the_tree_with_sessions_and_all() {
    let few = |node: &mut Node| node.settings.history_count_max = 5;
    let mut cluster = Cluster::elected(3, 0, few);
    let away = cluster.follower();
    cluster.kill(away);
    write(&mut cluster, "missed", 100);
    let leader = cluster.leader();
    let mut client = cluster.at(leader).connect();
    client.create(&mut cluster.at(leader), "/ephemeral", Ephemeral).unwrap();
    for node in 0..3 {
        cluster.snapshot(node);
        cluster.nodes[node].disk.purge();
    }
    cluster.start(away);
    all_serve(&mut cluster);
    cluster.assert_same();
    assert_eq!(cluster.data("/ephemeral"), vec![Some(String::new()); 3]);
    assert!(cluster.nodes[away].disk.log_len() < 5, "its log begins behind the tree");
    // A restart recovers the same state.
    cluster.kill(away);
    cluster.start(away);
    all_serve(&mut cluster);
    cluster.assert_same();
}

/// ZOOKEEPER-3104.
#[test]
fn a_tree_on_its_way_is_that_of_one_moment_whatever_is_written_meanwhile() {
    let few = |node: &mut Node| node.settings.history_count_max = 5;
    let mut cluster = Cluster::elected(5, 0, few);
    let leader = cluster.leader();
    let away: Vec<usize> = (0..5).filter(|node| *node != leader).take(2).collect();
    for node in &away {
        cluster.kill(*node);
    }
    write(&mut cluster, "missed", 600);
    for node in 0..5 {
        cluster.snapshot(node);
        cluster.nodes[node].disk.purge();
    }
    // Two learners need a snapshot at different moments, and neither receives it before all writes
    // are done.
    let mut client = cluster.at(leader).connect();
    cluster.nodes[leader].hold_trees = true;
    for (round, node) in away.iter().enumerate() {
        cluster.start(*node);
        cluster
            .until("a tree is wanted", |cluster| cluster.nodes[leader].unsent.len() == round + 1);
        let at = &mut cluster.at(leader);
        for path in 0..300 {
            let path = format!("/missed-{}", path + round * 300);
            match path.len() % 2 {
                0 => client.delete(at, &path).unwrap(),
                _ => drop(client.set(at, &path, b"other").unwrap()),
            }
            client.create(at, &format!("{path}-new"), Persistent).unwrap();
        }
        cluster.snapshot(leader);
    }
    cluster.send_trees(leader);
    cluster.nodes[leader].hold_trees = false;
    all_serve(&mut cluster);
    cluster.assert_same();
}

/// Returns a cluster whose first leader was killed with three transactions in its log that no other
/// server has received.
fn with_a_dead_leader_that_had_more() -> (Cluster, usize) {
    let mut cluster = Cluster::three();
    let leader = cluster.leader();
    write(&mut cluster, "kept", 3);
    let mut client = cluster.at(leader).connect();
    cluster.network.is_held = true;
    for at in 0..3 {
        let body = create(&format!("/lost-{at}"), b"", Persistent);
        client.send(&mut cluster.at(leader), OpCode::Create, &body);
    }
    cluster.settle();
    cluster.network.lose_messages();
    cluster.kill(leader);
    cluster.network.is_held = false;
    all_serve(&mut cluster);
    (cluster, leader)
}

#[test]
fn what_only_a_dead_leader_had_is_cut_from_its_log() {
    let (mut cluster, dead) = with_a_dead_leader_that_had_more();
    let log_len = cluster.nodes[dead].disk.log_len();
    cluster.start(dead);
    all_serve(&mut cluster);
    assert_eq!(cluster.nodes[dead].disk.log_len(), log_len - 3);
    assert_eq!(cluster.data("/lost-0"), vec![None; 3]);
    write(&mut cluster, "new", 3);
    assert_eq!(cluster.data("/new-2"), vec![Some("data".to_owned()); 3]);
    cluster.assert_same();
}

#[test]
fn what_only_a_dead_leader_had_is_replaced_if_there_is_a_new_history_already() {
    let (mut cluster, dead) = with_a_dead_leader_that_had_more();
    write(&mut cluster, "new", 3);
    cluster.start(dead);
    all_serve(&mut cluster);
    assert_eq!(cluster.data("/lost-0"), vec![None; 3]);
    assert_eq!(cluster.data("/new-2"), vec![Some("data".to_owned()); 3]);
    cluster.assert_same();
}

#[test]
fn a_snapshot_under_way_is_given_up_when_the_tree_is_exchanged() {
    let mut cluster = Cluster::three();
    let leader = cluster.leader();
    write(&mut cluster, "kept", 300);
    cluster.nodes[leader].hold_snapshots = true;
    cluster.snapshot(leader);
    let mut client = cluster.at(leader).connect();
    cluster.network.is_held = true;
    client.send(&mut cluster.at(leader), OpCode::Create, &create("/lost", b"", Persistent));
    cluster.isolate(leader);
    cluster.network.is_held = false;
    cluster.until("two serve", |cluster| cluster.serving() == 2);
    write(&mut cluster, "new", 3);
    cluster.network.heal();
    all_serve(&mut cluster);
    assert!(!cluster.finish_snapshot(leader), "the tree it belonged to is gone");
    cluster.assert_same();
    // The next snapshot succeeds.
    cluster.nodes[leader].hold_snapshots = false;
    cluster.snapshot(leader);
    assert!(cluster.nodes[leader].disk.has_snapshot());
}

/// ZOOKEEPER-1551.
#[test]
fn observers_come_and_go_without_being_missed() {
    let mut cluster = Cluster::elected(3, 2, |_| {});
    cluster.kill(3);
    write(&mut cluster, "missed", 20);
    cluster.start(3);
    all_serve(&mut cluster);
    let mut client = cluster.at(3).connect();
    client.create(&mut cluster.at(3), "/through-an-observer", Persistent).unwrap();
    cluster.kill(4);
    let voters: Vec<usize> = (0..3).filter(|node| *node != cluster.leader()).collect();
    cluster.kill(voters[0]);
    client.set(&mut cluster.at(3), "/through-an-observer", b"x").unwrap();
    cluster.assert_same();
}
