//! Writes through leaders, followers and observers, and their visibility at all members.

use ironkeeper_proto::{Acl, OpCode, Perms};

use crate::cluster::Cluster;
use crate::world::*;

#[test]
fn a_write_through_any_member_is_seen_by_all() {
    let mut cluster = Cluster::elected(3, 1, |_| {});
    for node in 0..4 {
        let path = format!("/from-{node}");
        let mut client = cluster.at(node).connect();
        assert_eq!(client.create(&mut cluster.at(node), &path, Persistent).unwrap(), path);
        client.set(&mut cluster.at(node), &path, b"x").unwrap();
        assert_eq!(cluster.data(&path), vec![Some("x".to_owned()); 4]);
        assert_eq!(client.stat(&mut cluster.at(node), &path).unwrap().version, 1);
    }
    cluster.assert_same();
}

#[test]
fn a_follower_answers_with_the_leaders_verdict() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut client = cluster.at(follower).connect();
    let at = &mut cluster.at(follower);
    assert_eq!(client.delete(at, "/none"), Err(-101));
    client.create(at, "/a", Persistent).unwrap();
    assert_eq!(client.create(at, "/a", Persistent), Err(-110));
    assert_eq!(client.create(at, "/a/seq-", PersistentSequential).unwrap(), "/a/seq-0000000000");
    let parts =
        [(OpCode::Create, create("/m", b"", Persistent)), (OpCode::Delete, delete("/none", -1))];
    let (err, body) = client.call(at, OpCode::Multi, &multi(&parts));
    assert_eq!((err, multi_results(&body)), (0, vec![(-1, 0), (-1, -101)]));
    cluster.assert_same();
}

#[test]
fn reads_between_writes_through_a_follower_see_exactly_the_writes_before_them() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut client = cluster.at(follower).connect();
    client.create(&mut cluster.at(follower), "/n", Persistent).unwrap();
    let at = &mut cluster.at(follower);
    for data in [b"1", b"2", b"3"] {
        client.send(at, OpCode::SetData, &set_data("/n", data, -1));
        client.send(at, OpCode::GetData, &read("/n", false));
    }
    assert!(client.heard(at).is_empty(), "the leader has not spoken yet");
    at.sync();
    let heard = client.heard(at);
    assert_eq!(heard.len(), 6, "{heard:?}");
    for (at, data) in [(1, " 1"), (3, " 2"), (5, " 3")] {
        assert!(heard[at].contains(data), "{heard:?}");
    }
}

#[test]
fn clients_of_different_servers_interleave_without_mixing_up_answers() {
    let mut cluster = Cluster::three();
    let mut clients: Vec<Client> = (0..3).map(|node| cluster.at(node).connect()).collect();
    for round in 0..20 {
        for (node, client) in clients.iter_mut().enumerate() {
            let body = create(&format!("/n{node}-{round}"), b"", Persistent);
            client.send(&mut cluster.at(node), OpCode::Create, &body);
        }
    }
    cluster.settle();
    for (node, client) in clients.iter_mut().enumerate() {
        let heard = client.heard(&cluster.at(node));
        assert_eq!(heard.len(), 20);
        for (round, line) in heard.iter().enumerate() {
            assert!(line.ends_with(&format!("/n{node}-{round}")), "{line}");
        }
    }
    cluster.assert_same();
}

#[test]
fn a_watch_fires_at_the_member_where_it_was_set() {
    let mut cluster = Cluster::elected(3, 1, |_| {});
    let mut writer = cluster.at(0).connect();
    writer.create(&mut cluster.at(0), "/w", Persistent).unwrap();
    let mut watchers: Vec<Client> = (0..4).map(|node| cluster.at(node).connect()).collect();
    for (node, watcher) in watchers.iter_mut().enumerate() {
        watcher.call(&mut cluster.at(node), OpCode::GetData, &read("/w", true));
    }
    writer.set(&mut cluster.at(0), "/w", b"new").unwrap();
    for (node, watcher) in watchers.iter_mut().enumerate() {
        let heard = watcher.heard(&cluster.at(node));
        assert_eq!(heard.len(), 1, "server {node}");
        assert!(heard[0].starts_with("changed /w @"), "{heard:?}");
    }
}

