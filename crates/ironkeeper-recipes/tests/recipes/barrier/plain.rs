//! `Barrier`, which is set and removed.

use std::time::Duration;

use ironkeeper_client::Client;
use ironkeeper_recipes::barrier::Barrier;
use ironkeeper_testing::Direction;

use crate::world::watch_events::counted;
use crate::world::{World, drop_after_polls, while_away, with_every_cut};

const PATH: &str = "/barriers/b";

/// Waits until a client has `count` watches and the server has set them. One check per round trip.
pub async fn until_watches(client: &Client, count: usize) {
    while client.watch_count() != count {
        client.exists("/").await.unwrap();
    }
    // The client counts a watch when it sends the request; replies arrive in order.
    client.exists("/").await.unwrap();
}

#[tokio::test]
async fn an_open_barrier_is_passed_and_leaves_no_watch() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = Barrier::new(&client, PATH);
    barrier.wait().await.unwrap();
    assert!(!barrier.is_set().await.unwrap());
    assert!(!barrier.remove().await.unwrap());
    assert_eq!(client.watch_count(), 0);
}

#[tokio::test]
async fn a_removal_costs_one_event_per_waiter() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = Barrier::new(&client, PATH);
    assert!(barrier.set().await.unwrap());
    assert!(!barrier.set().await.unwrap());
    let mut waiters = Vec::new();
    for _ in 0..5 {
        let (client, events) = counted(&world).await;
        let waiting = Barrier::new(&client, PATH);
        let task = tokio::spawn(async move { waiting.wait().await });
        until_watches(&client, 1).await;
        waiters.push((task, events, client));
    }
    assert!(waiters.iter().all(|(task, events, _)| !task.is_finished() && events.count() == 0));
    assert!(barrier.remove().await.unwrap());
    for (task, events, client) in waiters {
        task.await.unwrap().unwrap();
        client.exists("/").await.unwrap();
        assert_eq!(events.count(), 1);
    }
}

#[tokio::test]
async fn curator_654_waiters_that_give_up_leave_no_watches() {
    let world = World::start().await;
    let client = world.client().await;
    let barrier = Barrier::new(&client, PATH);
    barrier.set().await.unwrap();
    for _ in 0..20 {
        assert!(!barrier.wait_within(Duration::from_millis(1)).await.unwrap());
    }
    for polls in 0..6 {
        let dropped = drop_after_polls(barrier.wait(), polls);
        assert!(
            tokio::time::timeout(Duration::from_millis(20), dropped).await.ok().flatten().is_none()
        );
    }
    client.exists("/").await.unwrap();
    assert_eq!(client.watch_count(), 0);
}

#[tokio::test]
async fn a_broken_connection_lets_nobody_pass() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    let barrier = Barrier::new(&client, PATH);
    barrier.set().await.unwrap();
    let waiting = tokio::spawn({
        let barrier = barrier.clone();
        async move { barrier.wait().await }
    });
    until_watches(&client, 1).await;
    for _ in 0..3 {
        let mut states = client.states();
        proxy.cut();
        while !states.next().await.unwrap().is_connected() {}
        client.exists("/").await.unwrap();
        assert!(!waiting.is_finished());
    }
    Barrier::new(&other, PATH).remove().await.unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test]
async fn the_end_of_the_session_ends_the_wait_but_not_the_barrier() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let barrier = Barrier::new(&one, PATH);
    barrier.set().await.unwrap();
    let waiting = tokio::spawn(async move { barrier.wait().await });
    until_watches(&one, 1).await;
    world.end_session(&one).await;
    assert!(waiting.await.unwrap().unwrap_err().is_session_over());
    assert!(Barrier::new(&two, PATH).is_set().await.unwrap());
}

#[tokio::test]
async fn every_lost_request_and_reply_is_made_up_for() {
    let world = World::start().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| async move {
            let barrier = Barrier::new(&client, PATH);
            barrier.set().await.unwrap();
            assert!(barrier.is_set().await.unwrap());
            let waiter = barrier.clone();
            let waiting = tokio::spawn(async move { waiter.wait().await });
            barrier.remove().await.unwrap();
            waiting.await.unwrap().unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn a_barrier_is_set_and_removed_once_whoever_comes_between_a_lost_reply_and_the_next_try() {
    let world = World::start().await;
    let other = Barrier::new(&world.client().await, PATH);
    for is_to_be_set in [true, false] {
        let mut was_between = false;
        for bytes in (0..).step_by(7) {
            let (proxy, client) = world.proxied().await;
            let barrier = Barrier::new(&client, PATH);
            let _ = if is_to_be_set { other.remove().await } else { other.set().await }.unwrap();
            let mut is_turned_back = false;
            let meanwhile = async {
                if other.is_set().await.unwrap() == is_to_be_set {
                    is_turned_back = true;
                    let _ = if is_to_be_set { other.remove().await } else { other.set().await };
                }
            };
            let changing =
                async { if is_to_be_set { barrier.set().await } else { barrier.remove().await } };
            let (changed, was_cut) = while_away(&proxy, bytes, changing, meanwhile).await;
            assert!(changed.unwrap());
            let is_set = other.is_set().await.unwrap();
            assert_eq!(is_set, is_to_be_set != is_turned_back, "after {bytes} bytes");
            was_between |= is_turned_back;
            if !was_cut {
                break;
            }
        }
        assert!(was_between);
    }
}
