//! Limits and throttles: which requests wait, which are rejected, and that every slot and byte is
//! returned.

use ironkeeper_engine::EngineConfig;
use ironkeeper_engine::auth::{AuthConfig, DigestAlgorithm};
use ironkeeper_engine::io::{QuotaResource, Warning};
use ironkeeper_engine::outbox::AtSocket;
use ironkeeper_engine::request_throttle::RequestThrottleConfig;
use ironkeeper_engine::throttle::ConnectionThrottleConfig;
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::{Acl, OpCode, Perms, SessionId};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::world::*;

const CONNECTIONS: ConnectionThrottleConfig = ConnectionThrottleConfig {
    tokens_max: 6,
    fill_time_ms: 1000,
    fill_tokens: 3,
    new_session_tokens: 3,
    renewed_session_tokens: 2,
    freeze_time_ms: None,
    drop_increase: 0.02,
    drop_decrease: 0.002,
    decrease_ratio: 0.0,
};

const REQUESTS: RequestThrottleConfig = RequestThrottleConfig {
    requests_max: 1,
    look_interval_ms: 100,
    drop_stale: true,
    stale_when_gone: true,
    stale_when_late: false,
    refuse_after_ms: None,
};

fn throttled(config: RequestThrottleConfig) -> World {
    World::with(EngineConfig { request_throttle: Some(config), ..EngineConfig::default() })
}

fn count(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}

/// Returns one request as it is sent.
fn request(xid: i32, op: OpCode, body: &[u8]) -> Vec<u8> {
    let mut frame = Vec::new();
    frame.put_i32(xid);
    frame.put_i32(op.code());
    frame.extend_from_slice(body);
    framed(&frame)
}

fn write(xid: i32) -> Vec<u8> {
    request(xid, OpCode::Create, &create("/n-", b"", PersistentSequential))
}

fn slots(world: &World) -> (usize, usize) {
    let throttle = world.db.request_throttle.as_ref().expect("the throttle is on");
    (throttle.taken(), throttle.waiting())
}

#[test]
fn sessions_are_opened_no_faster_than_tokens_come() {
    let config = EngineConfig { connection_throttle: Some(CONNECTIONS), ..EngineConfig::default() };
    let mut world = World::with(config);
    let first = world.connect();
    world.connect();
    let mut late = world.dial();
    assert_eq!(late.handshake(&mut world, SessionId::NONE, [0; 16], 10_000), "silence");
    assert_eq!(count(&world.db.stats.connections_rejected), 1);
    assert_eq!(world.db.stats.throttle.token_deficit.totals().most, 6);

    world.advance(1001);
    let mut again = world.dial();
    assert_eq!(again.handshake(&mut world, first.session, first.password, 10_000), "open");
    let mut late = world.dial();
    assert_eq!(
        late.handshake(&mut world, SessionId::NONE, [0; 16], 10_000),
        "silence",
        "coming back costs less, but not nothing"
    );
}

#[test]
fn without_a_throttle_no_tokens_are_missing() {
    let mut world = World::new();
    for _ in 0..20 {
        world.connect();
    }
    let deficit = world.db.stats.throttle.token_deficit.totals();
    assert_eq!((deficit.count, deficit.most), (20, 0));
    assert_eq!(world.db.connection_drop_probability(), 0.0);
}