#[test]
fn a_follower_vouches_for_its_clients() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut owner = cluster.at(follower).connect();
    let mut other = cluster.at(follower).connect();
    let at = &mut cluster.at(follower);
    assert_eq!(owner.auth(at, "bob:secret"), 0);
    let mine = [digest_acl("bob:secret", Perms::ALL.0)];
    let body = create_acl("/mine", b"", &mine, Persistent);
    assert_eq!(owner.call(at, OpCode::Create, &body).0, 0);
    assert_eq!(other.set(at, "/mine", b"x").unwrap_err(), -102);
    owner.set(at, "/mine", b"x").unwrap();
    // The follower knows which identities `auth` stands for; the leader expands it.
    let auth = [Acl::new(Perms::ALL, "auth", "")];
    assert_eq!(owner.call(at, OpCode::Create, &create_acl("/too", b"", &auth, Persistent)).0, 0);
    assert_eq!(other.set(at, "/too", b"x").unwrap_err(), -102);
    owner.set(at, "/too", b"x").unwrap();
}

#[test]
fn what_cannot_be_read_never_reaches_the_leader_and_keeps_its_place() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut client = cluster.at(follower).connect();
    let at = &mut cluster.at(follower);
    client.send(at, OpCode::Create, &create("/a", b"", Persistent));
    client.send(at, OpCode::Create, b"\0\0");
    client.send(at, OpCode::Create, &create("/b", b"", Persistent));
    assert!(client.heard(at).is_empty());
    at.sync();
    let heard = client.heard(at);
    assert!(heard[0].ends_with("/a") && heard[2].ends_with("/b"), "{heard:?}");
    assert!(heard[1].starts_with("#2 ") && heard[1].ends_with("error -5"), "{heard:?}");
}

#[test]
fn a_sync_brings_a_member_that_lags_to_where_the_leader_was() {
    let mut cluster = Cluster::three();
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut writer = cluster.at(leader).connect();
    let mut reader = cluster.at(follower).connect();
    writer.create(&mut cluster.at(leader), "/n", Persistent).unwrap();
    // The leader has received the write; the follower has received no message about it.
    writer.send(&mut cluster.at(leader), OpCode::SetData, &set_data("/n", b"new", -1));
    let at = &mut cluster.at(follower);
    reader.send(at, OpCode::GetData, &read("/n", false));
    let sync = {
        let mut body = Vec::new();
        ironkeeper_proto::Put::put_str(&mut body, "/n");
        body
    };
    reader.send(at, OpCode::Sync, &sync);
    reader.send(at, OpCode::GetData, &read("/n", false));
    assert_eq!(reader.heard(at).len(), 1, "a read waits for nobody, a sync for the leader");
    at.sync();
    let heard = reader.heard(at);
    assert!(heard[0].starts_with("#2 ") && heard[0].ends_with("/n"), "{heard:?}");
    assert!(heard[1].contains("new"), "{heard:?}");
}

#[test]
fn syncs_and_writes_of_one_follower_are_answered_in_the_order_of_the_questions() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut client = cluster.at(follower).connect();
    let at = &mut cluster.at(follower);
    let mut path = Vec::new();
    ironkeeper_proto::Put::put_str(&mut path, "/");
    for round in 0..5 {
        client.send(at, OpCode::Sync, &path);
        let body = create(&format!("/{round}"), b"", Persistent);
        client.send(at, OpCode::Create, &body);
        client.send(at, OpCode::Sync, &path);
    }
    at.sync();
    let heard = client.heard(at);
    let numbers: Vec<_> = heard.iter().map(|line| line.split(' ').next().unwrap()).collect();
    let expected: Vec<_> = (1..=15).map(|xid| format!("#{xid}")).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn a_leader_that_serves_nobody_still_leads() {
    let mut cluster = Cluster::of(&crate::cluster::membership(3, 0), 3, |node| {
        node.config.leader_serves = false;
    });
    for node in 0..3 {
        cluster.start(node);
    }
    cluster.until("two serve", |cluster| cluster.serving() == 2);
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut turned_away = cluster.at(leader).dial();
    let answer = turned_away.try_connect(&mut cluster.at(leader));
    assert!(answer.contains("must try another server"), "{answer}");
    let mut client = cluster.at(follower).connect();
    client.create(&mut cluster.at(follower), "/a", Persistent).unwrap();
    cluster.assert_same();
}
