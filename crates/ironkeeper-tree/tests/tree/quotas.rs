//! Quotas as clients set and read them.

use ironkeeper_proto::Zxid;
use ironkeeper_proto::txn::CreateKind;
use ironkeeper_tree::{QuotaLimits, QuotaUsage};

use crate::world::World;

const LIMITS: &str = "count=5,bytes=-1=;byteHardLimit=100;countHardLimit=-1";

fn put_quota(world: &mut World, path: &str, limits: &str) {
    let mut at = String::from("/zookeeper/quota");
    for component in path[1..].split('/') {
        at = format!("{at}/{component}");
        if world.tree.find(&at).is_none() {
            world.create(&at);
        }
    }
    let kind = CreateKind::Persistent;
    world.create_with(&format!("{at}/zookeeper_limits"), Some(limits.as_bytes()), kind);
    world.create_with(&format!("{at}/zookeeper_stats"), Some(b"count=0,bytes=0"), kind);
}

#[track_caller]
fn check_stats(world: &World, path: &str, expected: &str) {
    let node = world.node(&format!("/zookeeper/quota{path}/zookeeper_stats"));
    assert_eq!(String::from_utf8_lossy(node.data().unwrap()), expected);
}

#[test]
fn usage_is_counted_when_the_statistics_are_created_and_kept_from_then_on() {
    let mut world = World::new();
    world.create_with("/a", Some(b"12345"), CreateKind::Persistent);
    world.create_with("/a/b", Some(b"123"), CreateKind::Persistent);
    world.create("/ab");
    put_quota(&mut world, "/a", LIMITS);
    check_stats(&world, "/a", "count=2,bytes=8");
    let stat = world.stat("/zookeeper/quota/a/zookeeper_stats");
    world.create_with("/a/b/c", Some(b"1"), CreateKind::Persistent);
    check_stats(&world, "/a", "count=3,bytes=9");
    world.set_data("/a", b"1234567", 1);
    check_stats(&world, "/a", "count=3,bytes=11");
    world.delete("/a/b/c");
    check_stats(&world, "/a", "count=2,bytes=10");
    world.create("/ab/x");
    check_stats(&world, "/a", "count=2,bytes=10");
    let now = world.stat("/zookeeper/quota/a/zookeeper_stats");
    assert_eq!((now.version, now.mzxid, now.mtime), (stat.version, stat.mzxid, stat.mtime));
    assert_eq!(now.data_length, "count=2,bytes=10".len() as i32);
}

#[test]
fn the_quota_over_a_node_is_the_deepest_one() {
    let mut world = World::new();
    for path in ["/a", "/a/b", "/a/b/c"] {
        world.create(path);
    }
    put_quota(&mut world, "/a", LIMITS);
    put_quota(&mut world, "/a/b", "count=1,bytes=2");
    let quota = world.tree.quota_of("/a/b/c/new").unwrap();
    assert_eq!(quota.path, "/a/b");
    let none = -1;
    let limits = QuotaLimits { count: 1, bytes: 2, count_hard: none, bytes_hard: none };
    assert_eq!((quota.limits, quota.usage), (limits, QuotaUsage { count: 2, bytes: 0 }));
    let quota = world.tree.quota_of("/a").unwrap();
    let limits = QuotaLimits { count: 5, bytes: none, count_hard: none, bytes_hard: 100 };
    assert_eq!((&*quota.path, quota.limits), ("/a", limits));
    for free in ["/", "/b", "/ab", "/zookeeper/quota/a", "/zookeeper"] {
        assert_eq!(world.tree.quota_of(free), None, "{free}");
    }
    world.create_with("/a/b/d", Some(b"xy"), CreateKind::Persistent);
    check_stats(&world, "/a/b", "count=3,bytes=2");
    check_stats(&world, "/a", "count=3,bytes=0");
}

