//! `SimpleQueue`.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, Version, WatchType};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::queue::SimpleQueue;
use ironkeeper_testing::Direction;

use crate::world::watch_events::{WatchEvents, counted};
use crate::world::{
    World, children, drop_after_polls, until_children, until_watches, while_away, with_every_cut,
};

const PATH: &str = "/queues/q";
const TAKERS: &str = "/queues/q.takers";

fn queue(client: &Client) -> SimpleQueue {
    SimpleQueue::new(client, PATH).unwrap()
}

/// Waits until the server has a watch of this client on the children of a node.
pub async fn until_watched(client: &Client, path: &str) {
    while client.check_watches(path, WatchType::Children).await.is_err() {
        tokio::task::yield_now().await;
    }
}

/// Waits until all clients together have received `expected` events, and checks that it is no more.
pub async fn until_events(clients: &[(Client, WatchEvents)], expected: usize) {
    loop {
        let mut events = 0;
        for (client, count) in clients {
            client.exists("/").await.unwrap();
            events += count.count();
        }
        assert!(events <= expected, "{events} events instead of {expected}");
        if events == expected {
            break;
        }
    }
}

async fn drain(queue: &SimpleQueue) -> Vec<Bytes> {
    let mut items = Vec::new();
    while let Some(item) = queue.poll().await.unwrap() {
        items.push(item);
    }
    items
}

#[tokio::test]
async fn first_in_first_out() {
    let world = World::start().await;
    let queue = queue(&world.client().await);
    assert_eq!(queue.poll().await.unwrap(), None);
    assert_eq!(queue.peek().await.unwrap(), None);
    assert!(matches!(queue.remove().await, Err(RecipeError::Empty { .. })));
    assert!(matches!(queue.element().await, Err(RecipeError::Empty { .. })));
    queue.offer("a").await.unwrap();
    queue.offer_all(["b", "c", "d"]).await.unwrap();
    queue.offer("").await.unwrap();
    assert_eq!(queue.len().await.unwrap(), 5);
    assert_eq!(queue.peek().await.unwrap().unwrap(), "a");
    assert_eq!(queue.element().await.unwrap(), "a");
    assert_eq!(queue.remove().await.unwrap(), "a");
    assert_eq!(queue.take().await.unwrap(), "b");
    assert_eq!(queue.poll().await.unwrap().unwrap(), "c");
    assert_eq!(queue.poll_within(Duration::from_secs(60)).await.unwrap().unwrap(), "d");
    assert_eq!(queue.take().await.unwrap(), "");
    assert!(queue.is_empty().await.unwrap());
    assert_eq!(queue.poll_within(Duration::from_millis(20)).await.unwrap(), None);
    let other = world.client().await;
    until_children(&other, TAKERS, 0).await;
}

#[tokio::test]
async fn items_look_as_curators_do_and_others_are_left_alone() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive("/queues/q/readme", "", CreateMode::Persistent).await.unwrap();
    client.create("/queues/q/qn-", "java", CreateMode::PersistentSequential).await.unwrap();
    let queue = queue(&client);
    queue.offer("rust").await.unwrap();
    assert_eq!(children(&client, PATH).await, ["qn-0000000001", "qn-0000000002", "readme"]);
    assert_eq!(client.get("/queues/q/qn-0000000002").await.unwrap().data, "rust");
    assert_eq!(drain(&queue).await, ["java", "rust"]);
    assert_eq!(children(&client, PATH).await, ["readme"]);
}

#[tokio::test]
async fn every_item_goes_to_one_of_many_takers() {
    const ITEMS: usize = 120;
    let world = World::start().await;
    let mut takers = Vec::new();
    for _ in 0..6 {
        let queue = queue(&world.client().await);
        takers.push(tokio::spawn(async move {
            let mut taken = Vec::new();
            loop {
                let item = queue.take().await.unwrap();
                if item == "end" {
                    return taken;
                }
                taken.push(item);
            }
        }));
    }
    let producer = queue(&world.client().await);
    for item in 0..ITEMS {
        producer.offer(item.to_string()).await.unwrap();
    }
    producer.offer_all(["end"; 6]).await.unwrap();
    let mut all = Vec::new();
    for taker in takers {
        all.extend(taker.await.unwrap());
    }
    assert_eq!(all.len(), ITEMS);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), ITEMS);
}