#[test]
fn writes_beyond_the_limit_wait_their_turn_in_order() {
    let mut world = throttled(REQUESTS);
    let (mut a, mut b, mut c) = (world.connect(), world.connect(), world.connect());
    assert_eq!(a.raw(&mut world, &write(1)), "read");
    assert_eq!(b.raw(&mut world, &write(1)), "wait");
    assert_eq!(c.raw(&mut world, &write(1)), "wait");
    assert_eq!((world.unsynced.len(), slots(&world)), (1, (1, 2)));
    assert_eq!(b.raw(&mut world, &[]), "wait", "woken for nothing");

    world.sync();
    assert_eq!(slots(&world), (1, 1), "the slot is kept for the next in line");
    assert_eq!(a.raw(&mut world, &write(2)), "wait", "nobody slips in");
    assert_eq!(c.raw(&mut world, &[]), "wait");
    assert_eq!(b.raw(&mut world, &[]), "read");
    world.sync();
    assert_eq!(c.raw(&mut world, &[]), "read");
    world.sync();
    assert_eq!(a.raw(&mut world, &[]), "read");
    world.sync();
    assert_eq!(a.heard(&world), ["#1 @4 /n-0000000000", "#2 @7 /n-0000000003"]);
    assert_eq!(b.heard(&world), ["#1 @5 /n-0000000001"]);
    assert_eq!(c.heard(&world), ["#1 @6 /n-0000000002"]);
    assert_eq!(slots(&world), (0, 0));
    assert_eq!(count(&world.db.stats.throttle.requests_waited), 3);
}

#[test]
fn reads_wait_for_nobody_but_their_own_connection() {
    let mut world = throttled(REQUESTS);
    let (mut a, mut b, mut reader) = (world.connect(), world.connect(), world.connect());
    a.raw(&mut world, &write(1));
    let mut both = write(1);
    both.extend(request(2, OpCode::Exists, &read("/", false)));
    assert_eq!(b.raw(&mut world, &both), "wait");
    reader.send(&mut world, OpCode::Exists, &read("/", false));
    assert_eq!(reader.heard(&world).len(), 1);
    assert_eq!(b.heard(&world).len(), 0);
    world.sync();
    b.raw(&mut world, &[]);
    world.sync();
    assert_eq!(b.heard(&world).len(), 2);
}

#[test]
fn a_new_session_waits_as_well_and_pays_its_token_once() {
    let mut world = World::with(EngineConfig {
        connection_throttle: Some(ConnectionThrottleConfig { tokens_max: 9, ..CONNECTIONS }),
        request_throttle: Some(REQUESTS),
        ..EngineConfig::default()
    });
    let mut a = world.connect();
    let mut back = world.connect();
    a.raw(&mut world, &write(1));
    let mut late = world.dial();
    // A sync does not help: the handshake waits for the slot.
    assert_eq!(late.handshake(&mut world, SessionId::NONE, [0; 16], 10_000), "silence");
    assert_eq!(late.conn.opening_timeout_ms(), Some(10_000));
    assert_eq!(late.raw(&mut world, &[]), "wait", "the session is being opened");
    world.sync();
    assert!(late.conn.has_session());
    assert_eq!(slots(&world), (0, 0));
    assert_eq!(world.db.stats.throttle.token_deficit.totals().count, 3);
    // Resuming a session needs no transaction and no slot.
    a.raw(&mut world, &write(2));
    back.disconnect(&mut world);
    world.advance(1001);
    let mut again = world.dial();
    let seen = again.handshake(&mut world, back.session, back.password, 10_000);
    assert_eq!(seen, "open");
}

#[test]
fn who_leaves_the_line_gives_way_to_the_next() {
    let mut world = throttled(REQUESTS);
    let mut clients: Vec<Client> = (0..4).map(|_| world.connect()).collect();
    for client in &mut clients {
        client.raw(&mut world, &write(1));
    }
    assert_eq!(slots(&world), (1, 3));
    clients[1].disconnect(&mut world);
    assert_eq!(slots(&world), (1, 2));
    world.sync();
    // The third client was granted the slot and disconnects without using it.
    clients[2].disconnect(&mut world);
    assert_eq!(slots(&world), (1, 0));
    assert_eq!(clients[3].raw(&mut world, &[]), "read");
    world.sync();
    assert_eq!(clients[3].heard(&world).len(), 1);
    assert_eq!(slots(&world), (0, 0));
}

