//! The beginning, moving and end of sessions.

use ironkeeper_engine::EngineConfig;
use ironkeeper_engine::conn::CloseReason;
use ironkeeper_proto::{OpCode, SessionId};

use crate::world::*;

#[test]
fn timeouts_are_kept_within_bounds() {
    let mut world = World::new();
    let config = EngineConfig::default();
    assert_eq!(world.connect_with(0).timeout_ms, config.session_timeout_min_ms);
    assert_eq!(world.connect_with(-5).timeout_ms, config.session_timeout_min_ms);
    assert_eq!(world.connect_with(i32::MAX).timeout_ms, config.session_timeout_max_ms);
    assert_eq!(world.connect_with(9000).timeout_ms, 9000);
}

#[test]
fn a_silent_session_ends_with_its_ephemerals_and_a_talking_one_does_not() {
    let mut world = World::new();
    let (mut silent, mut talking) = (world.connect_with(4000), world.connect_with(4000));
    silent.create(&mut world, "/gone", Ephemeral).unwrap();
    talking.create(&mut world, "/stays", Ephemeral).unwrap();
    for _ in 0..5 {
        world.advance(2000);
        world.sync();
        talking.call(&mut world, OpCode::Ping, b"");
    }
    assert_eq!(talking.children(&mut world, "/").unwrap(), ["stays", "zookeeper"]);
    let mut back = world.dial();
    assert_eq!(back.handshake(&mut world, silent.session, silent.password, 4000), "refused");
}

#[test]
fn a_session_outlives_its_connection_and_moves_to_a_new_one() {
    let mut world = World::new();
    let mut first = world.connect();
    first.create(&mut world, "/e", Ephemeral).unwrap();
    first.disconnect(&mut world);
    let mut second = world.dial();
    assert_eq!(second.handshake(&mut world, first.session, first.password, 10_000), "open");
    assert_eq!(second.session, first.session);
    assert_eq!(second.stat(&mut world, "/e").unwrap().ephemeral_owner, first.session.0);
}

#[test]
fn a_wrong_password_disturbs_nobody() {
    let mut world = World::new();
    let mut owner = world.connect();
    let mut thief = world.dial();
    assert_eq!(thief.handshake(&mut world, owner.session, [9; 16], 10_000), "refused");
    assert!(owner.create(&mut world, "/still-here", Persistent).is_ok());
}

#[test]
fn an_unknown_session_is_refused() {
    let mut world = World::new();
    let session = SessionId(0x0100_0000_dead_beef);
    let mut client = world.dial();
    assert_eq!(client.handshake(&mut world, session, session.password(), 10_000), "refused");
}

#[test]
fn a_closed_session_takes_its_ephemerals_along_in_one_transaction() {
    let mut world = World::new();
    let (mut leaving, mut watching) = (world.connect(), world.connect());
    for name in ["/e1", "/e2"] {
        leaving.create(&mut world, name, Ephemeral).unwrap();
        watching.send(&mut world, OpCode::Exists, &read(name, true));
    }
    watching.heard(&world);
    // The creation of one more ephemeral is in flight when the session ends; it is deleted as well.
    leaving.send(&mut world, OpCode::Create, &create("/e3", b"", Ephemeral));
    let close = leaving.send(&mut world, OpCode::CloseSession, b"");
    world.sync();
    assert_eq!(leaving.heard(&world), ["#3 @5 /e3".to_owned(), format!("#{close} @6 ")]);
    let mut heard = watching.heard(&world);
    heard.sort();
    assert_eq!(heard, ["deleted /e1 @6", "deleted /e2 @6"]);
    assert_eq!(watching.children(&mut world, "/").unwrap(), ["zookeeper"]);
}

#[test]
fn the_end_of_a_session_is_reported_with_its_client_and_its_ephemerals() {
    let mut world = World::new();
    let (mut closing, mut lost) = (world.connect_with(4000), world.connect_with(4000));
    closing.create(&mut world, "/e1", Ephemeral).unwrap();
    closing.create(&mut world, "/e2", Ephemeral).unwrap();
    lost.create(&mut world, "/e3", Ephemeral).unwrap();
    closing.send(&mut world, OpCode::CloseSession, b"");
    world.sync();
    let peer = lost.conn.peer;
    // Its address is known after its connection is closed.
    lost.disconnect(&mut world);
    world.expire(lost.session);
    world.sync();
    let ended: Vec<_> = world
        .ended
        .iter()
        .map(|end| (end.session, end.timeout_ms, end.ephemerals, end.expired))
        .collect();
    assert_eq!(ended, [(closing.session, 4000, 2, false), (lost.session, 4000, 1, true)]);
    assert_eq!(world.ended[1].client, Some(peer));
}

