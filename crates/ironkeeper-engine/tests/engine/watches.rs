//! The changes that fire each kind of watch, and the number of events.

use ironkeeper_proto::request::DataWatch;
use ironkeeper_proto::watch_event::{self, EventType};
use ironkeeper_proto::{OpCode, Put, Zxid};

use crate::world::*;

const PERSISTENT: i32 = 0;
const RECURSIVE: i32 = 1;

fn add_watch(client: &mut Client, world: &mut World, path: &str, mode: i32) {
    assert_eq!(client.call(world, OpCode::AddWatch, &path_and_number(path, mode)).0, 0);
}

#[test]
fn a_one_shot_watch_fires_once() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/a", Persistent).unwrap();
    client.call(&mut world, OpCode::GetData, &read("/a", true));
    for _ in 0..2 {
        client.send(&mut world, OpCode::SetData, &set_data("/a", b"", -1));
    }
    world.sync();
    let events: Vec<String> =
        client.heard(&world).into_iter().filter(|line| line.starts_with("changed")).collect();
    assert_eq!(events, ["changed /a @3"]);
}

#[test]
fn an_exists_watch_waits_for_the_node_to_come() {
    let mut world = World::new();
    let mut client = world.connect();
    let mut other = world.connect();
    assert_eq!(client.call(&mut world, OpCode::Exists, &read("/later", true)).0, -101);
    other.create(&mut world, "/later", Persistent).unwrap();
    assert_eq!(client.heard(&world), ["created /later @3"]);
}

#[test]
fn a_connection_is_told_once_however_many_watches_match() {
    let mut world = World::new();
    let mut client = world.connect();
    let mut other = world.connect();
    other.create(&mut world, "/d", Persistent).unwrap();
    other.create(&mut world, "/d/n", Persistent).unwrap();
    for path in ["/d", "/d/n"] {
        client.call(&mut world, OpCode::GetData, &read(path, true));
        client.call(&mut world, OpCode::GetChildren, &read(path, true));
        add_watch(&mut client, &mut world, path, PERSISTENT);
        add_watch(&mut client, &mut world, path, RECURSIVE);
    }
    other.delete(&mut world, "/d/n").unwrap();
    assert_eq!(client.heard(&world), ["deleted /d/n @5", "children /d @5"]);
    // One-shot watches are used up; the persistent and recursive ones remain.
    other.create(&mut world, "/d/n", Persistent).unwrap();
    assert_eq!(client.heard(&world), ["created /d/n @6", "children /d @6"]);
}

#[test]
fn a_recursive_watch_sees_everything_below_but_no_child_events() {
    let mut world = World::new();
    let mut client = world.connect();
    let mut other = world.connect();
    add_watch(&mut client, &mut world, "/", RECURSIVE);
    other.create(&mut world, "/a", Persistent).unwrap();
    other.create(&mut world, "/a/b", Persistent).unwrap();
    other.set(&mut world, "/a/b", b"x").unwrap();
    other.delete(&mut world, "/a/b").unwrap();
    assert_eq!(
        client.heard(&world),
        ["created /a @3", "created /a/b @4", "changed /a/b @5", "deleted /a/b @6"]
    );
}

#[test]
fn events_of_unreadable_nodes_are_held_back_and_the_watch_is_used_up() {
    let mut world = World::new();
    let (mut owner, mut other) = (world.connect(), world.connect());
    owner.create(&mut world, "/a", Persistent).unwrap();
    other.call(&mut world, OpCode::GetData, &read("/a", true));
    assert_eq!(owner.auth(&mut world, "u:p"), 0);
    let mut body = Vec::new();
    body.put_str("/a");
    ironkeeper_proto::acl::encode_list(&[digest_acl("u:p", 31)], &mut body);
    body.put_i32(-1);
    assert_eq!(owner.call(&mut world, OpCode::SetAcl, &body).0, 0);
    owner.set(&mut world, "/a", b"secret").unwrap();
    assert!(other.heard(&world).is_empty());
    assert_eq!(other.call(&mut world, OpCode::CheckWatches, &path_and_number("/a", 2)).0, -121);
}

#[test]
fn watches_can_be_checked_and_removed_by_kind() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/a", Persistent).unwrap();
    client.call(&mut world, OpCode::GetData, &read("/a", true));
    add_watch(&mut client, &mut world, "/a", PERSISTENT);
    let mut ask = |op, kind| client.call(&mut world, op, &path_and_number("/a", kind)).0;
    assert_eq!(ask(OpCode::CheckWatches, 1), -121);
    assert_eq!(ask(OpCode::CheckWatches, 2), 0);
    assert_eq!(ask(OpCode::CheckWatches, 4), 0);
    assert_eq!(ask(OpCode::RemoveWatches, 2), 0);
    assert_eq!(ask(OpCode::RemoveWatches, 2), -121);
    assert_eq!(ask(OpCode::CheckWatches, 3), 0);
    assert_eq!(ask(OpCode::RemoveWatches, 3), 0);
    assert_eq!(ask(OpCode::CheckWatches, 3), -121);
    assert_eq!(ask(OpCode::CheckWatches, 9), -5);
}

#[test]
fn a_lost_connection_leaves_no_watch_behind() {
    let mut world = World::new();
    let mut client = world.connect();
    for at in 0..100 {
        client.call(&mut world, OpCode::Exists, &read(&format!("/n{at}"), true));
    }
    add_watch(&mut client, &mut world, "/", RECURSIVE);
    assert_eq!(world.db.read().watches.count(), 101);
    client.disconnect(&mut world);
    assert_eq!(world.db.read().watches.count(), 0);
}