#[test]
fn what_waited_too_long_is_refused_in_order_and_without_a_transaction() {
    let mut world = throttled(RequestThrottleConfig { refuse_after_ms: Some(50), ..REQUESTS });
    let (mut a, mut b) = (world.connect(), world.connect());
    a.raw(&mut world, &write(1));
    let mut sent = write(1);
    sent.extend(request(2, OpCode::GetData, &read("/", false)));
    sent.extend(request(-2, OpCode::Ping, &[]));
    sent.extend(request(4, OpCode::Sync, b"\0\0\0\x01/"));
    assert_eq!(b.raw(&mut world, &sent), "wait");
    world.advance(51);
    world.sync();
    let proposed = world.log.len();
    b.raw(&mut world, &[]);
    // A request that arrives now has not waited.
    b.raw(&mut world, &write(5));
    world.sync();
    assert_eq!(
        b.heard(&world),
        [
            "#1 @3 error -127",
            "#2 @3 error -127",
            "#-2 @3 ",
            "#4 @3 error -127",
            "#5 @4 /n-0000000001"
        ]
    );
    assert_eq!(world.log.len(), proposed + 1);
    assert_eq!(count(&world.db.stats.throttle.requests_refused), 3);
    assert_eq!(slots(&world), (0, 0));
}

#[test]
fn a_session_can_be_closed_however_long_that_waited() {
    let mut world = throttled(RequestThrottleConfig {
        refuse_after_ms: Some(50),
        stale_when_late: true,
        ..REQUESTS
    });
    let (mut a, mut b) = (world.connect_with(40_000), world.connect_with(4000));
    a.raw(&mut world, &write(1));
    assert_eq!(b.raw(&mut world, &request(1, OpCode::CloseSession, &[])), "wait");
    world.now.mono_ms += 4001;
    world.sync();
    b.raw(&mut world, &[]);
    world.sync();
    assert_eq!(b.heard(&world), ["#1 @4 "]);
}

#[test]
fn a_request_that_outlived_its_session_ends_the_connection() {
    for drop_stale in [true, false] {
        let config = RequestThrottleConfig { stale_when_late: true, drop_stale, ..REQUESTS };
        let mut world = throttled(config);
        let (mut a, mut b) = (world.connect(), world.connect());
        a.raw(&mut world, &write(1));
        assert_eq!(b.raw(&mut world, &write(1)), "wait");
        world.advance(10_001);
        let stats = &world.db.clone().stats.throttle;
        if drop_stale {
            assert!(b.raw(&mut world, &[]).starts_with("closed: a request waited"));
            b.disconnect(&mut world);
            assert_eq!(slots(&world), (1, 0));
            assert_eq!(count(&stats.stale_requests_dropped), 1);
        } else {
            world.sync();
            assert_eq!(b.raw(&mut world, &[]), "read");
            world.sync();
            assert_eq!(b.heard(&world).len(), 1);
            assert_eq!(count(&stats.stale_requests), 1);
        }
    }
}

#[test]
fn requests_of_a_client_that_is_gone_are_dropped_with_all_that_follows() {
    for (drop_stale, executed) in [(true, 0), (false, 2)] {
        let mut world =
            throttled(RequestThrottleConfig { requests_max: 9, drop_stale, ..REQUESTS });
        let mut client = world.connect();
        let mut sent = write(1);
        sent.extend(request(2, OpCode::CloseSession, &[]));
        let mut submits = Vec::new();
        client.conn.receive(world.now, &world.db, &sent, &mut submits).unwrap();
        client.disconnect(&mut world);
        let before = world.log.len();
        world.submit(submits);
        world.sync();
        assert_eq!(world.log.len() - before, executed);
        assert_eq!(slots(&world), (0, 0));
        assert_eq!(world.db.outstanding.load(Relaxed), 0);
        let stats = &world.db.stats.throttle;
        let expected = if drop_stale { (2, 0, 0) } else { (0, 1, 2) };
        let counted = (&stats.stale_requests_dropped, &stats.stale_requests, &stats.stale_replies);
        assert_eq!((count(counted.0), count(counted.1), count(counted.2)), expected);
    }
}

