//! Bytes that no correct peer sends, on the quorum port and on the election port.

use std::io::{Read, Result, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_peers::links::PeerPorts;
use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::election::{Notification, Opening, PeerState};
use ironkeeper_proto::quorum_packet::{EPOCH_MAX, LearnerInfo, Packet};
use ironkeeper_proto::{Epoch, Put, ServerId, Zxid};

/// One kind of attack on one member; its inputs are the member's ports and a seed.
pub struct Attack {
    pub name: &'static str,
    pub run: fn(PeerPorts, u64) -> Result<()>,
    /// The text that one of our members must log.
    pub says: Option<&'static str>,
}

pub const ALL: [Attack; 7] = [
    Attack { name: "garbage", run: garbage, says: Some("malformed bytes from a peer") },
    Attack { name: "impossible lengths", run: lengths, says: Some("malformed bytes from a peer") },
    Attack { name: "connections that say nothing", run: silence, says: None },
    Attack { name: "votes for somebody with the best history", run: votes, says: None },
    Attack {
        name: "learners from the end of all epochs",
        run: epochs,
        says: Some("there is no epoch after its own"),
    },
    Attack {
        name: "a member's double from an epoch that nobody can have come to",
        run: epochs_of_a_member,
        says: Some("its epoch is beyond reach"),
    },
    Attack { name: "acknowledgements of what was never proposed", run: acks, says: None },
];

/// An id that no member has.
const NON_MEMBER: ServerId = ServerId(77);
const CONNECTIONS: usize = 100;
/// The longest wait for a reply; no reply is acceptable.
const ANSWER_MAX: Duration = Duration::from_millis(300);

fn dial(port: u16) -> Result<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(ANSWER_MAX))?;
    stream.set_write_timeout(Some(ANSWER_MAX))?;
    Ok(stream)
}

/// Sends bytes and reads for a while.
fn say(port: u16, bytes: &[u8]) -> Result<()> {
    let mut stream = dial(port)?;
    stream.write_all(bytes)?;
    let _ = stream.read(&mut [0; 4096])?;
    Ok(())
}

fn garbage(ports: PeerPorts, seed: u64) -> Result<()> {
    let mut rng = Rng::new(seed);
    for port in [ports.quorum, ports.election] {
        for len in [1, 7, 8, 20, 100, 5000, 100_000] {
            let bytes: Vec<u8> = (0..len).map(|_| rng.next_u64() as u8).collect();
            // A rejected connection must not end the loop.
            let _ = say(port, &bytes);
        }
    }
    Ok(())
}

fn lengths(ports: PeerPorts, _: u64) -> Result<()> {
    for length in [i32::MAX, i32::MIN, -2, 600_000] {
        let mut opening = Vec::new();
        opening.put_i64(-65536);
        opening.put_i64(NON_MEMBER.0);
        opening.put_i32(length);
        let _ = say(ports.election, &opening);

        let mut notification = opening_of(NON_MEMBER);
        notification.put_i32(length);
        let _ = say(ports.election, &notification);

        // Type, zxid, length of the data; and the same with a count of auth entries.
        let mut packet = Vec::new();
        packet.put_i32(11);
        packet.put_i64(0);
        packet.put_i32(length);
        let _ = say(ports.quorum, &packet);
        packet.truncate(12);
        packet.put_i32(0);
        packet.put_i32(length);
        let _ = say(ports.quorum, &packet);
    }
    Ok(())
}

fn silence(ports: PeerPorts, _: u64) -> Result<()> {
    for port in [ports.quorum, ports.election] {
        let held: Vec<_> = (0..CONNECTIONS).map(|_| dial(port)).collect();
        drop(held);
    }
    Ok(())
}

fn opening_of(from: ServerId) -> Vec<u8> {
    let mut bytes = Vec::new();
    // An address on which no server listens.
    Opening { from, addresses: vec!["127.0.0.1:1".to_owned()] }.encode(&mut bytes);
    bytes
}

/// Sends votes of a rogue peer: it claims that it leads, that others lead, and that a member's
/// history is newer than it is.
fn votes(ports: PeerPorts, _: u64) -> Result<()> {
    let states =
        [PeerState::Looking, PeerState::Following, PeerState::Leading, PeerState::Observing];
    for state in states {
        for leader in [NON_MEMBER, ServerId(1)] {
            let mut bytes = opening_of(NON_MEMBER);
            let mut body = Vec::new();
            Notification {
                state,
                leader,
                zxid: Zxid(i64::MAX),
                round: i64::MAX,
                peer_epoch: EPOCH_MAX,
                format: Notification::FORMAT,
                config: Bytes::from_static(b"server.77=127.0.0.1:1:2\nversion=7fffffff"),
            }
            .encode(&mut body);
            bytes.put_buf(Some(&body));
            let _ = say(ports.election, &bytes);
        }
    }
    Ok(())
}

fn learner(server: ServerId, accepted: Epoch) -> Packet {
    let info = LearnerInfo { server: Some(server), protocol: 0x10000, config_version: 0 };
    Packet::FollowerInfo { accepted, info }
}

fn packets(packets: &[Packet]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for packet in packets {
        packet.encode(&mut bytes);
    }
    bytes
}

/// Sends FOLLOWERINFO and ACKEPOCH of a non-member, with epochs up to the largest possible one.
fn epochs(ports: PeerPorts, _: u64) -> Result<()> {
    for epoch in [Epoch(0), Epoch(1_000_000), EPOCH_MAX] {
        let hello = [learner(NON_MEMBER, epoch)];
        let _ = say(ports.quorum, &packets(&hello));
        let both = [
            learner(NON_MEMBER, epoch),
            Packet::AckEpoch { last: Zxid(i64::MAX), current: Some(EPOCH_MAX) },
        ];
        let _ = say(ports.quorum, &packets(&both));
    }
    Ok(())
}

/// Sends FOLLOWERINFO with a member's id and the last but one epoch. A leader that accepts it would
/// begin a larger epoch, and all epochs would be used up.
fn epochs_of_a_member(ports: PeerPorts, _: u64) -> Result<()> {
    for id in [1, 2, 3] {
        let _ = say(ports.quorum, &packets(&[learner(ServerId(id), Epoch(EPOCH_MAX.0 - 1))]));
    }
    Ok(())
}

/// Joins as a follower that is not a member and acknowledges all possible zxids.
fn acks(ports: PeerPorts, _: u64) -> Result<()> {
    let mut conversation = vec![
        learner(NON_MEMBER, Epoch(0)),
        Packet::AckEpoch { last: Zxid(0), current: Some(Epoch(0)) },
    ];
    for zxid in [0, 1, i64::from(i32::MAX), 1 << 32, (1 << 32) + 1, i64::MAX - 1, i64::MAX, -1] {
        conversation.push(Packet::Ack { zxid: Zxid(zxid) });
    }
    say(ports.quorum, &packets(&conversation))
}
