//! Tests that packets and votes arrive unchanged and in order, in Apache's encoding.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use bytes::Bytes;
use ironkeeper_proto::election::{Opening, PeerState};
use ironkeeper_proto::membership::PeerAddress;
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Notification, Packet, ServerId, Zxid};
use ironkeeper_zab::{Input, LinkOp, Port};

use super::hosts::{FreePorts, Host, PATIENCE, leader_and_learner, own_addresses};

fn vote(round: i64) -> Notification {
    Notification {
        state: PeerState::Looking,
        leader: ServerId(3),
        zxid: Zxid(7),
        round,
        peer_epoch: Epoch(1),
        format: Notification::FORMAT,
        config: Bytes::from_static(b"version=0"),
    }
}

#[test]
fn votes_travel_both_ways_on_one_election_link() {
    let (mut three, mut one) = (Host::start(3), Host::start(1));
    let from_three = three.dial(&one, Port::Election);
    let Input::Opened { link: from_one, opening, .. } = one.next() else { panic!("not opened") };
    assert_eq!(opening.from, ServerId(3));
    assert_eq!(opening.addresses, [three.address(Port::Election).to_string()]);
    for round in 0..100 {
        let notification = Box::new(vote(round));
        three.links.perform(LinkOp::Notify { link: from_three, notification });
    }
    three.links.flush();
    for round in 0..100 {
        assert_eq!(one.next(), Input::Notification { link: from_one, notification: vote(round) });
    }
    one.perform(LinkOp::Notify { link: from_one, notification: Box::new(vote(5)) });
    assert_eq!(three.next(), Input::Notification { link: from_three, notification: vote(5) });
}

#[test]
fn packets_travel_both_ways_on_one_quorum_link_and_keep_their_order() {
    let (mut leader, to_learner, mut learner, to_leader) = leader_and_learner();
    let info =
        LearnerInfo { server: Some(ServerId(1)), protocol: PROTOCOL_VERSION, config_version: 0 };
    let packet = Packet::FollowerInfo { accepted: Epoch(4), info };
    learner.perform(LinkOp::Send { link: to_leader, packet: packet.clone() });
    assert_eq!(leader.next(), Input::Packet { link: to_learner, packet });
    // Small packets, and some that are larger than any single read.
    let proposal = |index: i64| Packet::Proposal {
        zxid: Zxid(index),
        txn: Bytes::from(vec![index as u8; if index % 10 == 0 { 500_000 } else { 100 }]),
    };
    for index in 0..200 {
        leader.links.perform(LinkOp::Send { link: to_learner, packet: proposal(index) });
    }
    leader.links.flush();
    for index in 0..200 {
        assert_eq!(learner.next(), Input::Packet { link: to_leader, packet: proposal(index) });
    }
}

#[test]
fn a_vote_is_apaches_bytes_behind_an_opening_in_apaches_bytes() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut host = Host::start_with(3, |settings| {
        settings.own.opening = vec!["127.0.0.1:31123".to_owned()];
    });
    let address = PeerAddress { host: "127.0.0.1".to_owned(), quorum_port: 1, election_port: port };
    host.knows(&[(ServerId(1), vec![address])]);
    host.perform(LinkOp::Dial { peer: ServerId(1), port: Port::Election, hint: None });
    let (mut stream, _) = listener.accept().unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut opening = [0; 35];
    stream.read_exact(&mut opening).unwrap();
    let expected = [
        &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0][..],
        &[0, 0, 0, 0, 0, 0, 0, 3],
        &[0, 0, 0, 15],
        b"127.0.0.1:31123",
    ];
    assert_eq!(opening[..], expected.concat());
    let Input::Dialed { link: Some(link), .. } = host.next() else { panic!("not dialled") };
    host.perform(LinkOp::Notify { link, notification: Box::new(vote(2)) });
    let mut frame = [0; 4 + 44 + 9];
    stream.read_exact(&mut frame).unwrap();
    let expected = [
        &[0, 0, 0, 53][..],
        &[0, 0, 0, 0],
        &[0, 0, 0, 0, 0, 0, 0, 3],
        &[0, 0, 0, 0, 0, 0, 0, 7],
        &[0, 0, 0, 0, 0, 0, 0, 2],
        &[0, 0, 0, 0, 0, 0, 0, 1],
        &[0, 0, 0, 2],
        &[0, 0, 0, 9],
        b"version=0",
    ];
    assert_eq!(frame[..], expected.concat());
}

/// ZOOKEEPER-3720.
#[test]
fn openings_of_all_versions_are_taken_in_one_byte_at_a_time() {
    let one = Opening { from: ServerId(9), addresses: vec!["a:1".to_owned()] };
    let many =
        Opening { from: ServerId(9), addresses: vec!["a:1".to_owned(), "[::1]:2".to_owned()] };
    let old = Opening { from: ServerId(9), addresses: Vec::new() };
    let mut host = Host::start(1);
    for opening in [one, many, old] {
        let mut bytes = Vec::new();
        opening.encode(&mut bytes);
        let mut stream = TcpStream::connect(host.address(Port::Election)).unwrap();
        stream.set_nodelay(true).unwrap();
        for byte in bytes {
            stream.write_all(&[byte]).unwrap();
        }
        let Input::Opened { opening: read, link, .. } = host.next() else { panic!("not opened") };
        assert_eq!(read, opening);
        drop(stream);
        assert_eq!(host.next(), Input::Closed { link });
    }
}

