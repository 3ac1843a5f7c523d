//! Local sessions: known only to the server that their client is connected to.

use ironkeeper_engine::config::LocalSessions;
use ironkeeper_proto::OpCode;

use crate::cluster::{Cluster, Node};
use crate::world::*;

fn with(local_sessions: LocalSessions) -> Cluster {
    Cluster::elected(3, 0, |node: &mut Node| node.config.local_sessions = local_sessions)
}

fn known_sessions(cluster: &Cluster) -> usize {
    cluster.nodes[0].db.read().sessions.len()
}

#[test]
fn a_local_session_costs_no_transaction() {
    let mut cluster = with(LocalSessions::On);
    let before = cluster.applied(0);
    for node in 0..3 {
        let mut client = cluster.at(node).connect();
        client.stat(&mut cluster.at(node), "/").unwrap();
        assert_eq!(client.call(&mut cluster.at(node), OpCode::CloseSession, &[]).0, 0);
        assert_eq!(
            client.conn.close_reason().unwrap().to_string(),
            "the client closed its session"
        );
    }
    assert_eq!((cluster.applied(0), known_sessions(&cluster)), (before, 0));
}

#[test]
fn a_local_session_writes_like_any_other_but_owns_no_nodes() {
    let mut cluster = with(LocalSessions::On);
    let leader = cluster.leader();
    for node in 0..3 {
        let mut client = cluster.at(node).connect();
        let at = &mut cluster.at(node);
        client.create(at, &format!("/n-{node}"), Persistent).unwrap();
        assert_eq!(client.create(at, "/mine", Ephemeral), Err(-120));
        let parts = [(OpCode::Create, create("/mine", b"", Ephemeral))];
        let (err, body) = client.call(at, OpCode::Multi, &multi(&parts));
        let expected = if node == leader { -120 } else { -112 };
        assert_eq!((err, multi_results(&body)), (0, vec![(-1, expected)]));
    }
    assert_eq!(cluster.data("/mine"), vec![None; 3]);
    cluster.assert_same();
}

#[test]
fn the_first_ephemeral_node_makes_the_session_known_to_all() {
    let mut cluster = with(LocalSessions::Upgrading);
    for node in 0..3 {
        let mut client = cluster.at(node).connect();
        let path = format!("/mine-{node}");
        client.create(&mut cluster.at(node), &path, Ephemeral).unwrap();
        client.create(&mut cluster.at(node), &format!("{path}-too"), Ephemeral).unwrap();
        assert_eq!(known_sessions(&cluster), node + 1);
        assert_eq!(cluster.data(&path), vec![Some(String::new()); 3]);
    }
    cluster.assert_same();
}

#[test]
fn an_upgraded_session_lives_by_its_signs_of_life_and_moves_like_any_other() {
    let mut cluster = with(LocalSessions::Upgrading);
    for node in 0..3 {
        let mut client = cluster.at(node).connect_with(4000);
        let path = format!("/mine-{node}");
        client.create(&mut cluster.at(node), &path, Ephemeral).unwrap();
        cluster.advance_with(10_000, &mut [(node, &mut client)]);
        assert!(cluster.data(&path).iter().all(Option::is_some), "server {node}");
        let other = (node + 1) % 3;
        let mut moved = cluster.at(other).dial();
        let (session, password) = (client.session, client.password);
        assert_eq!(moved.handshake(&mut cluster.at(other), session, password, 4000), "open");
        cluster.advance(10_000);
        assert!(cluster.data(&path).iter().all(Option::is_none), "server {node}");
    }
    cluster.assert_same();
}

/// The session has ended and is in no session table, but the leader must not take it for a local
/// session of another server.
#[test]
fn a_write_that_comes_after_the_end_of_its_session_is_refused() {
    let mut cluster = with(LocalSessions::Upgrading);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.at(follower).connect();
    client.create(&mut cluster.at(follower), "/mine", Ephemeral).unwrap();
    cluster.network.is_held = true;
    client.send(&mut cluster.at(follower), OpCode::Create, &create("/late", b"", Persistent));
    let late = cluster.network.hold_back();
    cluster.network.is_held = false;
    let mut moved = cluster.at(leader).dial();
    let (session, password) = (client.session, client.password);
    assert_eq!(moved.handshake(&mut cluster.at(leader), session, password, 10_000), "open");
    assert_eq!(moved.call(&mut cluster.at(leader), OpCode::CloseSession, &[]).0, 0);
    cluster.network.put_back(late);
    cluster.settle();
    assert_eq!(cluster.data("/late"), vec![None; 3]);
    cluster.assert_same();
}

#[test]
fn a_local_session_is_resumed_at_its_server_and_nowhere_else() {
    let mut cluster = with(LocalSessions::On);
    let follower = cluster.follower();
    let mut client = cluster.at(follower).connect();
    client.disconnect(&mut cluster.at(follower));
    let (session, password) = (client.session, client.password);
    for node in 0..3 {
        let mut again = cluster.at(node).dial();
        let answer = again.handshake(&mut cluster.at(node), session, password, 10_000);
        assert_eq!(answer, if node == follower { "open" } else { "refused" }, "server {node}");
    }
}

#[test]
fn a_silent_local_session_ends_where_it_is() {
    let mut cluster = with(LocalSessions::On);
    let follower = cluster.follower();
    let before = cluster.applied(0);
    let client = cluster.at(follower).connect_with(4000);
    cluster.advance(10_000);
    assert_eq!(client.conn.close_reason().unwrap().to_string(), "the session expired");
    assert_eq!(cluster.applied(0), before);
}
