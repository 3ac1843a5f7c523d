//! The bytes of a client connection: valid requests, and some that are corrupted in one place.

use ironkeeper_peers::connection::framed;
use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::{OpCode, SessionId};

use super::draft::Draft;
use super::{Conversation, End};
use crate::hostile::client::connect_request;

/// The largest number of requests of a conversation.
const REQUESTS_MAX: usize = 150;
/// The percentage of corrupted requests.
const SPOILED: usize = 25;

/// Operations with their weights. Operations that end a connection are only sent last.
const OPERATIONS: [(usize, OpCode); 26] = [
    (12, OpCode::Create),
    (6, OpCode::Create2),
    (2, OpCode::CreateContainer),
    (3, OpCode::CreateTtl),
    (10, OpCode::Delete),
    (10, OpCode::SetData),
    (3, OpCode::SetAcl),
    (12, OpCode::GetData),
    (8, OpCode::Exists),
    (5, OpCode::GetAcl),
    (5, OpCode::GetChildren),
    (5, OpCode::GetChildren2),
    (3, OpCode::GetAllChildrenNumber),
    (3, OpCode::GetEphemerals),
    (6, OpCode::Multi),
    (5, OpCode::MultiRead),
    (3, OpCode::Sync),
    (1, OpCode::Reconfig),
    (3, OpCode::SetWatches),
    (3, OpCode::SetWatches2),
    (4, OpCode::AddWatch),
    (2, OpCode::RemoveWatches),
    (2, OpCode::CheckWatches),
    (2, OpCode::Auth),
    (2, OpCode::WhoAmI),
    (3, OpCode::Ping),
];
const LAST: [i32; 10] = [-11, -11, -11, 102, 99, 0, 13, 20, -10, i32::MAX];

pub fn conversation(rng: &mut Rng) -> Conversation {
    let timeout_ms = rng.pick(&[1, 4_000, 10_000]);
    let mut bytes = connect_request(SessionId::NONE, timeout_ms);
    let is_spoiled = rng.percent(2);
    if is_spoiled {
        let at = rng.below(bytes.len());
        bytes[at] ^= 1 << rng.below(8);
    }
    let count = 1 + rng.below(REQUESTS_MAX);
    for xid in 1..=count {
        bytes.extend(request(xid as i32, rng));
    }
    let mut end = End::Answered;
    match rng.below(10) {
        0..=3 => bytes.extend(last_request(rng)),
        4 => {
            let len = rng.below(64);
            bytes.extend(rng.bytes(len));
            end = End::HalfSent;
        }
        5 => {
            let whole = request(1, rng);
            bytes.extend(&whole[..rng.below(whole.len())]);
            end = End::HalfSent;
        }
        _ => {}
    }
    Conversation { bytes, count, end: if is_spoiled { End::Unanswered } else { end } }
}

fn request(xid: i32, rng: &mut Rng) -> Vec<u8> {
    let op = rng.weighted(&OPERATIONS);
    let mut body = Draft::default();
    put_body(op, &mut body, rng);
    // Apache closes the connection of a client whose authentication it rejects.
    if op != OpCode::Auth && rng.percent(SPOILED) {
        body.spoil(rng);
    }
    with_header(xid, op.code(), &body.bytes)
}

fn last_request(rng: &mut Rng) -> Vec<u8> {
    let len = rng.below(40);
    let body = rng.bytes(len);
    with_header(rng.next_u64() as i32, rng.pick(&LAST), &body)
}

fn with_header(xid: i32, op: i32, body: &[u8]) -> Vec<u8> {
    let mut frame = xid.to_be_bytes().to_vec();
    frame.extend(op.to_be_bytes());
    frame.extend(body);
    framed(&frame)
}