#[tokio::test]
async fn an_item_costs_two_watch_events_however_many_wait() {
    let world = World::start().await;
    // Not a container: the deletion of an empty one would be another event.
    let client = world.client().await;
    client.create_recursive(PATH, "", CreateMode::Persistent).await.unwrap();
    let mut takers = Vec::new();
    let (taken, mut gets) = tokio::sync::mpsc::channel(1);
    for number in 0..8 {
        let (client, events) = counted(&world).await;
        let (queue, taken) = (queue(&client), taken.clone());
        takers.push((client.clone(), events));
        tokio::spawn(async move {
            let item = queue.take().await.unwrap();
            taken.send((number, item)).await.unwrap();
        });
        until_watches(&client, 1).await;
    }
    let producer = queue(&world.client().await);
    until_events(&takers, 0).await;
    for number in 0..7 {
        producer.offer("item").await.unwrap();
        // The takers are served in the order of their arrival.
        assert_eq!(gets.recv().await.unwrap().0, number);
        until_events(&takers, 2 * (number + 1)).await;
        until_watched(&takers[number + 1].0, PATH).await;
    }
    until_events(&takers, 14).await;
}

#[tokio::test]
async fn curator_308_388_a_taker_outlives_the_removal_of_the_empty_container() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let queue = queue(&client);
    let taking = tokio::spawn(async move { queue.take().await });
    until_watches(&client, 1).await;
    for _ in 0..3 {
        // As the server does with an empty container.
        let found = other.exists(PATH).await.unwrap().unwrap();
        other.delete(PATH, Version::Any).await.unwrap();
        loop {
            match other.exists(PATH).await.unwrap() {
                Some(stat) if stat.czxid != found.czxid => break,
                _ => tokio::task::yield_now().await,
            }
        }
        until_watches(&client, 1).await;
    }
    SimpleQueue::new(&other, PATH).unwrap().offer("late").await.unwrap();
    assert_eq!(taking.await.unwrap().unwrap(), "late");
}

#[tokio::test]
async fn every_lost_request_and_reply_puts_once_and_takes_once() {
    let world = World::start().await;
    let other = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let other = other.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let here = SimpleQueue::new(&client, &path).unwrap();
                let there = SimpleQueue::new(&other, &path).unwrap();
                here.offer("a").await.unwrap();
                here.offer_all(["b", "c"]).await.unwrap();
                assert_eq!(there.len().await.unwrap(), 3);
                assert_eq!(here.poll().await.unwrap().unwrap(), "a");
                assert_eq!(here.take().await.unwrap(), "b");
                assert_eq!(drain(&there).await, ["c"]);
                assert_eq!(here.poll().await.unwrap(), None);
            }
        })
        .await;
        assert!(cuts > 10, "{cuts}");
    }
}

#[tokio::test]
async fn a_removal_dropped_at_any_await_loses_nothing_and_keeps_the_order() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let names = |items: usize| until_children(&other, PATH, items);
    queue(&other).offer_all(["a", "b", "c"]).await.unwrap();
    let mut polls = 0;
    loop {
        // A new queue each time, so that reading the list is a part of it.
        let queue = queue(&client);
        let item = drop_after_polls(queue.take(), polls).await;
        drop(queue);
        if let Some(item) = item {
            assert_eq!(item.unwrap(), "a");
            break;
        }
        // The item is being put back as long as there is a receipt. The taker's own client reads
        // this, because requests of another client have no order with the pending requests of this
        // one.
        until_children(&client, "/queues/q.receipts", 0).await;
        names(3).await;
        assert_eq!(SimpleQueue::new(&other, PATH).unwrap().peek().await.unwrap().unwrap(), "a");
        polls += 1;
    }
    assert!(polls > 2, "{polls}");
    assert_eq!(drain(&queue(&other)).await, ["b", "c"]);
}

/// The reply to the put-back is lost, and another client takes the item before that is noticed.
#[tokio::test]
async fn what_is_put_back_is_put_back_once() {
    let world = World::start().await;
    let other = world.client().await;
    // The number of polls after which the removal is in flight.
    let mut polls = 1;
    queue(&other).offer("a").await.unwrap();
    while drop_after_polls(queue(&other).poll(), polls).await.is_none() {
        until_children(&other, "/queues/q.receipts", 0).await;
        polls += 1;
    }
    let cuts = with_every_cut(&world, Direction::ToClient, |client, round| {
        let other = other.clone();
        async move {
            let path = format!("/put-back/{round}");
            let there = SimpleQueue::new(&other, &path).unwrap();
            there.offer("a").await.unwrap();
            let here = SimpleQueue::new(&client, &path).unwrap();
            let given = drop_after_polls(here.poll(), polls - 1).await;
            drop(here);
            if given.is_none() {
                assert_eq!(there.take().await.unwrap(), "a");
            }
            // The item is being put back as long as there is a receipt.
            drop(there);
            until_children(&client, &format!("{path}.receipts"), 0).await;
            assert_eq!(SimpleQueue::new(&other, &path).unwrap().poll().await.unwrap(), None);
        }
    })
    .await;
    assert!(cuts > 10, "{cuts}");
}

