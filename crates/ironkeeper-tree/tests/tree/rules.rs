//! The effect of each kind of transaction on stats, sets and digest.

use ironkeeper_proto::acl::{self, Acl, Perms};
use ironkeeper_proto::stat::{CONTAINER_OWNER, OwnerKind, Stat, ttl_owner};
use ironkeeper_proto::txn::{CreateKind, encode};
use ironkeeper_proto::{OpCode, SessionId, Zxid};
use ironkeeper_tree::{Outcome, Tree, TreeConfig};

use crate::world::{self, World, assert_done, time_of};

fn read_only() -> Vec<Acl> {
    vec![Acl::new(Perms::READ, "world", "anyone")]
}

#[test]
fn create_stamps_the_node_and_counts_in_the_parent() {
    let mut world = World::new();
    assert_done(&world.create("/p"));
    let before = world.stat("/p");
    let applied = world.create_with("/p/n", Some(b"abc"), CreateKind::Persistent);
    let expected = Stat {
        czxid: Zxid(2),
        mzxid: Zxid(2),
        pzxid: Zxid(2),
        ctime: time_of(2),
        mtime: time_of(2),
        data_length: 3,
        ..Stat::default()
    };
    assert_eq!(applied.stat, Some(expected));
    assert_eq!(world.stat("/p/n"), expected);
    let after = Stat { cversion: 1, pzxid: Zxid(2), num_children: 1, ..before };
    assert_eq!(world.stat("/p"), after, "mzxid, mtime and version of the parent stay");
}

#[test]
fn delete_moves_the_parents_pzxid_and_what_clients_see_of_its_cversion() {
    let mut world = World::new();
    world.create("/p");
    world.create("/p/n");
    assert_done(&world.delete("/p/n"));
    assert!(world.tree.find("/p/n").is_none());
    let parent = world.node("/p");
    assert_eq!(parent.persisted().cversion, 1, "the stored one counts creations");
    assert_eq!((parent.stat().cversion, parent.stat().pzxid), (2, Zxid(3)));
    assert_eq!((parent.child_count(), parent.stat().mzxid), (0, Zxid(1)));
}

#[test]
fn set_data_assigns_the_version_it_is_given() {
    let mut world = World::new();
    world.create("/n");
    let applied = world.set_data("/n", b"hello", 7);
    let stat = applied.stat.unwrap();
    assert_eq!((stat.version, stat.mzxid, stat.mtime), (7, Zxid(2), time_of(2)));
    assert_eq!((stat.czxid, stat.pzxid, stat.ctime, stat.data_length), (Zxid(1), Zxid(1), 10, 5));
    assert_eq!(world.node("/n").data(), Some(&b"hello"[..]));
}

#[test]
fn set_acl_leaves_mzxid_and_mtime_alone() {
    let mut world = World::new();
    world.create("/n");
    let before = world.stat("/n");
    let applied = world.set_acl("/n", &read_only(), 1);
    assert_eq!(applied.stat, Some(Stat { aversion: 1, ..before }));
    assert_eq!(world.node("/n").acl().entries(), read_only());
    assert_eq!(world.take_events(), ["created /n in /"]);
}

#[test]
fn reconfig_writes_the_configuration_node() {
    let mut world = World::new();
    let body = world::set_data("/zookeeper/config", Some(b"server.1=x"), -1);
    let applied = world.apply(OpCode::Reconfig, &body);
    let stat = applied.stat.unwrap();
    assert_eq!((stat.version, stat.mzxid, stat.mtime), (-1, Zxid(1), time_of(1)));
    assert_eq!(world.take_events(), ["changed /zookeeper/config[1]"]);
    assert_eq!(world.tree.digest(), 0x51c6_d660, "no part of the digest");
}