#[test]
fn the_end_of_a_session_outlives_its_connection() {
    let mut world = throttled(RequestThrottleConfig { requests_max: 9, ..REQUESTS });
    let mut client = world.connect();
    let mut submits = Vec::new();
    let close = request(1, OpCode::CloseSession, &[]);
    client.conn.receive(world.now, &world.db, &close, &mut submits).unwrap();
    client.disconnect(&mut world);
    world.submit(submits);
    world.sync();
    assert!(!world.db.read().sessions.contains(client.session));
}

#[test]
fn those_in_line_are_looked_at_again_before_long() {
    let mut world = throttled(REQUESTS);
    let (mut a, mut b) = (world.connect(), world.connect());
    a.raw(&mut world, &write(1));
    world.advance(0);
    let quiet = world.engine.deadline_ms();
    b.raw(&mut world, &write(1));
    assert!(world.engine.deadline_ms() <= world.now.mono_ms + REQUESTS.look_interval_ms);
    b.disconnect(&mut world);
    assert_eq!(world.engine.deadline_ms(), quiet);
}

#[test]
fn a_limit_of_zero_lets_every_connection_have_one_request_in_work() {
    let config = EngineConfig { outstanding_max: 0, ..EngineConfig::default() };
    let mut world = World::with(config);
    let (mut a, mut b) = (world.connect(), world.connect());
    let two = [write(1), write(2)].concat();
    assert_eq!(a.raw(&mut world, &two), "wait");
    assert_eq!(b.raw(&mut world, &two), "wait");
    assert_eq!(world.unsynced.len(), 2);
    world.sync();
    assert_eq!(a.raw(&mut world, &[]), "read");
    world.sync();
    assert_eq!(a.heard(&world).len(), 2);
}

fn large_world() -> World {
    World::with(EngineConfig {
        large_request_bytes_min: Some(1000),
        large_request_bytes_max: 2500,
        ..EngineConfig::default()
    })
}

fn large_bytes(world: &World) -> usize {
    world.db.large_requests.as_ref().expect("the limit is on").bytes()
}

fn large_write(xid: i32, bytes: usize) -> Vec<u8> {
    let empty = request(xid, OpCode::Create, &create("/n-", b"", PersistentSequential)).len() - 4;
    let data = vec![7; bytes - empty];
    request(xid, OpCode::Create, &create("/n-", &data, PersistentSequential))
}

#[test]
fn large_requests_in_work_may_not_be_too_many_bytes_together() {
    let mut world = large_world();
    let (mut a, mut b) = (world.connect(), world.connect());
    a.raw(&mut world, &large_write(1, 1000));
    assert_eq!(large_bytes(&world), 0, "not large");
    a.raw(&mut world, &large_write(2, 1001));
    assert_eq!(large_bytes(&world), 1001);
    assert!(b.raw(&mut world, &large_write(1, 1500)).starts_with("closed: too many bytes"));
    assert_eq!(count(&world.db.stats.large_requests_rejected), 1);
    a.raw(&mut world, &large_write(3, 1499));
    world.sync();
    assert_eq!(large_bytes(&world), 0);
    assert_eq!(a.heard(&world).len(), 3);
}

#[test]
fn a_large_request_that_has_no_room_is_not_even_received() {
    let mut world = large_world();
    let (mut a, mut b) = (world.connect(), world.connect());
    a.raw(&mut world, &large_write(1, 2000));
    let frame = large_write(1, 2000);
    assert!(b.raw(&mut world, &frame[..20]).starts_with("closed: too many bytes"));
}

#[test]
fn large_requests_give_their_bytes_back_on_every_way_out() {
    let mut world = large_world();
    let mut a = world.connect();
    // Disconnected before the reply.
    a.raw(&mut world, &large_write(1, 2000));
    a.disconnect(&mut world);
    world.sync();
    assert_eq!(large_bytes(&world), 0);
    // Malformed, so rejected without a transaction.
    let mut b = world.connect();
    b.raw(&mut world, &request(1, OpCode::Create, &[0x7f; 2000]));
    world.sync();
    assert_eq!(b.heard(&world), ["#1 @3 error -5"]);
    assert_eq!(large_bytes(&world), 0);
    // A read that waits behind a write, and is dropped with its connection.
    b.raw(&mut world, &write(2));
    b.raw(&mut world, &request(3, OpCode::SetWatches, &[0; 2000]));
    assert_eq!(large_bytes(&world), 2008);
    b.disconnect(&mut world);
    assert_eq!(large_bytes(&world), 0);
    // A read that is served immediately.
    let mut c = world.connect();
    c.raw(&mut world, &request(1, OpCode::SetWatches, &[0; 2000]));
    assert_eq!((c.heard(&world).len(), large_bytes(&world)), (1, 0));
}

