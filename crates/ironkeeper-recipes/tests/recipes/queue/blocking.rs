//! `BlockingQueue`.

use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::Client;
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::queue::BlockingQueue;
use ironkeeper_testing::Direction;

use crate::world::watch_events::counted;
use crate::world::{World, drop_after_polls, until_children, until_watches, with_every_cut};

const PATH: &str = "/queues/b";

fn queue(client: &Client, limit: usize) -> BlockingQueue {
    BlockingQueue::new(client, PATH, limit).unwrap()
}

#[tokio::test]
async fn a_full_queue_refuses_or_lets_wait_and_an_empty_one_too() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (ours, theirs) = (queue(&one, 2), queue(&two, 2));
    assert_eq!(ours.path(), PATH);
    assert_eq!(ours.poll().await.unwrap(), None);
    assert_eq!(ours.poll_within(Duration::ZERO).await.unwrap(), None);
    assert!(ours.offer("1").await.unwrap());
    assert_eq!(ours.room().await.unwrap(), 1);
    ours.put("2").await.unwrap();
    assert!(!ours.offer("x").await.unwrap());
    assert!(!ours.offer_within("x", Duration::from_millis(1)).await.unwrap());
    // A `take` makes room for a waiting `put`.
    let waiting = tokio::spawn({
        let ours = ours.clone();
        async move { ours.put("3").await }
    });
    until_children(&two, &format!("{PATH}.putters"), 1).await;
    assert_eq!(theirs.take().await.unwrap(), "1");
    waiting.await.unwrap().unwrap();
    assert_eq!(theirs.peek().await.unwrap().unwrap(), "2");
    assert_eq!(theirs.drain(10).await.unwrap(), ["2", "3"]);
    assert!(theirs.is_empty().await.unwrap());
    // A `put` serves a waiting `take`.
    let waiting = tokio::spawn(async move { theirs.take().await });
    until_children(&one, &format!("{PATH}.takers"), 1).await;
    ours.put("4").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "4");
}

#[tokio::test]
async fn several_items_are_put_together_when_there_is_room_for_all() {
    let world = World::start().await;
    let client = world.client().await;
    let queue = queue(&client, 3);
    queue.put_all(["1", "2"]).await.unwrap();
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.put_all(["3", "4"]).await }
    });
    until_children(&client, &format!("{PATH}.putters"), 1).await;
    assert_eq!(queue.take().await.unwrap(), "1");
    waiting.await.unwrap().unwrap();
    assert_eq!(queue.drain(10).await.unwrap(), ["2", "3", "4"]);
    let refused = queue.put_all(["1", "2", "3", "4"]).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    let refused = BlockingQueue::new(&client, PATH, 0).unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}

#[tokio::test]
async fn curator_254_many_producers_do_not_exceed_the_limit_and_nothing_is_lost() {
    const LIMIT: usize = 3;
    const EACH: usize = 10;
    let world = World::start().await;
    let mut producers = Vec::new();
    for producer in 0..4 {
        let queue = queue(&world.client().await, LIMIT);
        producers.push(tokio::spawn(async move {
            for item in 0..EACH {
                queue.put(format!("{producer}-{item}")).await.unwrap();
            }
        }));
    }
    let queue = queue(&world.client().await, LIMIT);
    let mut taken: Vec<Bytes> = Vec::new();
    while taken.len() < 4 * EACH {
        assert!(queue.len().await.unwrap() <= LIMIT);
        taken.push(queue.take().await.unwrap());
    }
    for producer in producers {
        producer.await.unwrap();
    }
    assert!(queue.is_empty().await.unwrap());
    taken.sort();
    taken.dedup();
    assert_eq!(taken.len(), 4 * EACH);
}

#[tokio::test]
async fn room_in_a_full_queue_costs_two_watch_events_however_many_wait() {
    let world = World::start().await;
    let other = world.client().await;
    let taker = queue(&other, 1);
    taker.put("0").await.unwrap();
    let (client, events) = counted(&world).await;
    let (done, mut puts) = tokio::sync::mpsc::channel(10);
    for number in 1..=10 {
        let (queue, done) = (queue(&client, 1), done.clone());
        tokio::spawn(async move {
            queue.put(number.to_string()).await.unwrap();
            done.send(()).await.unwrap();
        });
    }
    until_children(&other, &format!("{PATH}.putters"), 10).await;
    until_watches(&client, 10).await;
    for waiting in (1..10).rev() {
        let before = events.count();
        taker.take().await.unwrap();
        puts.recv().await.unwrap();
        // One event for the head of the queue, which puts its item and leaves; one for the next
        // waiter.
        until_watches(&client, waiting).await;
        until_children(&other, &format!("{PATH}.putters"), waiting).await;
        until_watches(&client, waiting).await;
        assert_eq!(events.count() - before, 2);
    }
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_an_item_in_the_queue_once() {
    let world = World::start().await;
    let taker = queue(&world.client().await, 1);
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let taker = taker.clone();
            async move {
                queue(&client, 1).put(round.to_string()).await.unwrap();
                assert_eq!(taker.len().await.unwrap(), 1);
                assert_eq!(taker.take().await.unwrap(), round.to_string());
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_put_that_waits_and_is_dropped_leaves_its_place_in_line() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let queue = queue(&client, 1);
    queue.put("full").await.unwrap();
    for polls in 0..20 {
        let done = drop_after_polls(
            tokio::time::timeout(Duration::from_millis(50), queue.put("dropped")),
            polls,
        )
        .await;
        until_children(&watching, &format!("{PATH}.putters"), 0).await;
        assert_eq!(queue.len().await.unwrap(), 1);
        if done.is_some() {
            break;
        }
    }
    world.end_session(&client).await;
    assert!(queue.put("x").await.unwrap_err().is_session_over());
}
