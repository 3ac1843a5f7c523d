//! `SharedValue` and `SharedCount`.

use ironkeeper_client::{CreateMode, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::shared::{SharedCount, SharedValue};
use ironkeeper_testing::Direction;

use crate::world::{World, with_every_cut};

const PATH: &str = "/shared/v";

#[tokio::test]
async fn everybody_sees_a_change() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let ours = SharedValue::open(&one, PATH, "seed").await.unwrap();
    let theirs = SharedValue::open(&two, PATH, "another seed").await.unwrap();
    assert_eq!(theirs.current().value, "seed");
    let mut changes = theirs.changes();
    let written = ours.set("1").await.unwrap();
    let seen = changes.next().await.unwrap();
    assert_eq!((seen.zxid, &seen.value[..]), (written.zxid, &b"1"[..]));
    assert_eq!(theirs.current(), seen);
}

#[tokio::test]
async fn of_two_who_build_upon_the_same_state_one_wins() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let ours = SharedValue::open(&one, PATH, "0").await.unwrap();
    let theirs = SharedValue::open(&two, PATH, "0").await.unwrap();
    let (a, b) = (ours.current(), theirs.current());
    let (a, b) = tokio::join!(ours.try_set(&a, "a"), theirs.try_set(&b, "b"));
    assert!(a.unwrap() ^ b.unwrap());
    assert_eq!(ours.read().await.unwrap(), theirs.read().await.unwrap());
    // The rejected writer has the current state without another read, and succeeds with it.
    assert!(theirs.try_set(&theirs.current(), "c").await.unwrap());
}

#[tokio::test]
async fn a_count_has_curators_four_bytes() {
    let world = World::start().await;
    let client = world.client().await;
    let count = SharedCount::open(&client, PATH, -2).await.unwrap();
    assert_eq!(client.get(PATH).await.unwrap().data[..], [0xff, 0xff, 0xff, 0xfe]);
    client.set(PATH, [0, 0, 1, 0], Version::Any).await.unwrap();
    assert_eq!(count.read().await.unwrap().value, 256);
    let previous = count.current().unwrap();
    assert!(count.try_set(&previous, 7).await.unwrap());
    assert!(!count.try_set(&previous, 8).await.unwrap());
    let mut changes = count.changes();
    client.set(PATH, "no count", Version::Any).await.unwrap();
    let refused = changes.next().await.unwrap().unwrap_err();
    assert!(matches!(refused, RecipeError::Malformed { .. }), "{refused}");
    let refused = SharedCount::open(&client, PATH, 0).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Malformed { .. }), "{refused}");
}

#[tokio::test]
async fn a_node_deleted_and_created_again_is_followed_on() {
    let world = World::start().await;
    let client = world.client().await;
    let value = SharedValue::open(&client, PATH, "first").await.unwrap();
    let mut changes = value.changes();
    client.delete(PATH, Version::Any).await.unwrap();
    client.create(PATH, "second", CreateMode::Persistent).await.unwrap();
    let seen = changes.next().await.unwrap();
    assert_eq!((&seen.value[..], seen.version), (&b"second"[..], 0));
}

#[tokio::test]
async fn changes_during_a_broken_connection_are_told_afterwards() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    let value = SharedValue::open(&client, PATH, "0").await.unwrap();
    let mut changes = value.changes();
    proxy.refuse();
    proxy.cut();
    other.set(PATH, "1", Version::Any).await.unwrap();
    proxy.heal().unwrap();
    assert_eq!(changes.next().await.unwrap().value, "1");
}

#[tokio::test]
async fn the_end_of_the_session_ends_the_changes_and_keeps_the_value() {
    let world = World::start().await;
    let client = world.client().await;
    let value = SharedValue::open(&client, PATH, "kept").await.unwrap();
    let mut changes = value.changes();
    world.end_session(&client).await;
    assert!(changes.next().await.is_none());
    assert_eq!(value.current().value, "kept");
    assert!(value.set("x").await.unwrap_err().is_session_over());
}

#[tokio::test]
async fn a_dropped_value_leaves_no_watch() {
    let world = World::start().await;
    let client = world.client().await;
    let value = SharedValue::open(&client, PATH, "").await.unwrap();
    let mut changes = value.changes();
    value.set("1").await.unwrap();
    assert!(changes.next().await.is_some());
    drop(value);
    assert!(changes.next().await.is_none());
    while client.watch_count() > 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn every_lost_request_and_reply_of_a_conditional_write_is_told_truly() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let value = SharedValue::open(&client, &path, "0").await.unwrap();
                match value.try_set(&value.current(), "1").await {
                    Ok(applied) => assert!(applied),
                    // The reply was lost and the value equals the new one, so the outcome is
                    // unknown.
                    Err(error) => assert!(error.client_error().unwrap().is_retriable(), "{error}"),
                }
                assert_eq!(watching.get(&path).await.unwrap().data, "1");
            }
        })
        .await;
    }
}