#[test]
fn a_large_request_in_line_holds_its_bytes_once() {
    let mut world = World::with(EngineConfig {
        large_request_bytes_min: Some(1000),
        large_request_bytes_max: 2500,
        request_throttle: Some(REQUESTS),
        ..EngineConfig::default()
    });
    let (mut a, mut b) = (world.connect(), world.connect());
    a.raw(&mut world, &write(1));
    assert_eq!(b.raw(&mut world, &large_write(1, 2000)), "wait");
    assert_eq!(b.raw(&mut world, &[]), "wait");
    assert_eq!(large_bytes(&world), 2000);
    world.sync();
    b.raw(&mut world, &[]);
    assert_eq!(large_bytes(&world), 2000);
    world.sync();
    assert_eq!((b.heard(&world).len(), large_bytes(&world)), (1, 0));
}

#[test]
fn passwords_are_hashed_as_configured() {
    let digest_algorithm = DigestAlgorithm::Sha3With256;
    let super_digest = Some(digest_algorithm.id("super:secret"));
    let auth = AuthConfig { digest_algorithm, super_digest, ..AuthConfig::default() };
    let mut world = World::with(EngineConfig { auth, ..EngineConfig::default() });
    let mut owner = world.connect();
    let list = [Acl::new(Perms::ALL, "digest", &digest_algorithm.id("u:p"))];
    let (error, _) =
        owner.call(&mut world, OpCode::Create, &create_acl("/a", b"", &list, Persistent));
    assert_eq!(error, 0);
    assert_eq!(owner.set(&mut world, "/a", b"x").unwrap_err(), -102);
    assert_eq!(owner.auth(&mut world, "u:p"), 0);
    assert!(owner.set(&mut world, "/a", b"x").is_ok());
    let mut root = world.connect();
    assert_eq!(root.auth(&mut world, "super:secret"), 0);
    assert!(root.set(&mut world, "/a", b"y").is_ok());
}

fn with_quota(world: &mut World, client: &mut Client, limits: &str) {
    client.create(world, "/zookeeper/quota/q", Persistent).unwrap();
    let node = create("/zookeeper/quota/q/zookeeper_limits", limits.as_bytes(), Persistent);
    assert_eq!(client.call(world, OpCode::Create, &node).0, 0);
    client.create(world, "/zookeeper/quota/q/zookeeper_stats", Persistent).unwrap();
}

#[test]
fn less_data_that_is_still_too_much_is_refused() {
    let config = EngineConfig { enforce_quota: true, ..EngineConfig::default() };
    let mut world = World::with(config);
    let mut client = world.connect();
    client.create(&mut world, "/q", Persistent).unwrap();
    client.set(&mut world, "/q", &[7; 100]).unwrap();
    with_quota(&mut world, &mut client, "count=-1,bytes=-1=;byteHardLimit=50;countHardLimit=-1");
    assert_eq!(client.set(&mut world, "/q", &[7; 80]), Err(-125));
    assert!(client.set(&mut world, "/q", &[8; 100]).is_ok(), "no less and no more");
    assert!(client.set(&mut world, "/q", &[7; 50]).is_ok());
    assert_eq!(client.set(&mut world, "/q", &[7; 51]), Err(-125));
}