#[test]
fn kinds_of_nodes_have_their_owner_values_and_sets() {
    let mut world = World::new();
    world.session = SessionId(0x77);
    for (path, kind, raw, shown, read) in [
        ("/p", CreateKind::Persistent, 0, 0, OwnerKind::Persistent),
        ("/e", CreateKind::Ephemeral, 0x77, 0x77, OwnerKind::Ephemeral),
        ("/c", CreateKind::Container, CONTAINER_OWNER, 0, OwnerKind::Container),
        ("/t", CreateKind::Ttl { ttl_ms: 500 }, ttl_owner(500), 0, OwnerKind::Ttl(500)),
    ] {
        world.create_with(path, None, kind);
        let node = world.node(path);
        assert_eq!(node.persisted().ephemeral_owner, raw, "{path}");
        assert_eq!((node.stat().ephemeral_owner, node.owner_kind()), (shown, read), "{path}");
        assert_eq!((node.data(), node.stat().data_length), (None, 0));
    }
    let tree = &world.tree;
    assert_eq!(tree.ephemerals(SessionId(0x77)).collect::<Vec<_>>(), ["/e"]);
    assert_eq!(tree.ephemeral_sessions().collect::<Vec<_>>(), [SessionId(0x77)]);
    assert_eq!(tree.container_paths().map(|node| node.path()).collect::<Vec<_>>(), ["/c"]);
    assert_eq!(tree.ttl_nodes().map(|node| node.path()).collect::<Vec<_>>(), ["/t"]);
    for path in ["/e", "/c", "/t"] {
        world.delete(path);
    }
    let tree = &world.tree;
    assert_eq!(
        (tree.ephemeral_count(), tree.container_paths().count(), tree.ttl_nodes().count()),
        (0, 0, 0)
    );
}

#[test]
fn events_come_in_the_order_of_changes_with_the_lists_in_force() {
    let mut world = World::new();
    world.create("/p");
    world.set_acl("/p", &read_only(), 1);
    let write = [Acl::new(Perms::WRITE, "ip", "10.0.0.1")];
    let (op, body) = world::create("/p/n", None, &write, CreateKind::Persistent, 1);
    world.apply(op, &body);
    world.set_data("/p/n", b"x", 1);
    world.delete("/p/n");
    assert_eq!(
        world.take_events(),
        [
            "created /p in /",
            "created /p/n[2] in /p[1]",
            "changed /p/n[2]",
            "deleted /p/n[2] in /p[1]"
        ]
    );
}

#[test]
fn the_digest_is_the_one_apache_logged() {
    let mut world = World::new();
    let mut body = Vec::new();
    let kind = CreateKind::Persistent;
    let open = world::encoded(&acl::open());
    let list = world::acl_vec(&open);
    encode::create(OpCode::Create, "/a0", Some(b"data0"), list, kind, 1, &mut body);
    let header = ironkeeper_proto::TxnHeader {
        session: SessionId(0x0100_000e_4e06_0000),
        cxid: 1,
        zxid: Zxid(0x1_0000_0002),
        time: 0x1a1_e057_d515,
        op: OpCode::Create,
    };
    let txn =
        ironkeeper_proto::Txn::decode(OpCode::Create, &mut ironkeeper_proto::Reader::new(&body));
    world.tree.apply(&header, &txn.unwrap(), &mut ironkeeper_tree::NoChanges);
    assert_eq!(world.tree.digest(), 0x1_6ce6_5858);
}

#[test]
fn a_tree_that_is_emptied_again_differs_only_by_the_root() {
    let mut world = World::new();
    for n in 0..100 {
        world.create_with(&format!("/n{n}"), Some(&[7; 50]), CreateKind::Persistent);
    }
    assert_eq!(world.tree.node_count(), 105);
    for n in 0..100 {
        world.delete(&format!("/n{n}"));
    }
    assert_eq!((world.tree.node_count(), world.tree.data_bytes()), (5, 44));
    assert_eq!(world.stat("/").cversion, 199);
}

#[test]
fn sessions_and_errors_move_the_zxid_and_nothing_else() {
    let mut world = World::new();
    let mut body = Vec::new();
    encode::create_session(4000, &mut body);
    assert_done(&world.apply(OpCode::CreateSession, &body));
    let applied = world.apply(OpCode::Error, &world::error(-101));
    assert_eq!(applied.outcome, Outcome::Error(-101));
    assert_eq!((world.tree.last_zxid(), world.tree.digest()), (Zxid(2), 0x51c6_d660));
}

#[test]
fn closing_a_session_deletes_what_is_listed_and_what_it_still_owns() {
    let mut world = World::new();
    world.session = SessionId(5);
    for path in ["/e1", "/e2", "/e3"] {
        world.create_with(path, None, CreateKind::Ephemeral);
    }
    world.session = SessionId(6);
    world.create_with("/other", None, CreateKind::Ephemeral);
    world.take_events();
    world.close_session(5, Some(&["/e2", "/gone", "/no/parent"]));
    assert_eq!(
        world.take_events(),
        ["deleted /e2 in /", "deleted /e1 in /", "deleted /e3 in /"],
        "the list first"
    );
    assert_eq!(world.stat("/").pzxid, Zxid(5));
    assert_eq!(world.tree.ephemeral_sessions().collect::<Vec<_>>(), [SessionId(6)]);
    world.close_session(6, None);
    assert_eq!((world.tree.ephemeral_count(), world.tree.node_count()), (0, 5));
}