#[test]
fn a_full_disk_refuses_new_sessions_and_keeps_those_there_are() {
    let mut world = World::new();
    let old = world.connect();
    world.db.disk_full.store(true, std::sync::atomic::Ordering::Relaxed);
    let mut new = world.dial();
    assert_eq!(new.handshake(&mut world, SessionId::NONE, [0; 16], 4000), "silence");
    assert_eq!(new.conn.close_reason(), Some(CloseReason::DiskFull));
    let mut back = world.dial();
    assert_eq!(back.handshake(&mut world, old.session, old.password, 4000), "open");
    world.db.disk_full.store(false, std::sync::atomic::Ordering::Relaxed);
    let mut new = world.connect();
    new.create(&mut world, "/there", Ephemeral).unwrap();
}

#[test]
fn writes_behind_the_end_of_a_session_fail() {
    let mut world = World::new();
    let mut client = world.connect_with(4000);
    let mut other = world.connect();
    client.create(&mut world, "/e", Ephemeral).unwrap();
    // The closeSession is proposed but not yet durable when another write arrives.
    world.advance(8000);
    client.send(&mut world, OpCode::Create, &create("/late", b"", Ephemeral));
    world.sync();
    assert_eq!(other.stat(&mut world, "/late"), Err(-101));
    assert_eq!(other.stat(&mut world, "/e"), Err(-101));
}

#[test]
fn a_session_can_be_ended_before_its_time() {
    let mut world = World::new();
    let (mut ending, mut other) = (world.connect(), world.connect());
    ending.create(&mut world, "/gone", Ephemeral).unwrap();
    world.expire(ending.session);
    world.expire(ending.session);
    world.expire(SessionId(1));
    world.sync();
    assert_eq!(other.children(&mut world, "/").unwrap(), ["zookeeper"]);
    let mut back = world.dial();
    assert_eq!(back.handshake(&mut world, ending.session, ending.password, 4000), "refused");
}

/// Found by permutation: the reads in between are not served any more, and clients match replies by
/// the order of their requests.
#[test]
fn nothing_is_said_after_the_end_of_a_session() {
    let mut world = World::new();
    let mut client = world.connect();
    client.send(&mut world, OpCode::Create, &create("/a", b"", Persistent));
    client.send(&mut world, OpCode::GetData, &read("/a", false));
    world.expire(client.session);
    client.send(&mut world, OpCode::SetData, &set_data("/a", b"x", -1));
    world.sync();
    let heard = client.heard(&world);
    assert_eq!(heard.len(), 1, "{heard:?}");
    assert!(heard[0].starts_with("#1 "), "{heard:?}");
}

#[test]
fn containers_and_ttl_nodes_go_when_their_time_has_come() {
    let mut config = EngineConfig::default();
    config.tree.ttl_enabled = true;
    let mut world = World::with(config);
    let mut client = world.connect_with(40_000);
    client.call(&mut world, OpCode::CreateContainer, &create("/used", b"", Container));
    client.call(&mut world, OpCode::CreateContainer, &create("/unused", b"", Container));
    let ttl = create_ttl("/ttl", PersistentWithTtl, 1000);
    client.call(&mut world, OpCode::CreateTtl, &ttl);
    client.create(&mut world, "/used/child", Persistent).unwrap();
    client.delete(&mut world, "/used/child").unwrap();
    for _ in 0..8 {
        world.advance(10_000);
        world.sync();
        client.call(&mut world, OpCode::Ping, b"");
    }
    assert_eq!(client.children(&mut world, "/").unwrap(), ["unused", "zookeeper"]);
}

#[test]
fn after_a_pause_of_the_process_nobody_is_ended_before_it_could_be_heard() {
    let mut world = World::new();
    let (mut lively, silent) = (world.connect(), world.connect());
    world.advance(3000);
    lively.call(&mut world, OpCode::Ping, &[]);
    // Longer than both timeouts. The pings of `lively` wait in its socket meanwhile.
    world.stand_still(60_000);
    world.sync();
    for client in [&lively, &silent] {
        assert!(client.conn.close_reason().is_none(), "nobody had a chance to be heard");
    }
    lively.call(&mut world, OpCode::Ping, &[]);
    // The session of `silent` gets only the rest of its timeout.
    world.advance(9000);
    world.sync();
    assert!(lively.conn.close_reason().is_none());
    assert!(silent.conn.close_reason().is_some());
}
