//! Packets of a peer on the quorum port and on the election port, some of them corrupted.

use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::{OpCode, Put};

use super::draft::Draft;
use super::requests;
use super::{Conversation, End};
use crate::hostile::attacks::election_port::opening;

const PACKETS_MAX: usize = 60;
const SPOILED: usize = 25;

const REQUEST: i32 = 1;
const ACK: i32 = 3;
const PING: i32 = 5;
const REVALIDATE: i32 = 6;
const FOLLOWER_INFO: i32 = 11;
const OBSERVER_INFO: i32 = 16;
const ACK_EPOCH: i32 = 18;
/// Writes that a learner forwards.
const FORWARDED: [OpCode; 7] = [
    OpCode::Create,
    OpCode::Delete,
    OpCode::SetData,
    OpCode::SetAcl,
    OpCode::Multi,
    OpCode::Sync,
    OpCode::Reconfig,
];

/// Generates the packets of a learner to a leader.
pub fn to_quorum_port(rng: &mut Rng) -> Conversation {
    // A rogue peer with a member's id sends no complete handshake, because the leader would treat
    // it as that member.
    let is_member = rng.percent(5);
    let id = if is_member { 1 + rng.below(3) as i64 } else { unlisted(rng) };
    let kind = if rng.percent(50) { FOLLOWER_INFO } else { OBSERVER_INFO };
    let mut bytes = Vec::new();
    if !rng.percent(5) {
        bytes.extend(greeting(kind, id, is_member, rng));
    }
    if !is_member && rng.percent(80) {
        bytes.extend(packet(ACK_EPOCH, 0, &1_i32.to_be_bytes(), rng));
        bytes.extend(packet(ACK, 1 << 32, &[], rng));
    }
    let count = 1 + rng.below(PACKETS_MAX);
    for _ in 0..count {
        bytes.extend(learner_packet(is_member, rng));
    }
    Conversation { bytes, count: count + 3, end: End::Unanswered }
}

fn unlisted(rng: &mut Rng) -> i64 {
    if rng.percent(80) { 4 + rng.below(20) as i64 } else { rng.pick(&[-1, i64::MIN, i64::MAX, 0]) }
}

fn greeting(kind: i32, id: i64, is_member: bool, rng: &mut Rng) -> Vec<u8> {
    let mut info = Draft::default();
    info.long(id);
    info.int(0x10000);
    info.long(0);
    if !is_member && rng.percent(SPOILED) {
        info.spoil(rng);
    }
    let accepted = if rng.percent(80) { 0 } else { rng.next_u64() as i64 >> rng.below(64) };
    packet(kind, accepted << 32, &info.bytes, rng)
}

fn learner_packet(is_member: bool, rng: &mut Rng) -> Vec<u8> {
    let mut data = Draft::default();
    let kind = match rng.below(10) {
        0..=4 => {
            let op = rng.pick(&FORWARDED);
            data.long(rng.below(1 << 20) as i64);
            data.int(rng.next_u64() as i32);
            data.int(op.code());
            requests::put_body(op, &mut data, rng);
            REQUEST
        }
        5 | 6 => {
            for _ in 0..rng.below(10) {
                data.long(rng.next_u64() as i64);
                data.int(rng.below(40_000) as i32);
            }
            PING
        }
        7 => {
            data.long(rng.next_u64() as i64);
            data.int(10_000);
            REVALIDATE
        }
        // Acks with a member's id would count.
        8 if !is_member => ACK,
        _ => 20 + rng.below(100) as i32,
    };
    if rng.percent(SPOILED) {
        data.spoil(rng);
    }
    packet(kind, rng.next_u64() as i64 >> rng.below(64), &data.bytes, rng)
}

/// Encodes a packet with its auth entries, rarely with one field corrupted.
fn packet(kind: i32, zxid: i64, data: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut packet = Draft::default();
    packet.int(kind);
    packet.long(zxid);
    packet.buf(data);
    let identities = if rng.percent(70) { 0 } else { rng.below(5) };
    packet.int(if identities == 0 { -1 } else { identities as i32 });
    for at in 0..identities {
        packet.text("digest");
        packet.text(&format!("user{at}:hash"));
    }
    if rng.percent(2) {
        packet.spoil(rng);
    }
    packet.bytes
}

/// Generates the messages of a server on the election port.
pub fn to_election_port(rng: &mut Rng) -> Conversation {
    let mut bytes = opening(4 + rng.below(40) as i64);
    if rng.percent(SPOILED) {
        let mut draft = Draft::of(bytes);
        draft.spoil(rng);
        bytes = draft.bytes;
    }
    let count = 1 + rng.below(PACKETS_MAX);
    for _ in 0..count {
        let vote = vote(rng);
        bytes.put_i32(vote.len() as i32);
        bytes.extend(vote);
    }
    Conversation { bytes, count, end: End::Unanswered }
}

fn vote(rng: &mut Rng) -> Vec<u8> {
    let mut vote = Draft::default();
    vote.int(rng.below(4) as i32);
    for _ in 0..4 {
        vote.long(rng.next_u64() as i64 >> rng.below(64));
    }
    vote.int(2);
    vote.text("server.1=127.0.0.1:1:2:participant\nversion=0");
    if rng.percent(50) {
        vote.spoil(rng);
    }
    vote.bytes
}
