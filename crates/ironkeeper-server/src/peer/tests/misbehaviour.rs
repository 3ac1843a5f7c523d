//! Tests with non-members, and with peers that violate the protocol or do not read.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Packet, ServerId, Zxid};
use ironkeeper_zab::{Input, LinkOp, Port};

use super::hosts::{Host, PATIENCE, leader_and_learner};

fn connect(host: &Host, port: Port) -> TcpStream {
    let stream = TcpStream::connect(host.address(port)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Waits until the host has closed the connection.
fn closed(mut stream: TcpStream) {
    let mut rest = [0; 64];
    match stream.read(&mut rest) {
        Ok(0) => {}
        Ok(_) => panic!("the host has sent something"),
        // The kernel sends a reset if the host closes the socket with unread bytes.
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset),
    }
}

#[test]
fn garbage_instead_of_an_opening_is_hung_up_on_and_never_reported() {
    let mut host = Host::start(1);
    for garbage in ["GET / HTTP/1.1\r\nHost: zk\r\n\r\n".as_bytes(), &[0xfe; 64], &[0xff; 64]] {
        let mut stream = connect(&host, Port::Election);
        stream.write_all(garbage).unwrap();
        // The letters decode as an opening of 3.4 with a very large id; the bytes after them are
        // not a frame.
        if garbage[0] < 0x80 {
            let Input::Opened { link, .. } = host.next() else { panic!("not opened") };
            assert_eq!(host.next(), Input::Closed { link });
        }
        closed(stream);
    }
    assert!(host.rest().is_empty());
}

#[test]
fn whoever_does_not_say_who_it_is_is_hung_up_on() {
    let mut host = Host::start_with(1, |settings| {
        settings.opening_timeout = Duration::from_millis(50);
    });
    let mut stream = connect(&host, Port::Election);
    stream.write_all(&[0xff, 0xff, 0xff]).unwrap();
    closed(stream);
    assert!(host.rest().is_empty());
}

/// Returns the first bytes that a server with this id sends on the port.
fn greeting(port: Port, id: i64) -> Vec<u8> {
    let mut bytes = Vec::new();
    match port {
        Port::Election => bytes.extend_from_slice(&id.to_be_bytes()),
        Port::Quorum => {
            let (server, protocol) = (Some(ServerId(id)), PROTOCOL_VERSION);
            let info = LearnerInfo { server, protocol, config_version: 0 };
            Packet::FollowerInfo { accepted: Epoch(1), info }.encode(&mut bytes);
        }
    }
    bytes
}

/// Waits until the host has received this server id.
fn named(host: &mut Host, id: i64) {
    loop {
        let said = match host.next() {
            Input::Opened { opening, .. } => Some(opening.from),
            Input::Packet { packet: Packet::FollowerInfo { info, .. }, .. } => info.server,
            _ => None,
        };
        if said == Some(ServerId(id)) {
            return;
        }
    }
}

#[test]
fn connections_that_do_not_say_whose_they_are_leave_a_place_for_members() {
    for port in [Port::Election, Port::Quorum] {
        let mut host = Host::start(1);
        host.knows(&[(ServerId(2), vec![host.address.clone()])]);
        let silent: Vec<TcpStream> = (0..600).map(|_| connect(&host, port)).collect();
        let mut member = connect(&host, port);
        member.write_all(&greeting(port, 2)).unwrap();
        named(&mut host, 2);
        for stream in silent.into_iter().take(500) {
            closed(stream);
        }
    }
}

#[test]
fn servers_that_are_no_members_leave_a_place_for_members() {
    for port in [Port::Election, Port::Quorum] {
        let mut host = Host::start(1);
        host.knows(&[(ServerId(2), vec![host.address.clone()])]);
        let mut streams = Vec::new();
        for id in 100..164 {
            let mut stream = connect(&host, port);
            stream.write_all(&greeting(port, id)).unwrap();
            named(&mut host, id);
            streams.push(stream);
        }
        let mut one_too_many = connect(&host, port);
        one_too_many.write_all(&greeting(port, 164)).unwrap();
        closed(one_too_many);
        // Of many connections that name the same member, the first one and the last ones are kept.
        for _ in 0..20 {
            let mut member = connect(&host, port);
            member.write_all(&greeting(port, 2)).unwrap();
            named(&mut host, 2);
            streams.push(member);
        }
        assert_eq!(streams.len(), 84);
        closed(streams.swap_remove(65));
    }
}

#[test]
fn a_learner_that_does_not_say_who_it_is_is_hung_up_on() {
    let mut host = Host::start_with(1, |settings| {
        settings.opening_timeout = Duration::from_millis(50);
    });
    let mut stream = connect(&host, Port::Quorum);
    let link = host.accepted();
    stream.write_all(&[0, 0, 0]).unwrap();
    assert_eq!(host.next(), Input::Closed { link });
    closed(stream);
}

#[test]
fn impossible_lengths_on_the_quorum_port_end_the_link_at_once() {
    let mut host = Host::start(1);
    for packet in [
        "0000000b000000010000000 07fffffff",
        "0000000b0000000100000000fffffffe",
        "0000000b0000000100000000ffffffff7fffffff",
        "000000630000000100000000ffffffffffffffff",
    ] {
        let digits: Vec<char> = packet.chars().filter(|digit| *digit != ' ').collect();
        let bytes: Vec<u8> = digits
            .chunks(2)
            .map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap())
            .collect();
        let mut stream = connect(&host, Port::Quorum);
        let link = host.accepted();
        stream.write_all(&bytes).unwrap();
        assert_eq!(host.next(), Input::Closed { link }, "{packet}");
        closed(stream);
    }
}

