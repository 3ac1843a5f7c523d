//! Effects of a change of the leader on clients.

use ironkeeper_proto::OpCode;

use crate::cluster::Cluster;
use crate::world::*;

#[test]
fn without_a_leader_nobody_is_served() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let client = cluster.at(follower).connect();
    for node in (0..3).filter(|node| *node != follower) {
        cluster.kill(node);
    }
    cluster.settle();
    let reason = client.conn.close_reason().expect("the connection ends").to_string();
    assert_eq!(reason, "this server's part in the ensemble has changed");
    let answer = cluster.at(follower).dial().try_connect(&mut cluster.at(follower));
    assert!(answer.contains("no leader at the moment"), "{answer}");
}

#[test]
fn a_leader_that_loses_its_quorum_lets_its_clients_go() {
    let mut cluster = Cluster::three();
    let leader = cluster.leader();
    let mut client = cluster.at(leader).connect();
    for node in (0..3).filter(|node| *node != leader) {
        cluster.kill(node);
    }
    client.send(&mut cluster.at(leader), OpCode::Create, &create("/lost", b"", Persistent));
    cluster.until("it gives up", |cluster| cluster.serving() == 0);
    assert!(client.conn.close_reason().is_some());
    assert!(client.heard(&cluster.at(leader)).is_empty(), "nobody knows whether it will be");
}

#[test]
fn after_the_death_of_the_leader_sessions_and_writes_go_on() {
    let mut cluster = Cluster::three();
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.at(follower).connect();
    client.create(&mut cluster.at(follower), "/before", Ephemeral).unwrap();
    cluster.kill(leader);
    cluster.until("a new leader serves", |cluster| cluster.serving() == 2);
    assert!(client.conn.close_reason().is_some(), "it has to come back");
    let mut again = cluster.at(follower).dial();
    let (session, password) = (client.session, client.password);
    assert_eq!(again.handshake(&mut cluster.at(follower), session, password, 8000), "open");
    again.create(&mut cluster.at(follower), "/after", Persistent).unwrap();
    assert_eq!(cluster.data("/before"), vec![Some(String::new()); 2]);
    cluster.start(leader);
    cluster.until("all serve", |cluster| cluster.serving() == 3);
    assert_eq!(cluster.data("/after"), vec![Some(String::new()); 3]);
    cluster.assert_same();
}

#[test]
fn a_new_leader_answers_a_sync_though_nothing_was_proposed_yet() {
    let mut cluster = Cluster::three();
    let leader = cluster.leader();
    let clients = [0, 1, 2].map(|node| cluster.at(node).connect());
    cluster.kill(leader);
    cluster.until("a new leader serves", |cluster| cluster.serving() == 2);
    let new_leader = cluster.leader();
    // The client resumes an old session: a new session would be the first transaction.
    let Client { session, password, .. } = clients[new_leader];
    let at = &mut cluster.at(new_leader);
    let mut client = at.dial();
    assert_eq!(client.handshake(at, session, password, 8000), "open");
    let mut path = Vec::new();
    ironkeeper_proto::Put::put_str(&mut path, "/");
    client.send(at, OpCode::Sync, &path);
    client.send(at, OpCode::GetData, &read("/", false));
    at.sync();
    assert_eq!(client.heard(at).len(), 2);
}

#[test]
fn what_was_asked_for_behind_a_gap_is_never_done() {
    let mut cluster = Cluster::three();
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.at(follower).connect();
    let at = &mut cluster.at(follower);
    // The follower forwards the first request, which is lost with the leader.
    client.send(at, OpCode::Create, &create("/first", b"", Persistent));
    // The connection's task has received the second request, but the engine has not when the role
    // ends.
    let late = client.receive_only(at, OpCode::Create, &create("/second", b"", Persistent));
    cluster.kill(leader);
    cluster.until("a new leader serves", |cluster| cluster.serving() == 2);
    cluster.at(follower).submit(late);
    cluster.settle();
    assert_eq!(cluster.data("/second"), vec![None; 2]);
    assert!(client.heard(&cluster.at(follower)).is_empty());
}

#[test]
fn a_leader_judges_by_everything_its_predecessor_has_left() {
    let mut cluster = Cluster::three();
    for round in 0..4 {
        let leader = cluster.leader();
        let mut client = cluster.at(leader).connect();
        let path = format!("/round-{round}");
        client.create(&mut cluster.at(leader), &path, Persistent).unwrap();
        // A write that is in the log and not applied: the next leader must prepare against it.
        client.send(&mut cluster.at(leader), OpCode::SetData, &set_data(&path, b"x", 0));
        cluster.kill(leader);
        cluster.until("a new leader serves", |cluster| cluster.serving() == 2);
        cluster.start(leader);
        cluster.until("all serve", |cluster| cluster.serving() == 3);
        let node = cluster.follower();
        let mut client = cluster.at(node).connect();
        let version = client.stat(&mut cluster.at(node), &path).unwrap().version;
        let (err, _) =
            client.call(&mut cluster.at(node), OpCode::SetData, &set_data(&path, b"y", version));
        assert_eq!(err, 0);
        cluster.assert_same();
    }
}

/// ZOOKEEPER-1277.
#[test]
fn when_the_ids_of_an_epoch_are_used_up_the_next_epoch_begins() {
    let mut cluster = Cluster::elected(3, 0, |node| node.settings.counter_max = 20);
    let mut written = 0;
    for _ in 0..5 {
        let leader = cluster.leader();
        let mut client = cluster.at(leader).connect();
        for _ in 0..50 {
            let body = create(&format!("/n-{written}"), b"", Persistent);
            client.send(&mut cluster.at(leader), OpCode::Create, &body);
            cluster.settle();
            if client.heard(&cluster.at(leader)).is_empty() {
                break;
            }
            written += 1;
        }
        assert!(client.conn.close_reason().is_some(), "the rest was given up");
        cluster.until("all serve", |cluster| cluster.serving() == 3);
    }
    assert!(written >= 80, "{written}");
    assert!(cluster.data(&format!("/n-{}", written - 1)).iter().all(Option::is_some));
    assert!(cluster.applied(0).epoch().0 >= 5);
    cluster.assert_same();
}