#[test]
fn watches_restored_after_a_reconnect_tell_what_was_missed() {
    let mut world = World::new();
    let mut other = world.connect();
    for path in ["/same", "/changed", "/parent", "/gone"] {
        other.create(&mut world, path, Persistent).unwrap();
    }
    let since = world.db.read().applied().0;
    other.set(&mut world, "/changed", b"x").unwrap();
    other.create(&mut world, "/parent/child", Persistent).unwrap();
    other.delete(&mut world, "/gone").unwrap();
    other.create(&mut world, "/new", Persistent).unwrap();
    let mut client = world.connect();
    let mut body = Vec::new();
    body.put_i64(since);
    for list in [&["/same", "/changed", "/gone"][..], &["/new", "/never"], &["/parent", "/same"]] {
        body.put_len(list.len());
        list.iter().for_each(|path| body.put_str(path));
    }
    client.send(&mut world, OpCode::SetWatches, &body);
    assert_eq!(
        client.heard(&world)[..4],
        ["changed /changed @-1", "deleted /gone @-1", "created /new @-1", "children /parent @-1"]
    );
    // Unchanged nodes are watched again.
    other.set(&mut world, "/same", b"x").unwrap();
    other.create(&mut world, "/never", Persistent).unwrap();
    assert_eq!(client.heard(&world), ["changed /same @11", "created /never @12"]);
}

#[test]
fn a_multi_tells_each_change_in_order_before_its_reply() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/a", Persistent).unwrap();
    add_watch(&mut client, &mut world, "/", RECURSIVE);
    let parts = [
        (OpCode::Create, create("/a/b", b"", Persistent)),
        (OpCode::SetData, set_data("/a", b"", -1)),
        (OpCode::Delete, delete("/a/b", -1)),
    ];
    client.send(&mut world, OpCode::Multi, &multi(&parts));
    world.sync();
    let heard = client.heard(&world);
    assert_eq!(heard[..3], ["created /a/b @3", "changed /a @3", "deleted /a/b @3"]);
    assert!(heard[3].starts_with("#3 @3"), "{heard:?}");
}

/// Sets an oldest-sibling watch on a node.
fn watch_in_line(client: &mut Client, world: &mut World, path: &str) {
    let mut body = Vec::new();
    body.put_str(path);
    DataWatch::InLine.encode(&mut body);
    assert_eq!(client.call(world, OpCode::GetData, &body).0, 0);
}

#[test]
fn whoever_stands_in_line_hears_who_is_next_and_others_hear_what_apache_tells() {
    let mut world = World::new();
    let (mut next, mut other, mut first) = (world.connect(), world.connect(), world.connect());
    for path in ["/line", "/line/1", "/line/2", "/line/3"] {
        next.create(&mut world, path, Persistent).unwrap();
    }
    watch_in_line(&mut next, &mut world, "/line/1");
    other.call(&mut world, OpCode::GetData, &read("/line/1", true));
    first.delete(&mut world, "/line/1").unwrap();
    assert_eq!(next.heard(&world), ["deleted /line/1 @8 oldest 0x6"]);
    let (header, body) = other.frames(&world).remove(0);
    let mut apaches = Vec::new();
    watch_event::encode_frame(EventType::NodeDeleted, "/line/1", Zxid(8), &mut apaches);
    assert_eq!((header.err, &body[..]), (0, &apaches[4 + 16..]), "not a byte more");
}

#[test]
fn whoever_stands_in_line_is_not_told_what_nobody_knows() {
    let mut world = World::new();
    let (mut next, mut other) = (world.connect(), world.connect());
    for path in ["/line", "/line/1", "/line/2", "/line/3"] {
        next.create(&mut world, path, Persistent).unwrap();
    }
    for path in ["/line/2", "/line/3"] {
        watch_in_line(&mut next, &mut world, path);
        other.delete(&mut world, path).unwrap();
        assert_eq!(
            next.heard(&world),
            [format!("deleted {path} @{}", world.db().read().applied().0)]
        );
    }
    watch_in_line(&mut next, &mut world, "/line/1");
    other.set(&mut world, "/line/1", b"x").unwrap();
    assert_eq!(next.heard(&world), ["changed /line/1 @9"]);
}

#[test]
fn a_place_in_line_ends_with_its_watch() {
    let mut world = World::new();
    let (mut next, mut other) = (world.connect(), world.connect());
    for path in ["/line", "/line/1", "/line/2"] {
        next.create(&mut world, path, Persistent).unwrap();
    }
    watch_in_line(&mut next, &mut world, "/line/1");
    next.call(&mut world, OpCode::GetChildren, &read("/line/1", true));
    let data = path_and_number("/line/1", 2);
    assert_eq!(next.call(&mut world, OpCode::RemoveWatches, &data).0, 0);
    assert_eq!(next.call(&mut world, OpCode::CheckWatches, &data).0, -121);
    other.delete(&mut world, "/line/1").unwrap();
    assert_eq!(next.heard(&world), ["deleted /line/1 @6"], "by the watch of children alone");
    watch_in_line(&mut next, &mut world, "/line/2");
    let count = world.db().read().watches.count();
    assert_eq!(count, 1, "it counts as the watch that it is to Apache");
}
