//! Global sessions that are opened at one member, move to another and are closed at all of them.

use ironkeeper_proto::connect::ConnectResponse;
use ironkeeper_proto::quorum_packet::{ForwardedRequest, LearnerMessage};
use ironkeeper_proto::{OpCode, Packet, Reader, SessionId, Stat};

use crate::cluster::Cluster;
use crate::network::Message;
use crate::world::*;

#[test]
fn a_session_carries_the_number_of_the_server_where_it_began() {
    let mut cluster = Cluster::elected(3, 1, |_| {});
    for node in 0..4 {
        let client = cluster.at(node).connect();
        assert_eq!(client.session.0 >> 56, node as i64 + 1);
    }
    cluster.assert_same();
    assert_eq!(cluster.nodes[0].db.read().sessions.len(), 4);
}

#[test]
fn a_session_moves_to_any_member_with_its_password() {
    let mut cluster = Cluster::three();
    let first = cluster.at(0).connect();
    for node in [1, 2, 0] {
        let mut again = cluster.at(node).dial();
        let (session, password) = (first.session, first.password);
        let at = &mut cluster.at(node);
        assert_eq!(again.handshake(at, session, password, 8000), "open");
        assert_eq!((again.session, again.timeout_ms), (session, 8000));
        let path = format!("/moved-{node}");
        again.create(at, &path, Ephemeral).unwrap();
        assert_eq!(again.stat(at, &path).unwrap().ephemeral_owner, session.0);
    }
}

#[test]
fn nobody_takes_over_a_session_without_its_password_or_after_its_end() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut client = cluster.at(follower).connect();
    let mut thief = cluster.at(follower).dial();
    let answer = thief.handshake(&mut cluster.at(follower), client.session, [1; 16], 8000);
    assert_eq!(answer, "refused");
    client.create(&mut cluster.at(follower), "/still-there", Persistent).unwrap();
    client.call(&mut cluster.at(follower), OpCode::CloseSession, &[]);
    let mut late = cluster.at(follower).dial();
    let answer = late.handshake(&mut cluster.at(follower), client.session, client.password, 8000);
    assert_eq!(answer, "refused");
}

/// A later leader could know the session.
#[test]
fn a_leader_calls_no_session_gone_before_it_knows_that_it_still_leads() {
    let mut cluster = Cluster::three();
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let unknown = SessionId(0x1234);
    let mut late = cluster.at(leader).dial();
    cluster.network.is_held = true;
    let answer = late.handshake(&mut cluster.at(leader), unknown, unknown.password(), 8000);
    assert_eq!(answer, "silence");
    cluster.network.is_held = false;
    cluster.settle();
    let answer = ConnectResponse::decode(&late.output()[4..]).unwrap();
    assert_eq!(answer.timeout_ms, 0, "there is no such session");
    let mut late = cluster.at(follower).dial();
    let answer = late.handshake(&mut cluster.at(follower), unknown, unknown.password(), 8000);
    assert_eq!(answer, "refused");
}

#[test]
fn who_writes_through_the_server_it_has_left_is_cut_off_without_an_answer() {
    let mut cluster = Cluster::three();
    let leader = cluster.leader();
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    for (old, new) in [(others[0], others[1]), (others[0], leader), (leader, others[0])] {
        let mut left = cluster.at(old).connect();
        let mut moved = cluster.at(new).dial();
        let (session, password) = (left.session, left.password);
        assert_eq!(moved.handshake(&mut cluster.at(new), session, password, 8000), "open");
        left.send(&mut cluster.at(old), OpCode::Create, &create("/old", b"", Persistent));
        cluster.settle();
        assert!(left.heard(&cluster.at(old)).is_empty());
        let reason = left.conn.close_reason().expect("the connection ends").to_string();
        assert_eq!(reason, "the session moved to another connection", "{old} to {new}");
        assert!(cluster.data("/old").iter().all(Option::is_none));
        moved.create(&mut cluster.at(new), &format!("/new-{old}-{new}"), Persistent).unwrap();
    }
    cluster.assert_same();
}

#[test]
fn the_end_of_a_session_removes_its_nodes_everywhere() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut client = cluster.at(follower).connect();
    client.create(&mut cluster.at(follower), "/mine", Ephemeral).unwrap();
    assert!(cluster.data("/mine").iter().all(Option::is_some));
    let (err, _) = client.call(&mut cluster.at(follower), OpCode::CloseSession, &[]);
    assert_eq!(err, 0);
    assert_eq!(client.conn.close_reason().unwrap().to_string(), "the client closed its session");
    assert!(cluster.data("/mine").iter().all(Option::is_none));
    assert_eq!(cluster.nodes[0].db.read().sessions.len(), 0);
    cluster.assert_same();
}

#[test]
fn a_session_at_a_follower_lives_as_long_as_it_speaks_and_not_much_longer() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut loud = cluster.at(follower).connect_with(4000);
    let mut quiet = cluster.at(follower).connect_with(4000);
    loud.create(&mut cluster.at(follower), "/loud", Ephemeral).unwrap();
    quiet.create(&mut cluster.at(follower), "/quiet", Ephemeral).unwrap();
    cluster.advance_with(10_000, &mut [(follower, &mut loud)]);
    assert!(cluster.data("/loud").iter().all(Option::is_some));
    assert!(cluster.data("/quiet").iter().all(Option::is_none));
    assert_eq!(quiet.conn.close_reason().unwrap().to_string(), "the session expired");
    assert!(loud.conn.close_reason().is_none());
    cluster.assert_same();
}