#[test]
fn several_addresses_are_dialled_in_turn_and_a_hint_comes_last() {
    let (mut three, mut one) = (Host::start(3), Host::start(1));
    let nobody = FreePorts::take();
    let dead = nobody.address();
    let nowhere = PeerAddress { host: "no.such.host.invalid".to_owned(), ..dead.clone() };
    three.knows(&[(ServerId(1), vec![nowhere.clone(), dead.clone(), one.address.clone()])]);
    three.perform(LinkOp::Dial { peer: ServerId(1), port: Port::Election, hint: None });
    assert!(matches!(three.next(), Input::Dialed { link: Some(_), .. }));
    assert!(matches!(one.next(), Input::Opened { .. }));

    three.knows(&[(ServerId(1), vec![nowhere, dead])]);
    let hint = Some(Box::new(one.address(Port::Election).to_string()));
    three.perform(LinkOp::Dial { peer: ServerId(1), port: Port::Election, hint });
    assert!(matches!(three.next(), Input::Dialed { link: Some(_), .. }));
    assert!(matches!(one.next(), Input::Opened { .. }));
}

#[test]
fn a_server_that_cannot_be_reached_is_reported_as_such() {
    let mut host = Host::start(3);
    let dialed = |port| Input::Dialed { peer: ServerId(1), port, link: None };
    // The server is in no membership.
    host.perform(LinkOp::Dial { peer: ServerId(1), port: Port::Election, hint: None });
    assert_eq!(host.next(), dialed(Port::Election));
    let nobody = FreePorts::take();
    host.knows(&[(ServerId(1), vec![nobody.address()])]);
    host.perform(LinkOp::Dial { peer: ServerId(1), port: Port::Quorum, hint: None });
    assert_eq!(host.next(), dialed(Port::Quorum));
}

#[test]
fn nothing_comes_from_a_link_that_was_hung_up_and_the_other_side_hears_of_it() {
    let (mut leader, to_learner, mut learner, to_leader) = leader_and_learner();
    let packet = Packet::Ping { zxid: Zxid(1) };
    leader.links.perform(LinkOp::Send { link: to_learner, packet: packet.clone() });
    leader.hang_up(to_learner);
    assert_eq!(learner.next(), Input::Packet { link: to_leader, packet });
    assert_eq!(learner.next(), Input::Closed { link: to_leader });
    // All later inputs of the leader come from the next link.
    let again = learner.dial(&leader, Port::Quorum);
    learner.perform(LinkOp::Send { link: again, packet: Packet::Ack { zxid: Zxid(1) } });
    let link = leader.accepted();
    assert_eq!(leader.next(), Input::Packet { link, packet: Packet::Ack { zxid: Zxid(1) } });
    assert!(leader.rest().is_empty());
}

#[test]
fn a_server_that_moves_is_found_at_its_new_ports_only() {
    let (mut one, mut three) = (Host::start(1), Host::start(3));
    let before = three.dial(&one, Port::Election);
    assert!(matches!(one.next(), Input::Opened { .. }));
    let old = one.address(Port::Election);
    let ports = FreePorts::take();
    one.address = ports.address();
    one.links.rebind(own_addresses(&one.address));
    // Another thread opens the port: dial until it is open.
    let after = loop {
        three.knows(&[(ServerId(1), vec![one.address.clone()])]);
        three.perform(LinkOp::Dial { peer: ServerId(1), port: Port::Election, hint: None });
        if let Input::Dialed { link: Some(link), .. } = three.next() {
            break link;
        }
    };
    assert!(matches!(one.next(), Input::Opened { .. }));
    assert_ne!(before, after);
    // Another thread also closes the old port, which is still held, so no other process binds it.
    while TcpStream::connect(old).is_ok() {}
}

#[test]
fn members_that_are_cut_off_lose_their_links_and_get_no_new_ones_until_that_is_healed() {
    let (mut three, mut one) = (Host::start(3), Host::start(1));
    let to_one = three.dial(&one, Port::Election);
    let Input::Opened { link: to_three, .. } = one.next() else { panic!("not opened") };
    one.links.cut_off([ServerId(3)]);
    assert_eq!(one.next(), Input::Closed { link: to_three });
    assert_eq!(three.next(), Input::Closed { link: to_one });
    // Server 3 is not cut off on its side: it can connect to the port, but its link is closed.
    let again = three.dial(&one, Port::Election);
    assert_eq!(three.next(), Input::Closed { link: again });
    one.knows(&[(ServerId(3), vec![three.address.clone()])]);
    one.perform(LinkOp::Dial { peer: ServerId(3), port: Port::Quorum, hint: None });
    assert!(matches!(one.next(), Input::Dialed { link: None, .. }));
    one.links.cut_off([]);
    three.dial(&one, Port::Election);
    assert!(matches!(one.next(), Input::Opened { .. }));
}