#[test]
fn deleting_the_limits_ends_a_quota_and_deleting_the_statistics_stops_the_count() {
    let mut world = World::new();
    world.create("/a");
    put_quota(&mut world, "/a", LIMITS);
    world.delete("/zookeeper/quota/a/zookeeper_stats");
    assert_eq!(world.tree.quota_of("/a"), None);
    world.create("/a/x");
    world.create("/zookeeper/quota/a/zookeeper_stats");
    check_stats(&world, "/a", "count=2,bytes=0");
    world.delete("/zookeeper/quota/a/zookeeper_limits");
    world.create("/a/y");
    check_stats(&world, "/a", "count=2,bytes=0");
    assert_eq!(world.tree.quota_of("/a"), None);
    world.create("/zookeeper/quota/a/zookeeper_limits");
    world.create("/a/z");
    check_stats(&world, "/a", "count=3,bytes=0");
}

#[test]
fn a_quota_on_the_root_has_no_effect() {
    let mut world = World::new();
    let kind = CreateKind::Persistent;
    world.create_with("/zookeeper/quota/zookeeper_limits", Some(b"count=1,bytes=1"), kind);
    world.create_with("/zookeeper/quota/zookeeper_stats", Some(b"count=0,bytes=0"), kind);
    world.create("/a");
    assert_eq!(world.tree.quota_of("/a"), None);
    check_stats(&world, "", "count=0,bytes=0");
}

#[test]
fn garbage_in_quota_nodes_harms_nobody() {
    let mut world = World::new();
    world.create("/a");
    put_quota(&mut world, "/a", "count=many,,=;;bytes");
    world.set_data("/zookeeper/quota/a/zookeeper_stats", &[0xff, 0, b'=', b','], 1);
    world.create_with("/a/b", Some(b"12"), CreateKind::Persistent);
    check_stats(&world, "/a", "count=0,bytes=1");
    let max = format!("count={},bytes={}", i64::MAX, i64::MIN);
    world.set_data("/zookeeper/quota/a/zookeeper_stats", max.as_bytes(), 2);
    world.create_with("/a/c", Some(b"12"), CreateKind::Persistent);
    assert_eq!(world.tree.quota_of("/a").unwrap().usage.count, i64::MIN);
}

#[test]
fn a_quota_on_a_missing_node_counts_from_nothing() {
    let mut world = World::new();
    put_quota(&mut world, "/later", LIMITS);
    check_stats(&world, "/later", "count=0,bytes=0");
    world.create_with("/later", Some(b"abc"), CreateKind::Persistent);
    check_stats(&world, "/later", "count=1,bytes=3");
    assert_eq!(world.node("/zookeeper/quota/later/zookeeper_stats").stat().pzxid, Zxid(3));
}

#[test]
fn extra_keys_of_the_statistics_survive_updates() {
    let mut world = World::new();
    world.create("/a");
    put_quota(&mut world, "/a", LIMITS);
    let text = b"count=1,bytes=0=;byteHardLimit=-1;countHardLimit=-1";
    world.set_data("/zookeeper/quota/a/zookeeper_stats", text, 1);
    world.create("/a/b");
    check_stats(&world, "/a", "count=2,bytes=0=;byteHardLimit=-1;countHardLimit=-1");
}

#[test]
fn a_large_subtree_is_counted_without_a_walk_through_it() {
    let mut world = World::new();
    world.create("/top");
    world.create("/top/large");
    for n in 0..30_000 {
        world.create_with(&format!("/top/large/{n}"), Some(b"12"), CreateKind::Persistent);
    }
    // Traversals would visit nine thousand million nodes, and three hundred million.
    for _ in 0..300_000 {
        assert_eq!(world.node("/top").descendant_count(), 30_001);
    }
    put_quota(&mut world, "/top", LIMITS);
    for _ in 0..10_000 {
        world.delete("/zookeeper/quota/top/zookeeper_stats");
        world.create("/zookeeper/quota/top/zookeeper_stats");
    }
    check_stats(&world, "/top", "count=30002,bytes=60000");
    world.set_data("/top/large/7", b"longer", 1);
    world.delete("/top/large/8");
    world.delete("/zookeeper/quota/top/zookeeper_stats");
    world.create("/zookeeper/quota/top/zookeeper_stats");
    check_stats(&world, "/top", "count=30001,bytes=60002");
}
