//! Malformed input.

use ironkeeper_engine::EngineConfig;
use ironkeeper_proto::{OpCode, Put};

use crate::world::*;

#[test]
fn frames_of_impossible_length_close_the_connection() {
    let mut world = World::new();
    let max = EngineConfig::default().frame_bytes_max as i32;
    for len in [-1, i32::MIN, max + 1, i32::MAX] {
        let mut client = world.connect();
        assert!(client.raw(&mut world, &len.to_be_bytes()).starts_with("closed"), "{len}");
    }
    let mut client = world.connect();
    assert_eq!(client.raw(&mut world, &max.to_be_bytes()), "read");
}

#[test]
fn a_frame_without_room_for_a_header_closes_the_connection() {
    let mut world = World::new();
    for len in 0..8 {
        let mut client = world.connect();
        let frame = framed(&vec![0; len]);
        assert!(client.raw(&mut world, &frame).starts_with("closed"), "{len}");
    }
}

#[test]
fn a_connect_request_cut_short_is_not_answered() {
    let mut world = World::new();
    for len in 0..28 {
        let mut client = world.dial();
        assert!(client.raw(&mut world, &framed(&vec![0; len])).starts_with("closed"), "{len}");
    }
}

#[test]
fn requests_arrive_whole_however_they_are_cut() {
    let mut world = World::new();
    let mut client = world.connect();
    let mut request = Vec::new();
    request.put_i32(1);
    request.put_i32(OpCode::Create.code());
    request.extend_from_slice(&create("/cut", b"data", Persistent));
    for byte in framed(&request) {
        client.raw(&mut world, &[byte]);
    }
    world.sync();
    assert_eq!(client.heard(&world), ["#1 @2 /cut"]);
}

#[test]
fn random_bodies_of_every_operation_get_an_answer_and_harm_nobody() {
    let mut random = 88_172_645_463_325_252_u64;
    let mut next = move || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut world = World::new();
    let mut witness = world.connect_with(40_000);
    for round in 0..3000 {
        let mut client = world.connect_with(40_000);
        for _ in 0..4 {
            let mut frame = Vec::new();
            frame.put_i32(next() as i32);
            frame.put_i32((next() % 130) as i32 - 20);
            for _ in 0..next() % 40 {
                // Small numbers make lengths that fit, which are decoded further than noise.
                let byte = if next() % 3 == 0 { next() as u8 } else { (next() % 4) as u8 };
                frame.push(byte);
            }
            if client.raw(&mut world, &framed(&frame)).starts_with("closed") {
                break;
            }
        }
        world.sync();
        client.disconnect(&mut world);
        if round % 100 == 0 {
            assert!(witness.create(&mut world, "/w-", PersistentSequential).is_ok());
        }
    }
}

#[test]
fn too_many_requests_in_work_stop_the_reading_not_the_connection() {
    let config = EngineConfig { outstanding_max: 10, ..EngineConfig::default() };
    let mut world = World::with(config);
    let mut client = world.connect();
    let mut frames = Vec::new();
    for xid in 1..=20 {
        let mut request = Vec::new();
        request.put_i32(xid);
        request.put_i32(OpCode::Create.code());
        request.extend_from_slice(&create("/n-", b"", PersistentSequential));
        frames.extend_from_slice(&framed(&request));
    }
    // One request more than allowed is in progress; the rest is not read until the replies are
    // made.
    assert_eq!(client.raw(&mut world, &frames), "wait");
    assert_eq!(world.unsynced.len(), 11);
    world.sync();
    assert_eq!(client.raw(&mut world, &[]), "read");
    world.sync();
    assert_eq!(client.heard(&world).len(), 20);
}