#[test]
fn what_came_before_the_garbage_is_still_reported() {
    let mut host = Host::start(1);
    let mut stream = connect(&host, Port::Quorum);
    let link = host.accepted();
    let mut bytes = Vec::new();
    Packet::Ack { zxid: Zxid(5) }.encode(&mut bytes);
    bytes.extend_from_slice(&[0xff; 20]);
    stream.write_all(&bytes).unwrap();
    assert_eq!(host.next(), Input::Packet { link, packet: Packet::Ack { zxid: Zxid(5) } });
    assert_eq!(host.next(), Input::Closed { link });
}

/// ZOOKEEPER-3769.
#[test]
fn a_notification_that_is_not_understood_is_skipped() {
    let mut host = Host::start(1);
    let mut stream = connect(&host, Port::Election);
    let mut bytes = vec![0, 0, 0, 0, 0, 0, 0, 9];
    // A frame that is too short, then an unknown peer state, then a vote of 3.4.
    bytes.extend_from_slice(&[0, 0, 0, 2, 1, 1]);
    bytes.extend_from_slice(&[0, 0, 0, 28, 0, 0, 0, 99]);
    bytes.extend_from_slice(&[0; 24]);
    bytes.extend_from_slice(&[0, 0, 0, 40]);
    bytes.extend_from_slice(&[0; 40]);
    stream.write_all(&bytes).unwrap();
    assert!(matches!(host.next(), Input::Opened { .. }));
    let Input::Notification { notification, .. } = host.next() else { panic!("no vote") };
    assert_eq!(notification.format, 0);
    assert!(host.rest().is_empty());
}

#[test]
fn a_peer_that_reads_nothing_is_given_up() {
    let mut leader = Host::start_with(3, |settings| settings.unsent_bytes_max = 1 << 20);
    let stream = connect(&leader, Port::Quorum);
    let link = leader.accepted();
    let txn = Bytes::from(vec![0; 100_000]);
    // The kernel buffers some megabytes, the outbox one more.
    let closed = (0..1000).any(|index| {
        let packet = Packet::Proposal { zxid: Zxid(index), txn: txn.clone() };
        leader.perform(LinkOp::Send { link, packet });
        leader.rest().contains(&Input::Closed { link })
    });
    assert!(closed || leader.next() == Input::Closed { link });
    drop(stream);
}

#[test]
fn outputs_for_links_that_are_gone_do_nothing() {
    let (mut leader, to_learner, learner, _) = leader_and_learner();
    drop(learner);
    assert_eq!(leader.next(), Input::Closed { link: to_learner });
    leader.perform(LinkOp::Send { link: to_learner, packet: Packet::UpToDate });
    leader.perform(LinkOp::ReceiveSnapshot { link: to_learner });
    leader.hang_up(to_learner);
    assert!(leader.rest().is_empty());
}

/// Any number of non-members can connect repeatedly, and the leader synchronizes each of them.
#[test]
fn lines_about_learners_that_are_no_members_are_few() {
    let mut host = Host::start(1);
    host.knows(&[(ServerId(2), vec![host.address.clone()])]);
    let mut lines = |ids: std::ops::Range<i64>| {
        let mut lines = 0;
        for id in ids {
            let mut stream = connect(&host, Port::Quorum);
            let link = host.accepted();
            stream.write_all(&greeting(Port::Quorum, id)).unwrap();
            named(&mut host, id);
            lines += (0..10).filter(|_| host.links.learner_to_log(link).is_some()).count();
            drop(stream);
            assert_eq!(host.next(), Input::Closed { link });
        }
        lines
    };
    assert!(lines(100..200) < 10);
    assert_eq!(lines(2..3), 10, "those of a member are written all the same");
}

/// Connects to the host from this address of the loopback network.
fn connect_from(source: [u8; 4], host: &Host, port: Port) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&host.address(port).into()).unwrap();
    socket.into()
}

#[test]
fn an_opening_says_whether_it_comes_from_the_members_address() {
    let mut host = Host::start(1);
    let at_home = vec![host.address.clone()];
    host.knows(&[(ServerId(2), at_home.clone()), (ServerId(3), at_home)]);
    let mut streams = Vec::new();
    let mut opened = |source: [u8; 4], id: i64| {
        let mut stream = connect_from(source, &host, Port::Election);
        stream.write_all(&greeting(Port::Election, id)).unwrap();
        streams.push(stream);
        match host.next() {
            Input::Opened { from_its_address, .. } => from_its_address,
            other => panic!("not opened: {other:?}"),
        }
    };
    let (elsewhere, home) = ([127, 0, 0, 2], [127, 0, 0, 1]);
    assert!(opened(elsewhere, 9), "of one that is no member nothing is known");
    assert!(opened(elsewhere, 3), "there is no connection whose place it could take");
    assert!(opened(home, 2));
    assert!(!opened(elsewhere, 2));
    assert!(!opened([127, 0, 0, 3], 2));
    assert!(!opened(elsewhere, 2), "a connection that is refused makes no address known");
    assert!(opened(elsewhere, 3), "there is a connection with this address");
}
