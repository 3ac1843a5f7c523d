//! `ShardedQueue`.

use std::collections::BTreeSet;

use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::queue::ShardedQueue;
use ironkeeper_testing::Direction;

use crate::world::{
    World, children, drop_after_polls, until_children, until_watches, with_every_cut,
};

const PATH: &str = "/queues/s";

#[tokio::test]
async fn shards_are_added_when_all_are_full_up_to_the_limit() {
    let world = World::start().await;
    let mut producers = Vec::new();
    for producer in 0..3 {
        let queue = ShardedQueue::new(&world.client().await, PATH);
        let queue = queue.with_threshold(4).unwrap().with_max_shards(3).unwrap();
        producers.push(tokio::spawn(async move {
            for item in 0..8 {
                queue.put(format!("{producer}-{item}")).await.unwrap();
            }
        }));
    }
    for producer in producers {
        producer.await.unwrap();
    }
    let client = world.client().await;
    let queue = ShardedQueue::new(&client, PATH);
    assert_eq!(queue.len().await.unwrap(), 24);
    let shards = queue.shards().await.unwrap();
    assert_eq!(shards.len(), 3);
    // Curator treats every child as a shard.
    assert!(children(&client, PATH).await.iter().all(|name| name.starts_with("queue-")));
    for shard in shards {
        assert!(shard.len().await.unwrap() >= 4);
    }
    let mut seen = BTreeSet::new();
    while let Some(delivery) = queue.try_next().await.unwrap() {
        assert!(seen.insert(delivery.items()[0].clone()));
        delivery.done().await.unwrap();
    }
    assert_eq!(seen.len(), 24);
    assert!(queue.is_empty().await.unwrap());
    assert!(matches!(queue.clone().with_threshold(0), Err(RecipeError::Misuse(_))));
    assert!(matches!(queue.with_max_shards(0), Err(RecipeError::Misuse(_))));
}

#[tokio::test]
async fn a_waiting_worker_sees_new_shards() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let waits = ShardedQueue::new(&client, PATH);
    let wait = || {
        let waits = waits.clone();
        tokio::spawn(async move { waits.next().await.unwrap() })
    };
    let waiting = wait();
    until_watches(&client, 1).await;
    let queue = ShardedQueue::new(&other, PATH).with_threshold(1).unwrap();
    queue.put_all(["one"]).await.unwrap();
    let first = waiting.await.unwrap();
    assert_eq!(first.items(), ["one"]);
    let waiting = wait();
    // Watches on the list of shards, and on the items and the locks of the only shard.
    until_watches(&client, 3).await;
    queue.put("two").await.unwrap();
    let second = waiting.await.unwrap();
    assert_eq!(second.items(), ["two"]);
    assert_eq!(queue.shards().await.unwrap().len(), 2);
    first.done().await.unwrap();
    second.done().await.unwrap();
    for name in children(&other, "/queues/s.takers").await {
        until_children(&other, &format!("/queues/s.takers/{name}"), 0).await;
    }
}

#[tokio::test]
async fn every_lost_request_and_reply_neither_loses_nor_doubles() {
    let world = World::start().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| async move {
            let path = format!("/cuts-{direction:?}/{round}");
            let queue = ShardedQueue::new(&client, &path).with_threshold(1).unwrap();
            queue.put("a").await.unwrap();
            queue.put("b").await.unwrap();
            assert_eq!(queue.len().await.unwrap(), 2);
            queue.next().await.unwrap().done().await.unwrap();
            queue.next().await.unwrap().done().await.unwrap();
            assert!(queue.is_empty().await.unwrap());
        })
        .await;
    }
}

#[tokio::test]
async fn a_worker_dropped_at_any_await_loses_nothing() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let producer = ShardedQueue::new(&other, PATH).with_threshold(1).unwrap();
    producer.put("x").await.unwrap();
    producer.put("y").await.unwrap();
    let mut polls = 0;
    loop {
        let queue = ShardedQueue::new(&client, PATH);
        let next = drop_after_polls(queue.next(), polls).await;
        if let Some(delivery) = next {
            delivery.unwrap().done().await.unwrap();
            break;
        }
        for name in children(&other, "/queues/s.locks").await {
            until_children(&other, &format!("/queues/s.locks/{name}"), 0).await;
        }
        assert_eq!(producer.len().await.unwrap(), 2);
        polls += 1;
    }
    assert_eq!(producer.len().await.unwrap(), 1);
}