#[test]
fn a_multi_applies_its_parts_in_order() {
    let mut world = World::new();
    let (op, create) = world::create("/m", Some(b"1"), &acl::open(), CreateKind::Persistent, 1);
    let mut check = Vec::new();
    encode::check("/m", 1, &mut check);
    let applied = world.multi(&[
        (op, create),
        (OpCode::SetData, world::set_data("/m", Some(b"22"), 1)),
        (OpCode::Check, check),
        (OpCode::Delete, world::delete("/m")),
    ]);
    assert_eq!(applied.outcome, Outcome::Done);
    let lengths: Vec<_> =
        applied.parts.iter().map(|part| part.stat.map(|stat| stat.data_length)).collect();
    assert_eq!(lengths, [Some(1), Some(2), None, None]);
    assert_eq!(world.take_events(), ["created /m in /", "changed /m", "deleted /m in /"]);
}

#[test]
fn a_multi_with_an_error_applies_nothing() {
    let mut world = World::new();
    let (op, create) = world::create("/m", None, &acl::open(), CreateKind::Persistent, 1);
    let applied = world.multi(&[
        (op, create.clone()),
        (OpCode::Error, world::error(-101)),
        (op, create),
        (OpCode::Error, world::error(-2)),
    ]);
    assert_eq!(applied.outcome, Outcome::Error(-101));
    let parts: Vec<_> = applied.parts.iter().map(|part| part.outcome).collect();
    assert_eq!(parts, [0, -101, -2, -2].map(Outcome::Error));
    assert!(world.tree.find("/m").is_none() && world.events.is_empty());
    assert_eq!((world.tree.digest(), world.tree.last_zxid()), (0x51c6_d660, Zxid(1)));
}

#[test]
fn the_counter_of_children_sticks_at_its_end() {
    let mut world = World::new();
    world.create("/q");
    let kind = CreateKind::Persistent;
    let (op, body) = world::create("/q/a", None, &acl::open(), kind, i32::MAX);
    world.apply(op, &body);
    assert_eq!(world.node("/q").persisted().cversion, i32::MAX);
    // The cversion that a leader computes next has wrapped around.
    let (op, body) = world::create("/q/b", None, &acl::open(), kind, i32::MIN);
    assert_done(&world.apply(op, &body));
    let (op, body) = world::create("/q/c", None, &acl::open(), kind, -1);
    assert_done(&world.apply(op, &body));
    let parent = world.node("/q").persisted();
    assert_eq!((parent.cversion, parent.pzxid), (i32::MAX, Zxid(2)));
}

#[test]
fn creates_of_very_old_logs_count_one_more() {
    let mut world = World::new();
    for path in ["/a", "/b"] {
        let (op, body) = world::create(path, None, &acl::open(), CreateKind::Persistent, -1);
        world.apply(op, &body);
    }
    assert_eq!(world.node("/").persisted().cversion, 2);
}

/// Transactions whose effects are already in the tree, as in replay over a fuzzy snapshot.
mod replayed {
    use super::*;

    #[test]
    fn a_create_keeps_the_node_that_is_there_but_points_it_to_its_list() {
        let mut world = World::new();
        world.create_with("/n", Some(b"later"), CreateKind::Persistent);
        world.set_data("/n", b"latest", 3);
        let before = world.stat("/n");
        let kind = CreateKind::Persistent;
        let (op, body) = world::create("/n", Some(b"first"), &read_only(), kind, 9);
        assert_eq!(world.apply(op, &body).outcome, Outcome::Ignored);
        assert_eq!((world.stat("/n"), world.node("/n").data()), (before, Some(&b"latest"[..])));
        assert_eq!(world.node("/n").acl().entries(), read_only());
        let root = world.node("/").persisted();
        assert_eq!((root.cversion, root.pzxid), (9, Zxid(3)));
    }

    #[test]
    fn an_old_create_does_not_take_the_parents_counter_back() {
        let mut world = World::new();
        for n in 0..5 {
            world.create(&format!("/n{n}"));
        }
        world.delete("/n1");
        let (op, body) = world::create("/n1", None, &acl::open(), CreateKind::Persistent, 2);
        world.apply_at(2, op, &body);
        let root = world.node("/").persisted();
        assert_eq!((root.cversion, root.pzxid, root.mzxid), (5, Zxid(6), Zxid(0)));
        assert_eq!(world.stat("/n1").czxid, Zxid(2));
        assert_eq!(world.tree.last_zxid(), Zxid(6), "never goes back");
    }