#[tokio::test]
async fn an_offer_dropped_at_any_await_is_done_once_or_not() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let mut polls = 0;
    loop {
        let queue = queue(&client);
        let done = drop_after_polls(queue.offer("x"), polls).await.is_some();
        drop(queue);
        // Sent after all pending requests of the dropped future, so the other client then sees the
        // result.
        until_children(&client, "/queues/q.receipts", 0).await;
        let items = drain(&SimpleQueue::new(&other, PATH).unwrap()).await;
        assert!(items.len() <= 1 && (!done || items.len() == 1), "{items:?}");
        if done {
            break;
        }
        polls += 1;
    }
    assert!(polls > 2, "{polls}");
}

#[tokio::test]
async fn a_dropped_taker_leaves_the_line() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let first = queue(&client);
    let taking = tokio::spawn(async move { first.take().await });
    until_watches(&client, 1).await;
    let second = queue(&other);
    let waiting = tokio::spawn(async move { second.take().await });
    until_children(&other, TAKERS, 2).await;
    taking.abort();
    assert!(taking.await.unwrap_err().is_cancelled());
    until_children(&other, TAKERS, 1).await;
    queue(&client).offer("x").await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), "x");
}

#[tokio::test]
async fn the_end_of_the_session_ends_the_wait_and_frees_the_next() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = queue(&one);
    let dies = tokio::spawn(async move { first.take().await });
    until_watches(&one, 1).await;
    let second = queue(&two);
    let lives = tokio::spawn(async move { second.take().await });
    until_children(&world.client().await, TAKERS, 2).await;
    world.end_session(&one).await;
    assert!(dies.await.unwrap().unwrap_err().is_session_over());
    queue(&two).offer("x").await.unwrap();
    assert_eq!(lives.await.unwrap().unwrap(), "x");
}

#[tokio::test]
async fn misuse_is_told() {
    let world = World::start().await;
    let client = world.client().await;
    assert!(matches!(SimpleQueue::new(&client, "/"), Err(RecipeError::Misuse(_))));
    assert!(SimpleQueue::new(&client, "no/path").unwrap().offer("x").await.is_err());
    assert!(SimpleQueue::new(&client, "no/path").unwrap().poll().await.is_err());
}

#[tokio::test]
async fn a_queue_whose_removal_was_dropped_goes_on_with_the_first_item() {
    let world = World::start().await;
    let client = world.client().await;
    let queue = queue(&client);
    for polls in 0.. {
        queue.offer_all(["a", "b", "c", "d"]).await.unwrap();
        // So that the list is cached.
        assert_eq!(queue.poll().await.unwrap().unwrap(), "a");
        let dropped = drop_after_polls(queue.poll(), polls).await;
        let is_done = dropped.is_some();
        let rest = drain(&queue).await;
        assert_eq!(rest, if is_done { &["c", "d"][..] } else { &["b", "c", "d"] }, "{polls}");
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn an_item_that_is_put_back_into_a_queue_that_has_begun_anew_is_not_lost() {
    let world = World::start().await;
    let other = world.client().await;
    let mut was_removed = false;
    for bytes in (0..).step_by(7) {
        let (proxy, client) = world.proxied().await;
        let (ours, theirs) = (queue(&client), queue(&other));
        theirs.offer("old").await.unwrap();
        let (polled, was_cut) = {
            let (dropped, taking) = tokio::sync::oneshot::channel();
            let polling = async {
                tokio::select! {
                    biased;
                    _ = taking => None,
                    polled = ours.poll() => Some(polled),
                }
            };
            let meanwhile = async {
                if children(&other, PATH).await.is_empty() {
                    was_removed = true;
                    // The server may have deleted the empty container already.
                    let _ = other.delete(PATH, Version::Any).await;
                    theirs.offer("new").await.unwrap();
                }
                dropped.send(()).unwrap();
            };
            while_away(&proxy, bytes, polling, meanwhile).await
        };
        if polled.is_none() {
            // The item is being put back as long as there is a receipt.
            drop(ours);
            until_children(&client, "/queues/q.receipts", 1).await;
            let mut items = drain(&theirs).await;
            items.sort();
            assert!(items == ["old"] || items == ["new", "old"], "{items:?}");
            // Sequence numbers assigned later are free.
            theirs.offer_all(["1", "2", "3"]).await.unwrap();
            assert_eq!(drain(&theirs).await, ["1", "2", "3"]);
        }
        if !was_cut {
            break;
        }
    }
    assert!(was_removed);
}
