//! The order of a session's reads and writes, and of events against both.

use ironkeeper_proto::OpCode;

use crate::world::*;

#[test]
fn a_read_behind_own_writes_sees_the_first_and_not_the_second() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/a", Persistent).unwrap();
    client.send(&mut world, OpCode::SetData, &set_data("/a", b"one", -1));
    client.send(&mut world, OpCode::GetData, &read("/a", false));
    client.send(&mut world, OpCode::SetData, &set_data("/a", b"two", -1));
    client.send(&mut world, OpCode::GetData, &read("/a", false));
    assert!(client.heard(&world).is_empty(), "nothing is answered before the disk has it");
    // Both writes become durable with one sync; the read between them is served between them.
    world.sync();
    let heard = client.heard(&world);
    let brief: Vec<&str> = heard.iter().map(|line| &line[..5]).collect();
    assert_eq!(brief, ["#2 @3", "#3 @3", "#4 @4", "#5 @4"]);
    assert!(heard[1].contains("one") && heard[3].contains("two"), "{heard:?}");
}

#[test]
fn reads_do_not_wait_for_the_writes_of_others() {
    let mut world = World::new();
    let (mut writer, mut reader) = (world.connect(), world.connect());
    writer.create(&mut world, "/a", Persistent).unwrap();
    writer.send(&mut world, OpCode::SetData, &set_data("/a", b"new", -1));
    reader.send(&mut world, OpCode::GetData, &read("/a", false));
    assert_eq!(reader.heard(&world).len(), 1);
    assert!(writer.heard(&world).is_empty());
}

#[test]
fn an_event_comes_before_the_reply_to_the_own_write_and_before_newer_data() {
    let mut world = World::new();
    let (mut one, mut two) = (world.connect(), world.connect());
    one.create(&mut world, "/a", Persistent).unwrap();
    one.send(&mut world, OpCode::GetData, &read("/a", true));
    two.send(&mut world, OpCode::GetData, &read("/a", true));
    one.heard(&world);
    two.heard(&world);
    one.send(&mut world, OpCode::SetData, &set_data("/a", b"x", -1));
    world.sync();
    two.send(&mut world, OpCode::GetData, &read("/a", false));
    assert_eq!(one.heard(&world)[0], "changed /a @4");
    let heard = two.heard(&world);
    assert_eq!(heard[0], "changed /a @4");
    assert!(heard[1].starts_with("#2 @4"), "{heard:?}");
}

#[test]
fn a_watch_set_by_a_waiting_read_does_not_fire_for_the_write_before_it() {
    let mut world = World::new();
    let mut client = world.connect();
    client.create(&mut world, "/a", Persistent).unwrap();
    client.send(&mut world, OpCode::SetData, &set_data("/a", b"1", -1));
    client.send(&mut world, OpCode::GetData, &read("/a", true));
    client.send(&mut world, OpCode::SetData, &set_data("/a", b"2", -1));
    world.sync();
    let heard = client.heard(&world);
    assert_eq!(heard.len(), 4, "{heard:?}");
    assert!(heard[0].starts_with("#2 @3") && heard[1].starts_with("#3 @3"));
    assert_eq!(heard[2], "changed /a @4");
    assert!(heard[3].starts_with("#4 @4"));
}

#[test]
fn a_sync_waits_for_what_was_proposed_before_it() {
    let mut world = World::new();
    let (mut writer, mut reader) = (world.connect(), world.connect());
    writer.send(&mut world, OpCode::Create, &create("/a", b"", Persistent));
    let mut path = Vec::new();
    ironkeeper_proto::Put::put_str(&mut path, "/");
    reader.send(&mut world, OpCode::Sync, &path);
    reader.send(&mut world, OpCode::Exists, &read("/a", false));
    assert!(reader.heard(&world).is_empty());
    world.sync();
    let heard = reader.heard(&world);
    assert!(heard[0].starts_with("#1 @3 /"), "{heard:?}");
    assert!(heard[1].starts_with("#2 @3") && !heard[1].contains("error"), "{heard:?}");
}

#[test]
fn answers_without_a_transaction_keep_their_place() {
    let mut world = World::new();
    let mut client = world.connect();
    client.send(&mut world, OpCode::Create, &create("/a", b"", Persistent));
    client.send(&mut world, OpCode::Create, b"not a create");
    client.send(&mut world, OpCode::Create, &create("/b", b"", Persistent));
    client.send(&mut world, OpCode::Ping, b"");
    world.sync_one();
    assert_eq!(client.heard(&world), ["#1 @2 /a", "#2 @2 error -5"]);
    world.sync();
    assert_eq!(client.heard(&world), ["#3 @3 /b", "#-2 @3 "]);
}

#[test]
fn a_failed_write_takes_its_turn_and_a_transaction_id() {
    let mut world = World::new();
    let mut client = world.connect();
    client.send(&mut world, OpCode::Delete, &delete("/none", -1));
    client.send(&mut world, OpCode::Create, &create("/a", b"", Persistent));
    world.sync();
    assert_eq!(client.heard(&world), ["#1 @2 error -101", "#2 @3 /a"]);
}

#[test]
fn pipelined_writes_are_judged_by_what_is_on_its_way() {
    let mut world = World::new();
    let mut client = world.connect();
    client.send(&mut world, OpCode::Create, &create("/q", b"", Persistent));
    for _ in 0..3 {
        client.send(&mut world, OpCode::Create, &create("/q/n-", b"", PersistentSequential));
    }
    client.send(&mut world, OpCode::Delete, &delete("/q", -1));
    client.send(&mut world, OpCode::Delete, &delete("/q/n-0000000001", 0));
    client.send(&mut world, OpCode::SetData, &set_data("/q", b"", 0));
    client.send(&mut world, OpCode::SetData, &set_data("/q", b"", 0));
    client.send(&mut world, OpCode::Create, &create("/q/n-", b"", PersistentSequential));
    world.sync();
    let heard = client.heard(&world);
    let told: Vec<&str> = heard.iter().map(|line| line.split_once(' ').unwrap().1).collect();
    assert_eq!(
        told[..4],
        ["@2 /q", "@3 /q/n-0000000000", "@4 /q/n-0000000001", "@5 /q/n-0000000002"]
    );
    assert_eq!(told[4], "@6 error -111");
    assert_eq!(told[5], "@7 ");
    assert!(told[6].starts_with("@8") && !told[6].contains("error"));
    assert_eq!(told[7], "@9 error -103");
    assert_eq!(told[8], "@10 /q/n-0000000003");
}
