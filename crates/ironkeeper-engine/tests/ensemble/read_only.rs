//! Read-only mode: a server without a leader serves read-only clients.

use ironkeeper_engine::database::Serving;
use ironkeeper_proto::{OpCode, SessionId};

use crate::cluster::{Cluster, Node};
use crate::world::*;

/// Returns a cluster of which one server runs, in read-only mode, with the node `/a`.
fn alone() -> (Cluster, usize) {
    let mut cluster =
        Cluster::elected(3, 0, |node: &mut Node| node.config.read_only_enabled = true);
    let left = cluster.follower();
    let mut client = cluster.at(left).connect();
    client.create(&mut cluster.at(left), "/a", Persistent).unwrap();
    for node in (0..3).filter(|node| *node != left) {
        cluster.kill(node);
    }
    cluster.settle();
    assert_eq!(cluster.nodes[left].db.serving(), Serving::No, "a leader may be found any moment");
    cluster
        .until("reads are served", |cluster| cluster.nodes[left].db.serving() == Serving::ReadOnly);
    (cluster, left)
}

fn reader(cluster: &mut Cluster, node: usize) -> Client {
    let mut client = cluster.at(node).dial();
    client.read_only = true;
    let answer = client.handshake(&mut cluster.at(node), SessionId::NONE, [0; 16], 10_000);
    assert_eq!(answer, "open for reads");
    client
}

#[test]
fn those_who_ask_for_it_may_read_and_nothing_else() {
    let (mut cluster, left) = alone();
    let mut client = reader(&mut cluster, left);
    let at = &mut cluster.at(left);
    client.stat(at, "/a").unwrap();
    assert_eq!(client.call(at, OpCode::Ping, &[]).0, 0);
    assert_eq!(client.create(at, "/b", Persistent), Err(-119));
    assert_eq!(client.set(at, "/a", b"x").unwrap_err(), -119);
    assert_eq!(client.delete(at, "/a"), Err(-119));
    assert_eq!(client.call(at, OpCode::Sync, &path_and_number("/a", 0)).0, -119);
    assert_eq!(client.call(at, OpCode::Multi, &multi(&[])).0, -119);
    assert_eq!(client.stat(at, "/a").unwrap().version, 0);
    assert_eq!(client.call(at, OpCode::CloseSession, &[]).0, 0);
    assert!(client.conn.close_reason().is_some());
}

#[test]
fn others_are_turned_away() {
    let (mut cluster, left) = alone();
    let answer = cluster.at(left).dial().try_connect(&mut cluster.at(left));
    assert!(answer.contains("serves only those who ask for read-only"), "{answer}");
    // A client with a global session must find a server that has a leader.
    let (session, _) = cluster.nodes[left].db.read().sessions.sorted()[0];
    let mut client = cluster.at(left).dial();
    client.read_only = true;
    let answer = client.handshake(&mut cluster.at(left), session, session.password(), 10_000);
    assert_eq!(answer, "silence");
    assert!(client.conn.close_reason().is_some());
}

#[test]
fn a_silent_reader_is_forgotten() {
    let (mut cluster, left) = alone();
    let client = reader(&mut cluster, left);
    cluster.advance(15_000);
    assert_eq!(client.conn.close_reason().unwrap().to_string(), "the session expired");
}

#[test]
fn when_a_leader_is_found_readers_have_to_come_again() {
    let (mut cluster, left) = alone();
    let client = reader(&mut cluster, left);
    for node in (0..3).filter(|node| *node != left) {
        cluster.start(node);
    }
    cluster.until("all serve", |cluster| cluster.serving() == 3);
    let reason = client.conn.close_reason().expect("the connection ends").to_string();
    assert_eq!(reason, "this server's part in the ensemble has changed");
    let mut again = cluster.at(left).dial();
    again.read_only = true;
    let at = &mut cluster.at(left);
    assert_eq!(again.handshake(at, SessionId::NONE, [0; 16], 10_000), "open");
    again.create(at, "/b", Persistent).unwrap();
    cluster.assert_same();
}

#[test]
fn a_server_that_serves_reads_may_be_elected_by_one_that_needs_its_whole_tree() {
    let mut cluster = Cluster::elected(3, 0, |node: &mut Node| {
        node.config.read_only_enabled = true;
        node.settings.history_count_max = 5;
    });
    let (left, away) = (cluster.leader(), cluster.follower());
    cluster.kill(away);
    let mut client = cluster.at(left).connect();
    for number in 0..100 {
        client.create(&mut cluster.at(left), &format!("/a{number}"), Persistent).unwrap();
    }
    cluster.snapshot(left);
    cluster.nodes[left].disk.purge();
    for node in (0..3).filter(|node| *node != left && *node != away) {
        cluster.kill(node);
    }
    cluster
        .until("reads are served", |cluster| cluster.nodes[left].db.serving() == Serving::ReadOnly);
    let mut client = reader(&mut cluster, left);
    client.stat(&mut cluster.at(left), "/a99").unwrap();
    cluster.start(away);
    cluster.until("two serve", |cluster| cluster.serving() == 2);
    assert_eq!(cluster.leader(), left, "it knows more");
    assert_eq!(cluster.applied(away), cluster.applied(left));
    assert!(client.conn.close_reason().is_some(), "readers have to come again");
}

#[test]
fn without_the_setting_nobody_is_served_however_long_it_takes() {
    let mut cluster = Cluster::three();
    let left = cluster.follower();
    for node in (0..3).filter(|node| *node != left) {
        cluster.kill(node);
    }
    cluster.advance(30_000);
    assert_eq!(cluster.nodes[left].db.serving(), Serving::No);
}