#[test]
fn a_soft_quota_tells_the_operator_and_refuses_nothing() {
    let exceeded = Warning::QuotaExceeded {
        path: "/q".to_owned(),
        resource: QuotaResource::Nodes,
        used: 2,
        limit: 1,
        is_hard: false,
    };
    for (enforce_quota, told) in [(true, &[exceeded][..]), (false, &[])] {
        let mut world = World::with(EngineConfig { enforce_quota, ..EngineConfig::default() });
        let mut client = world.connect();
        client.create(&mut world, "/q", Persistent).unwrap();
        with_quota(&mut world, &mut client, "count=1,bytes=-1");
        for path in ["/q/a", "/q/b"] {
            client.create(&mut world, path, Persistent).unwrap();
        }
        assert_eq!(world.warnings, told);
        world.advance(15_000);
        let mut client = world.connect();
        client.create(&mut world, "/q/c", Persistent).unwrap();
        assert_eq!(world.warnings.len(), 2 * told.len(), "again after a while");
    }
}

/// Returns a multiRead that reads the same node `count` times.
fn many_reads(xid: i32, path: &str, count: usize) -> Vec<u8> {
    let reads = vec![(OpCode::GetData, read(path, false)); count];
    request(xid, OpCode::MultiRead, &multi(&reads))
}

#[test]
fn a_multi_read_sends_large_data_from_where_it_lies_in_the_tree() {
    const DATA_BYTES: usize = 100_000;
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/large", Persistent).unwrap();
    client.set(&mut world, "/large", &[7; DATA_BYTES]).unwrap();
    client.raw(&mut world, &many_reads(1, "/large", 600));
    let outgoing = client.conn.take_output(&mut Vec::new());
    let mut data: Vec<_> = outgoing.pieces.iter().filter(|it| it.len() == DATA_BYTES).collect();
    assert_eq!((data.len(), outgoing.shared_len), (600, 600 * DATA_BYTES));
    data.dedup_by_key(|it| it.as_ptr());
    assert_eq!(data.len(), 1, "600 references to one block of memory");

    client.raw(&mut world, &many_reads(2, "/large", 2));
    let (header, body) = client.frames(&world).pop().expect("a reply");
    assert_eq!((header.xid.0, header.err), (2, 0));
    assert_eq!(body.iter().filter(|byte| **byte == 7).count(), 2 * DATA_BYTES);
}

#[test]
fn a_multi_read_makes_a_long_list_of_children_once() {
    let mut world = World::new();
    let mut client = world.connect();
    let names: Vec<String> = (0..600).map(|number| format!("/child-{number}")).collect();
    for name in &names {
        client.create(&mut world, name, Persistent).unwrap();
    }
    let reads = vec![(OpCode::GetChildren, read("/", false)); 50];
    client.raw(&mut world, &request(1, OpCode::MultiRead, &multi(&reads)));
    let outgoing = client.conn.take_output(&mut Vec::new());
    let mut lists: Vec<_> = outgoing.pieces.iter().filter(|it| it.len() > 4096).collect();
    assert_eq!((lists.len(), outgoing.shared_len), (50, 0));
    lists.dedup_by_key(|it| it.as_ptr());
    assert_eq!(lists.len(), 1);
    // The same list as that of a getChildren.
    client.raw(&mut world, &request(2, OpCode::GetChildren, &read("/", false)));
    let (_, body) = client.frames(&world).pop().expect("a reply");
    assert_eq!(body[..], lists[0][..]);
}

#[test]
fn unsent_bytes_are_counted_until_they_have_left_or_their_connection_ends() {
    let mut world = World::new();
    let (mut a, mut b) = (world.connect(), world.connect());
    a.create(&mut world, "/small", Persistent).unwrap();
    a.set(&mut world, "/small", &[7; 1000]).unwrap();
    for client in [&mut a, &mut b] {
        client.output();
        client.raw(&mut world, &many_reads(1, "/small", 1000));
    }
    let both = world.db.unsent.bytes();
    assert!(both > 2_000_000, "{both}");
    // The driver has taken the reply, and the kernel accepts it in two steps.
    let outgoing = a.conn.take_output(&mut Vec::new());
    assert!(outgoing.is_counted);
    assert_eq!(world.db.unsent.bytes(), both);
    for (len, left) in [(500_000, both / 2 + 500_000), (0, both / 2)] {
        a.conn.note_unsent(world.now, &world.db, AtSocket { len, shared: 0 });
        assert_eq!(world.db.unsent.bytes(), left);
    }
    b.conn.take_output(&mut Vec::new());
    b.conn.note_unsent(world.now, &world.db, AtSocket { len: 500_000, shared: 0 });
    b.disconnect(&mut world);
    assert_eq!(world.db.unsent.bytes(), 0);
}

