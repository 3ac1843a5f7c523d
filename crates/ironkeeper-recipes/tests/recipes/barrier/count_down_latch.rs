//! `CountDownLatch`.

use std::time::Duration;

use ironkeeper_client::Version;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::barrier::CountDownLatch;
use ironkeeper_testing::Direction;

use super::plain::until_watches;
use crate::world::watch_events::counted;
use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/latches/l";

#[tokio::test]
async fn it_opens_with_the_last_count_and_wakes_once() {
    let world = World::start().await;
    let (waiter, events) = counted(&world).await;
    let latch = CountDownLatch::new(&waiter, PATH, 5).unwrap();
    let waiting = tokio::spawn({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    until_watches(&waiter, 1).await;
    let counter = CountDownLatch::new(&world.client().await, PATH, 5).unwrap();
    for left in [4, 3, 2, 1] {
        assert_eq!(counter.count_down().await.unwrap(), left);
    }
    assert_eq!(latch.missing().await.unwrap(), 1);
    assert!(!waiting.is_finished());
    assert_eq!(events.count(), 0);
    assert_eq!(counter.count_down().await.unwrap(), 0);
    waiting.await.unwrap().unwrap();
    assert_eq!(events.count(), 1);
    // The latch stays open for later waiters, and the count does not go below zero.
    assert_eq!(counter.count_down().await.unwrap(), 0);
    latch.wait().await.unwrap();
    until_children(&waiter, PATH, 0).await;
    // After `remove`, a new latch on the same path is closed.
    latch.remove().await.unwrap();
    assert!(!latch.wait_within(Duration::from_millis(20)).await.unwrap());
}

#[tokio::test]
async fn many_counters_at_once_lose_no_count() {
    let world = World::start().await;
    let mut tasks = Vec::new();
    for _ in 0..4 {
        let latch = CountDownLatch::new(&world.client().await, PATH, 20).unwrap();
        tasks.push(tokio::spawn(async move {
            for _ in 0..5 {
                latch.count_down().await.unwrap();
            }
        }));
    }
    CountDownLatch::new(&world.client().await, PATH, 20).unwrap().wait().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
}

#[tokio::test]
async fn an_id_counts_once() {
    let world = World::start().await;
    let latch = CountDownLatch::new(&world.client().await, PATH, 3).unwrap();
    assert_eq!(latch.count_down_as("a").await.unwrap(), 2);
    let again = CountDownLatch::new(&world.client().await, PATH, 3).unwrap();
    assert_eq!(again.count_down_as("a").await.unwrap(), 2);
    assert_eq!(again.count_down_as("b").await.unwrap(), 1);
    assert!(matches!(again.count_down_as("a/b").await, Err(RecipeError::Misuse(_))));
    assert!(matches!(
        CountDownLatch::new(&world.client().await, PATH, 0),
        Err(RecipeError::Misuse(_))
    ));
}

#[tokio::test]
async fn every_lost_request_and_reply_counts_once() {
    let world = World::start().await;
    let other = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let other = other.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let here = CountDownLatch::new(&client, &path, 3).unwrap();
                let there = CountDownLatch::new(&other, &path, 3).unwrap();
                let (one, two) = tokio::join!(here.count_down(), there.count_down());
                assert!(one.is_ok() && two.is_ok());
                assert_eq!(there.missing().await.unwrap(), 1);
                here.count_down().await.unwrap();
                there.wait().await.unwrap();
                here.wait().await.unwrap();
            }
        })
        .await;
        assert!(cuts > 10, "{cuts}");
    }
}

#[tokio::test]
async fn a_dropped_count_counts_once_at_most_and_leaves_no_receipt() {
    let world = World::start().await;
    let client = world.client().await;
    let latch = CountDownLatch::new(&client, PATH, 100).unwrap();
    let mut polls = 0;
    loop {
        let before = latch.missing().await.unwrap();
        let done = drop_after_polls(latch.count_down(), polls).await;
        until_children(&client, PATH, 1).await;
        let after = latch.missing().await.unwrap();
        assert!(after == before || after == before - 1);
        if done.is_some() {
            break;
        }
        polls += 1;
    }
    assert_eq!(children(&client, PATH).await, ["closed"]);
}

#[tokio::test]
async fn waiting_for_a_damaged_latch_is_an_error_and_not_a_loop() {
    let world = World::start().await;
    let client = world.client().await;
    let latch = CountDownLatch::new(&client, PATH, 2).unwrap();
    assert_eq!(latch.missing().await.unwrap(), 2);
    client.delete(&format!("{PATH}/closed"), Version::Any).await.unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(60), latch.wait()).await;
    let error = waited.expect("it ends").unwrap_err();
    assert!(matches!(error, RecipeError::Malformed { .. }), "{error}");
}
