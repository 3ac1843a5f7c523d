//! Rejected writes: their errors and their effects.

use ironkeeper_engine::EngineConfig;
use ironkeeper_proto::{Acl, OpCode, Perms};

use crate::world::*;

#[test]
fn errors_come_in_the_order_of_the_checks() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/e", Ephemeral).unwrap();
    client.create(&mut world, "/p", Persistent).unwrap();
    client.create(&mut world, "/p/c", Persistent).unwrap();
    let mut error = |op, body: Vec<u8>| client.call(&mut world, op, &body).0;
    let bad_flags = {
        let mut body = create("/x", b"", Persistent);
        let at = body.len() - 1;
        body[at] = 99;
        body
    };
    assert_eq!(error(OpCode::Create, bad_flags), -8);
    assert_eq!(error(OpCode::Create, create("/x", b"", PersistentWithTtl)), -6);
    assert_eq!(error(OpCode::Create, create("no-slash", b"", Persistent)), -8);
    assert_eq!(error(OpCode::Create, create_acl("/x", b"", &[], Persistent)), -114);
    assert_eq!(error(OpCode::Create, create("/none/x", b"", Persistent)), -101);
    assert_eq!(error(OpCode::Create, create("/p/../x", b"", Persistent)), -101);
    assert_eq!(error(OpCode::Create, create("/p/.", b"", Persistent)), -8);
    assert_eq!(error(OpCode::Create, create("/p", b"", Persistent)), -110);
    assert_eq!(error(OpCode::Create, create("/e/x", b"", Persistent)), -108);
    assert_eq!(error(OpCode::Delete, delete("/", -1)), -8);
    assert_eq!(error(OpCode::Delete, delete("/zookeeper/config", -1)), -8);
    assert_eq!(error(OpCode::Delete, delete("/none", -1)), -101);
    assert_eq!(error(OpCode::Delete, delete("/p", 7)), -103);
    assert_eq!(error(OpCode::Delete, delete("/p", -1)), -111);
    assert_eq!(error(OpCode::SetData, set_data("/p/", b"", -1)), -8);
    assert_eq!(error(OpCode::SetData, set_data("/p", b"", 7)), -103);
    assert_eq!(error(OpCode::Reconfig, vec![0xff; 20]), -123);
}

#[test]
fn the_operation_and_the_flags_of_a_create_must_agree() {
    let mut config = EngineConfig::default();
    config.tree.ttl_enabled = true;
    let mut world = World::with(config);
    let mut client = world.connect();
    let mut error = |op, body: Vec<u8>| client.call(&mut world, op, &body).0;
    assert_eq!(error(OpCode::Create, create("/c", b"", Container)), -8);
    assert_eq!(error(OpCode::CreateContainer, create("/c", b"", Persistent)), -8);
    assert_eq!(error(OpCode::CreateTtl, create_ttl("/t", Persistent, -1)), -8);
    assert_eq!(error(OpCode::CreateTtl, create_ttl("/t", PersistentWithTtl, 0)), -8);
    assert_eq!(error(OpCode::CreateTtl, create_ttl("/t", PersistentWithTtl, 1 << 40)), -8);
    assert_eq!(error(OpCode::CreateTtl, create_ttl("/t", PersistentWithTtl, 5)), 0);
    assert_eq!(error(OpCode::CreateContainer, create("/c", b"", Container)), 0);
}

/// ZOOKEEPER-2623: a check outside of a multi became a transaction that no server could read.
#[test]
fn internal_operations_are_not_for_clients() {
    for op in [OpCode::CreateSession, OpCode::DeleteContainer, OpCode::Check] {
        let mut world = World::new();
        let mut client = world.connect();
        client.send(&mut world, op, &delete("/zookeeper", 0));
        assert_eq!(client.heard(&world), ["#1 @-1 error -6"], "{op:?}");
        assert!(world.unsynced.is_empty());
    }
}

#[test]
fn a_failed_multi_changes_nothing_and_says_where_it_failed() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/q", Persistent).unwrap();
    let before = world.db.read().tree.digest();
    let parts = [
        (OpCode::Create, create("/q/n-", b"", PersistentSequential)),
        (OpCode::Delete, delete("/none", -1)),
        (OpCode::Check, delete("/q", -1)),
    ];
    let (err, body) = client.call(&mut world, OpCode::Multi, &multi(&parts));
    assert_eq!((err, multi_results(&body)), (0, vec![(-1, 0), (-1, -101), (-1, -2)]));
    assert_eq!(world.db.read().tree.digest(), before);
    // The sequence number of the failed create is available again.
    let name = client.create(&mut world, "/q/n-", PersistentSequential).unwrap();
    assert_eq!(name, "/q/n-0000000000");
}

#[test]
fn a_multi_sees_its_own_effects() {
    let mut world = World::new();
    let mut client = world.connect();
    let parts = [
        (OpCode::Create, create("/m", b"", Persistent)),
        (OpCode::Create2, create("/m/a", b"", Persistent)),
        (OpCode::SetData, set_data("/m", b"1", 0)),
        (OpCode::SetData, set_data("/m", b"2", 1)),
        (OpCode::Check, delete("/m", 2)),
        (OpCode::Delete, delete("/m/a", 0)),
    ];
    let (err, body) = client.call(&mut world, OpCode::Multi, &multi(&parts));
    assert_eq!(err, 0);
    let kinds: Vec<i32> = multi_results(&body).iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [1, 15, 5, 5, 13, 2]);
    let stat = client.stat(&mut world, "/m").unwrap();
    assert_eq!((stat.version, stat.cversion, stat.num_children), (2, 2, 0));
}