#[test]
fn data_in_the_tree_counts_only_if_one_connection_is_sent_a_lot_of_it() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/large", Persistent).unwrap();
    client.set(&mut world, "/large", &[7; 1_000_000]).unwrap();
    client.output();
    client.raw(&mut world, &request(1, OpCode::GetData, &read("/large", false)));
    assert_eq!(world.db.unsent.bytes(), 0);
    client.output();
    client.raw(&mut world, &many_reads(2, "/large", 60));
    assert!(world.db.unsent.bytes() > 50_000_000);
}

#[test]
fn when_all_hold_too_much_an_event_closes_who_has_not_read_those_before() {
    let config = EngineConfig { unsent_bytes_max: 5 << 20, ..EngineConfig::default() };
    let mut world = World::with(config);
    let (mut writer, mut reader) = (world.connect(), world.connect());
    let mut deaf: Vec<Client> = (0..3).map(|_| world.connect()).collect();
    let path = format!("/{}", "n".repeat(100_000));
    writer.create(&mut world, &path, Persistent).unwrap();
    for client in deaf.iter_mut().chain([&mut reader]) {
        client.call(&mut world, OpCode::AddWatch, &path_and_number(&path, 1));
    }
    for _ in 0..40 {
        writer.set(&mut world, &path, b"").unwrap();
        assert_eq!(reader.heard(&world).len(), 1);
        assert!(world.db.unsent.bytes() < 6 << 20);
    }
    let closed = deaf.iter().filter(|client| client.conn.close_reason().is_some()).count();
    assert!((1..=3).contains(&closed), "{closed} of those who do not read");
    assert_eq!(reader.conn.close_reason(), None);
}

#[test]
fn long_work_of_one_connection_is_cut_into_turns() {
    let mut world = World::new();
    let mut client = world.connect();
    client.output();
    let sent: Vec<u8> = (1..=3).flat_map(|xid| many_reads(xid, "/", 10_000)).collect();
    assert_eq!(client.raw(&mut world, &sent), "yield");
    assert_eq!(client.frames(&world).len(), 1, "others have their turn after one of them");
    assert_eq!(client.raw(&mut world, &[]), "yield");
    assert_eq!(client.raw(&mut world, &[]), "read");
    let answered: Vec<i32> = client.frames(&world).iter().map(|(it, _)| it.xid.0).collect();
    assert_eq!(answered, [2, 3]);
}

#[test]
fn work_on_reads_that_waited_is_cut_into_turns_as_well() {
    let mut world = World::new();
    let mut client = world.connect();
    let mut sent = write(1);
    sent.extend((2..=4).flat_map(|xid| many_reads(xid, "/", 10_000)));
    client.raw(&mut world, &sent);
    world.sync();
    client.output();
    for (more, xid) in [(true, 2), (true, 3), (false, 4)] {
        assert_eq!(client.conn.serve_lane(world.now, &world.db), more);
        let reply = client.output();
        assert_eq!(reply[4..8], i32::to_be_bytes(xid));
    }
}

#[test]
fn only_a_connect_request_is_waited_for_before_there_is_a_session() {
    let mut world = World::new();
    for (announced, seen) in
        [(45, "read"), (4096, "read"), (4097, MALFORMED), (0xf_ffff, MALFORMED)]
    {
        let mut client = world.dial();
        let begun = [&i32::to_be_bytes(announced)[..], &[0; 20]].concat();
        assert_eq!(client.raw(&mut world, &begun), seen, "{announced}");
    }
}

const MALFORMED: &str = "closed: the connect request is malformed";