#[test]
fn a_new_leader_gives_every_session_its_full_time() {
    let mut cluster = Cluster::three();
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let mut client = cluster.at(follower).connect_with(10_000);
    client.create(&mut cluster.at(follower), "/mine", Ephemeral).unwrap();
    cluster.advance(7000);
    cluster.kill(leader);
    cluster.until("a new leader serves", |cluster| cluster.serving() == 2);
    cluster.advance(7000);
    assert_eq!(cluster.data("/mine"), vec![Some(String::new()); 2]);
    cluster.advance(9000);
    assert_eq!(cluster.data("/mine"), vec![None; 2]);
}

#[test]
fn an_administrator_ends_a_session_at_any_member() {
    let mut cluster = Cluster::three();
    for node in 0..3 {
        let client = cluster.at(node).connect();
        cluster.expire(node, client.session);
        let reason = client.conn.close_reason().expect("the connection ends").to_string();
        assert_eq!(reason, "the session expired");
    }
    assert_eq!(cluster.nodes[0].db.read().sessions.len(), 0);
    cluster.assert_same();
}

/// Some clients, Kazoo for example, restart their xids with every connection.
#[test]
fn a_write_on_its_way_through_a_server_one_has_left_is_not_taken_for_what_was_asked_next() {
    let mut cluster = Cluster::elected(3, 1, |_| {});
    let leader = cluster.leader();
    let others: Vec<usize> = (0..3).filter(|node| *node != leader).collect();
    let moves = [(others[0], others[1]), (others[0], leader), (leader, others[0]), (leader, 3)];
    for (number, (old, new)) in moves.into_iter().enumerate() {
        let mut left = cluster.at(old).connect();
        hold_disks(&mut cluster, true);
        let late = format!("/late-{number}");
        let xid = left.send(&mut cluster.at(old), OpCode::Create, &create(&late, b"", Persistent));
        cluster.settle();
        let mut moved = cluster.at(new).dial();
        moved.send_connect(&mut cluster.at(new), left.session, &left.password, 8000);
        cluster.settle();
        // A leader distinguishes the two requests by zxid; a learner accepts the client after the
        // earlier write is applied.
        if new != leader {
            assert!(moved.output().is_empty(), "what was asked for before is not done yet");
            hold_disks(&mut cluster, false);
            cluster.settle();
            hold_disks(&mut cluster, true);
        }
        assert!(!moved.output().is_empty(), "the session goes on");
        let body = set_data("/", b"moved", -1);
        assert_eq!(moved.send(&mut cluster.at(new), OpCode::SetData, &body), xid);
        hold_disks(&mut cluster, false);
        cluster.settle();
        let answers = moved.frames(&cluster.at(new));
        let [(header, body)] = &answers[..] else { panic!("one answer: {answers:?}") };
        let stat = Stat::decode(&mut Reader::new(body)).expect("the answer to a setData");
        assert_eq!((header.err, stat.mzxid), (0, header.zxid));
        assert!(cluster.data(&late).iter().all(Option::is_some));
    }
}

fn hold_disks(cluster: &mut Cluster, is_held: bool) {
    for node in &mut cluster.nodes {
        node.disk.is_held = is_held;
    }
}

#[test]
fn a_server_ends_only_the_sessions_that_speak_through_it() {
    let mut cluster = Cluster::three();
    let (leader, follower) = (cluster.leader(), cluster.follower());
    let other = (0..3).find(|node| ![leader, follower].contains(node)).unwrap();
    let mut clients = [leader, follower].map(|node| (node, cluster.at(node).connect()));
    // The other follower requests createSession and closeSession for them, with and without a cxid.
    for (_, client) in &clients {
        for (op, cxid) in [(OpCode::CreateSession, 0), (OpCode::CloseSession, 0)]
            .into_iter()
            .chain([(OpCode::CloseSession, 7)])
        {
            let body = bytes::Bytes::copy_from_slice(&8000_i32.to_be_bytes());
            let (session, op) = (client.session, op.code());
            let request = ForwardedRequest { session, cxid, op, body, auth: None };
            for link in cluster.network.links_of(other) {
                let message = LearnerMessage::Request(Box::new(request.clone()));
                let packet = Packet::Learner(message);
                cluster.network.send(other, link, Message::Packet(packet));
            }
            cluster.settle();
        }
    }
    for (node, client) in &mut clients {
        let path = format!("/alive-{node}");
        client.create(&mut cluster.at(*node), &path, Ephemeral).unwrap();
        assert_eq!(client.conn.close_reason(), None);
    }
    // It may close a session that it owns.
    let mut own = cluster.at(other).connect();
    own.call(&mut cluster.at(other), OpCode::CloseSession, &[]);
    assert_eq!(cluster.nodes[leader].db.read().sessions.len(), 2);
}