#[test]
fn malformed_writes_use_up_a_transaction_id_exactly_where_apache_does() {
    let mut world = World::new();
    let mut client = world.connect();
    let null_path = vec![0xff; 4];
    let mut ids = |op, body: &[u8]| {
        let before = client.stat(&mut world, "/").unwrap();
        let err = client.call(&mut world, op, body).0;
        let used = world.log.last().map(|(zxid, _)| zxid.0).unwrap();
        let _ = before;
        (err, used)
    };
    let base = ids(OpCode::Create, &create("/ok", b"", Persistent)).1;
    assert_eq!(ids(OpCode::Create, b"\0\0"), (-5, base));
    assert_eq!(ids(OpCode::Multi, b"\0\0"), (-5, base + 1));
    let mut null_set = null_path.clone();
    null_set.extend_from_slice(&[0xff; 8]);
    assert_eq!(ids(OpCode::SetData, &null_set), (-8, base + 2));
    assert_eq!(ids(OpCode::Delete, &null_set), (-5, base + 3));
}

#[test]
fn acl_lists_are_brought_into_their_stored_form() {
    let mut world = World::new();
    let mut client = world.connect();
    let bad = |scheme: &str, id: &str| vec![Acl::new(Perms::ALL, scheme, id)];
    for list in [
        bad("world", "someone"),
        bad("digest", "nocolon"),
        bad("ip", "300.1.1.1"),
        bad("auth", ""),
        bad("sasl", "user"),
        bad("nonsense", "x"),
    ] {
        let body = create_acl("/x", b"", &list, Persistent);
        assert_eq!(client.call(&mut world, OpCode::Create, &body).0, -114, "{list:?}");
    }
    assert_eq!(client.auth(&mut world, "u:p"), 0);
    let mut list = bad("auth", "ignored");
    list.extend(bad("auth", ""));
    let body = create_acl("/x", b"", &list, Persistent);
    assert_eq!(client.call(&mut world, OpCode::Create, &body).0, 0);
    let state = world.db.read();
    let node = state.tree.find("/x").unwrap();
    // Duplicates are dropped before `auth` is replaced, not after.
    assert_eq!(node.acl().entries(), [digest_acl("u:p", 31), digest_acl("u:p", 31)]);
}

#[test]
fn permissions_hold_and_the_super_user_passes() {
    let mut config = EngineConfig::default();
    config.auth.super_digest = Some(ironkeeper_engine::auth::digest_id("super:secret"));
    let mut world = World::with(config);
    let (mut owner, mut other, mut root) = (world.connect(), world.connect(), world.connect());
    owner.auth(&mut world, "u:p");
    let body = create_acl("/x", b"", &[digest_acl("u:p", 31)], Persistent);
    owner.call(&mut world, OpCode::Create, &body);
    assert_eq!(other.call(&mut world, OpCode::GetData, &read("/x", false)).0, -102);
    assert_eq!(other.stat(&mut world, "/x"), Err(-102));
    assert_eq!(other.set(&mut world, "/x", b""), Err(-102));
    assert_eq!(other.create(&mut world, "/x/y", Persistent), Err(-102));
    assert!(owner.set(&mut world, "/x", b"").is_ok());
    assert_eq!(root.auth(&mut world, "super:secret"), 0);
    assert!(root.set(&mut world, "/x", b"").is_ok());
}

#[test]
fn hard_quotas_are_enforced_when_asked_for() {
    let config = EngineConfig { enforce_quota: true, ..EngineConfig::default() };
    let mut world = World::with(config);
    let mut client = world.connect();
    client.create(&mut world, "/q", Persistent).unwrap();
    client.create(&mut world, "/zookeeper/quota/q", Persistent).unwrap();
    let limits = b"count=-1,bytes=-1=;byteHardLimit=10;countHardLimit=3";
    let node = create("/zookeeper/quota/q/zookeeper_limits", limits, Persistent);
    assert_eq!(client.call(&mut world, OpCode::Create, &node).0, 0);
    client.create(&mut world, "/zookeeper/quota/q/zookeeper_stats", Persistent).unwrap();
    client.create(&mut world, "/q/1", Persistent).unwrap();
    client.create(&mut world, "/q/2", Persistent).unwrap();
    assert_eq!(client.create(&mut world, "/q/3", Persistent), Err(-125));
    assert!(client.set(&mut world, "/q/1", b"0123456789").is_ok());
    assert_eq!(client.set(&mut world, "/q/2", b"x"), Err(-125));
    client.delete(&mut world, "/q/1").unwrap();
    assert!(client.set(&mut world, "/q/2", b"x").is_ok());
}

#[test]
fn recovery_from_the_log_gives_the_same_tree() {
    let mut world = World::new();
    let mut client = world.connect();
    for at in 0..20 {
        client.create(&mut world, &format!("/n{at}"), Persistent).unwrap();
        client.set(&mut world, &format!("/n{}", at / 2), b"data").unwrap();
    }
    client.create(&mut world, "/e", Ephemeral).unwrap();
    client.delete(&mut world, "/n3").unwrap();
    let config = EngineConfig::default();
    let mut recovered = ironkeeper_engine::recover::Recovered::new(config.tree);
    for (_, record) in &world.log {
        recovered.apply(&ironkeeper_proto::txn::FullTxn::decode(record).unwrap());
    }
    recovered.state.remove_orphans();
    assert_eq!(recovered.digest_mismatches, 0);
    assert_eq!(recovered.state.tree.digest(), world.db.read().tree.digest());
    assert!(recovered.state.sessions.contains(client.session));
}