    /// ZOOKEEPER-3125.
    #[test]
    fn a_delete_of_a_missing_node_still_moves_the_parents_pzxid() {
        let mut world = World::new();
        world.create("/p");
        assert_eq!(world.delete("/p/gone").outcome, Outcome::Ignored);
        assert_eq!(world.stat("/p").pzxid, Zxid(2));
        let body = world::delete("/p/gone");
        world.apply_at(1, OpCode::Delete, &body);
        assert_eq!(world.stat("/p").pzxid, Zxid(2), "but only forward");
    }

    #[test]
    fn a_delete_takes_along_the_children_of_a_later_node() {
        let mut world = World::new();
        for path in ["/a", "/a/b", "/a/b/c", "/a/d", "/x"] {
            world.create(path);
        }
        world.take_events();
        assert_done(&world.delete("/a"));
        assert_eq!(
            world.take_events(),
            [
                "deleted /a/d in /a",
                "deleted /a/b/c in /a/b",
                "deleted /a/b in /a",
                "deleted /a in /"
            ]
        );
        assert_eq!((world.tree.node_count(), world.tree.data_bytes()), (6, 44 + 2));
    }

    #[test]
    fn what_has_no_ground_is_ignored() {
        let mut world = World::new();
        let digest = world.tree.digest();
        assert_eq!(world.create("/no/parent").outcome, Outcome::Ignored);
        assert_eq!(world.delete("/no/parent").outcome, Outcome::Ignored);
        assert_eq!(world.set_data("/none", b"", 1).outcome, Outcome::Ignored);
        assert_eq!(world.set_acl("/none", &read_only(), 1).outcome, Outcome::Ignored);
        for path in ["", "/", "/a/", "a", "//"] {
            let (op, body) = world::create(path, None, &acl::open(), CreateKind::Persistent, 1);
            assert_eq!(world.apply(op, &body).outcome, Outcome::Ignored, "{path:?}");
            assert_eq!(world.delete(path).outcome, Outcome::Ignored, "{path:?}");
        }
        assert_eq!((world.tree.digest(), world.tree.node_count()), (digest, 5));
        assert!(world.events.is_empty());
    }
}

#[test]
fn orphans_go_and_the_living_stay() {
    let mut world = World::new();
    world.create("/p");
    for (session, path) in [(1, "/e1"), (2, "/e2"), (1, "/p/e3")] {
        world.session = SessionId(session);
        world.create_with(path, None, CreateKind::Ephemeral);
    }
    let gone = world.tree.remove_orphans(|session| session == SessionId(2));
    assert_eq!(gone, ["/e1", "/p/e3"]);
    assert_eq!(world.tree.ephemerals(SessionId(2)).collect::<Vec<_>>(), ["/e2"]);
    assert_eq!(world.stat("/p").pzxid, Zxid(4), "stamped with the last zxid");
}

#[test]
fn ttl_nodes_survive_on_a_server_that_does_not_know_them() {
    let mut world = World::over(Tree::new(TreeConfig::default()));
    world.create_with("/t", None, CreateKind::Ttl { ttl_ms: 1000 });
    world.create("/t/child");
    world.create_with("/c", None, CreateKind::Container);
    assert_eq!(world.tree.ttl_nodes().count(), 0);
    assert!(world.tree.remove_orphans(|_| false).is_empty());
    assert!(world.tree.find("/t/child").is_some() && world.tree.find("/c").is_some());
}

#[test]
fn an_owned_node_with_children_is_no_orphan() {
    let mut world = World::new();
    world.create_with("/e", None, CreateKind::Ephemeral);
    world.create("/e/child");
    assert!(world.tree.remove_orphans(|_| false).is_empty());
}

#[test]
fn shared_data_stays_as_it_was() {
    let mut world = World::new();
    world.create_with("/n", Some(b"before"), CreateKind::Persistent);
    let shared = world.node("/n").shared_data().unwrap();
    world.set_data("/n", b"after", 1);
    world.delete("/n");
    assert_eq!(&*shared, b"before");
}

#[test]
fn deep_trees_need_no_stack() {
    let mut world = World::new();
    let mut path = String::new();
    for _ in 0..3000 {
        path.push_str("/d");
        world.create(&path);
    }
    assert_eq!(world.node("/").descendant_count(), 3003);
    assert_eq!(world.node(&path).path(), path);
    assert_done(&world.delete("/d"));
    assert_eq!(world.tree.node_count(), 5);
}