/// Writes a valid body of a client's request. A peer forwards the same body.
pub fn put_body(op: OpCode, body: &mut Draft, rng: &mut Rng) {
    match op {
        OpCode::Create | OpCode::Create2 | OpCode::CreateContainer | OpCode::CreateTtl => {
            put_create(op, body, rng);
        }
        OpCode::SetData => {
            body.text(&path(rng));
            body.buf(&data(rng));
            body.int(version(rng));
        }
        OpCode::SetAcl => {
            body.text(&path(rng));
            put_acl(body, rng);
            body.int(version(rng));
        }
        OpCode::Delete | OpCode::Check => {
            body.text(&path(rng));
            body.int(version(rng));
        }
        OpCode::GetData | OpCode::Exists | OpCode::GetChildren | OpCode::GetChildren2 => {
            body.text(&path(rng));
            body.byte(rng.below(3) as u8);
        }
        OpCode::AddWatch | OpCode::RemoveWatches | OpCode::CheckWatches => {
            body.text(&path(rng));
            body.int(rng.below(6) as i32);
        }
        OpCode::Multi => put_multi(body, rng, &[OpCode::Create, OpCode::Delete, OpCode::SetData]),
        OpCode::MultiRead => put_multi(body, rng, &[OpCode::GetData, OpCode::GetChildren]),
        OpCode::Reconfig => {
            body.text("server.9=127.0.0.1:1:2;3");
            body.text("");
            body.text("");
            body.long(-1);
        }
        OpCode::Auth => {
            body.int(0);
            body.text("digest");
            body.text(&format!("user{}:password", rng.below(20)));
        }
        OpCode::SetWatches | OpCode::SetWatches2 => {
            body.long(rng.next_u64() as i64 >> rng.below(64));
            for _ in 0..if op == OpCode::SetWatches { 3 } else { 5 } {
                let count = rng.below(5);
                body.int(count as i32);
                (0..count).for_each(|_| body.text(&path(rng)));
            }
        }
        OpCode::WhoAmI | OpCode::Ping => {}
        _ => body.text(&path(rng)),
    }
}

fn put_create(op: OpCode, body: &mut Draft, rng: &mut Rng) {
    body.text(&path(rng));
    body.buf(&data(rng));
    put_acl(body, rng);
    // Few nodes are persistent, so that the tree does not grow with the number of requests.
    body.int(match op {
        OpCode::CreateContainer => 4,
        OpCode::CreateTtl => 5,
        _ if rng.percent(1) => rng.below(8) as i32,
        _ => rng.pick(&[0, 0, 1, 3]),
    });
    if op == OpCode::CreateTtl {
        body.long(1 + rng.below(5_000) as i64);
    }
}

fn put_acl(body: &mut Draft, rng: &mut Rng) {
    const ENTRIES: [(&str, &str); 6] = [
        ("world", "anyone"),
        ("auth", ""),
        ("ip", "127.0.0.1"),
        ("ip", "10.0.0.0/8"),
        ("digest", "user1:hash"),
        ("x509", "CN=a"),
    ];
    let count = if rng.percent(70) { 1 } else { rng.below(20) };
    body.int(count as i32);
    for at in 0..count {
        // The first entry allows all clients, so that nodes remain usable.
        let (scheme, id) = if at == 0 { ENTRIES[0] } else { rng.pick(&ENTRIES) };
        body.int(if at == 0 { 31 } else { rng.below(64) as i32 });
        body.text(scheme);
        body.text(id);
    }
}

fn put_multi(body: &mut Draft, rng: &mut Rng, ops: &[OpCode]) {
    for _ in 0..rng.below(12) {
        let op = if rng.percent(3) { OpCode::Check } else { rng.pick(ops) };
        put_multi_header(body, op.code(), 0);
        put_body(op, body, rng);
    }
    put_multi_header(body, -1, 1);
}

fn put_multi_header(body: &mut Draft, op: i32, done: u8) {
    body.int(op);
    body.byte(done);
    body.int(-1);
}

fn version(rng: &mut Rng) -> i32 {
    if rng.percent(80) { -1 } else { rng.below(5) as i32 }
}

fn data(rng: &mut Rng) -> Vec<u8> {
    let len = if rng.percent(1) { rng.below(50_000) } else { rng.below(60) };
    vec![b'd'; len]
}

fn path(rng: &mut Rng) -> String {
    match rng.below(100) {
        0..=54 => format!("/fuzz{}", rng.below(40)),
        55..=89 => format!("/fuzz{}/child{}", rng.below(40), rng.below(10)),
        90 => "/".to_owned(),
        91 => "/zookeeper/quota".to_owned(),
        92 => format!("/zookeeper/quota/fuzz{}/zookeeper_limits", rng.below(40)),
        93 => "/zookeeper/config".to_owned(),
        94 => "/a".repeat(rng.below(300)),
        95 => "/fuzz1/../fuzz2".to_owned(),
        96 => "//".to_owned(),
        97 => String::new(),
        98 => "/\u{1f600}\u{0}\u{e000}".to_owned(),
        _ => "/missing".to_owned(),
    }
}
