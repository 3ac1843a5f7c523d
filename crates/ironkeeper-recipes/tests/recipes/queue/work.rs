//! `WorkQueue`.

use std::collections::BTreeSet;
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};
use ironkeeper_recipes::queue::{BlockingQueue, ErrorMode, WorkQueue};
use ironkeeper_recipes::{Lost, RecipeError};
use ironkeeper_testing::Direction;

use super::simple::{until_events, until_watched};
use crate::world::watch_events::counted;
use crate::world::{
    World, children, drop_after_polls, until_children, until_watches, while_away, with_every_cut,
};

const PATH: &str = "/queues/w";
const LOCKS: &str = "/queues/w.locks";

fn queue(client: &Client) -> WorkQueue {
    WorkQueue::new(client, PATH).unwrap()
}

#[tokio::test]
async fn items_are_locked_until_they_are_done() {
    let world = World::start().await;
    let client = world.client().await;
    let queue = queue(&client);
    assert!(queue.try_next().await.unwrap().is_none());
    queue.put("a").await.unwrap();
    queue.put_all(["b", "c"]).await.unwrap();
    let first = queue.next().await.unwrap();
    assert_eq!(first.items(), ["a"]);
    assert_eq!(children(&client, LOCKS).await, ["queue-0000000000"]);
    let second = queue.next().await.unwrap();
    assert_eq!(second.items(), ["b", "c"]);
    assert!(second.guard().unwrap().fencing_token() > first.guard().unwrap().fencing_token());
    assert!(queue.try_next().await.unwrap().is_none());
    assert!(queue.next_within(Duration::from_millis(20)).await.unwrap().is_none());
    first.done().await.unwrap();
    // A dropped delivery stays at its position.
    queue.put("d").await.unwrap();
    drop(second);
    until_children(&client, LOCKS, 0).await;
    let again = queue.next().await.unwrap();
    assert_eq!(again.items(), ["b", "c"]);
    again.requeue().await.unwrap();
    for expected in ["d", "b"] {
        let delivery = queue.next().await.unwrap();
        assert_eq!(delivery.items()[0], expected);
        delivery.done().await.unwrap();
    }
    assert!(queue.is_empty().await.unwrap());
    until_children(&client, LOCKS, 0).await;
}

#[tokio::test]
async fn items_look_as_curators_do() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive("/queues/w/readme", "", CreateMode::Persistent).await.unwrap();
    let queue = queue(&client);
    queue.put("hi").await.unwrap();
    assert_eq!(children(&client, PATH).await, ["queue-0000000001", "readme"]);
    let data = client.get("/queues/w/queue-0000000001").await.unwrap().data;
    assert_eq!(&data[..], b"\x00\x01\x00\x01\x01\x00\x00\x00\x02hi\x02");
    client.create("/queues/w/queue-", data, CreateMode::PersistentSequential).await.unwrap();
    // A lock node of Curator excludes this client, at any lock path.
    client
        .create_recursive("/l/queue-0000000001", "127.0.0.1", CreateMode::Ephemeral)
        .await
        .unwrap();
    let delivery = queue.with_lock_path("/l").next().await.unwrap();
    assert_eq!(delivery.path(), "/queues/w/queue-0000000002");
    assert_eq!(delivery.items(), ["hi"]);
    delivery.done().await.unwrap();
}

#[tokio::test]
async fn the_node_of_the_locks_stays_since_curators_workers_make_it_only_once() {
    let world = World::start().await;
    let client = world.client().await;
    let queue = queue(&client).with_lock_path("/by/lock");
    queue.put("a").await.unwrap();
    queue.next().await.unwrap().done().await.unwrap();
    // Containers that become empty later than the lock node. When the second one is deleted, the
    // server has checked all containers that were empty before it.
    for container in ["/container-1", "/container-2"] {
        client.create(container, "", CreateMode::Container).await.unwrap();
        let child = format!("{container}/child");
        client.create(&child, "", CreateMode::Ephemeral).await.unwrap();
        client.delete(&child, Version::Any).await.unwrap();
        let (found, gone) = client.exists_and_watch(container).await.unwrap();
        if found.is_some() {
            gone.await.unwrap();
        }
    }
    assert!(client.exists("/by/lock").await.unwrap().is_some());
    assert!(client.exists(PATH).await.unwrap().is_some());
}

#[tokio::test]
async fn what_is_no_item_is_set_aside() {
    let world = World::start().await;
    let client = world.client().await;
    for (locks, path) in [(true, "/m/a"), (false, "/m/b")] {
        let mut queue = WorkQueue::new(&client, path).unwrap();
        if !locks {
            queue = queue.without_locks();
        }
        let bad = format!("{path}/queue-0000000000");
        client.create_recursive(&bad, "rubbish", CreateMode::Persistent).await.unwrap();
        queue.put("good").await.unwrap();
        let delivery = queue.next().await.unwrap();
        assert_eq!(delivery.items(), ["good"]);
        delivery.done().await.unwrap();
        let aside = children(&client, &format!("{path}.malformed")).await;
        let aside = format!("{path}.malformed/{}", aside[0]);
        assert_eq!(client.get(&aside).await.unwrap().data, "rubbish");
    }
}

#[tokio::test]
async fn an_item_goes_to_the_next_worker_when_the_first_one_dies() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    queue(&two).put("x").await.unwrap();
    let dies = queue(&one).next().await.unwrap();
    let waits = queue(&two);
    let waiting = tokio::spawn(async move { waits.next().await });
    // The worker watches the queue and, because all items are locked, the locks.
    until_watches(&two, 2).await;
    world.end_session(&one).await;
    let second = waiting.await.unwrap().unwrap();
    assert_eq!(second.items(), ["x"]);
    assert_eq!(dies.lost().await, Lost::SessionEnded);
    assert!(dies.done().await.unwrap_err().is_session_over());
    second.done().await.unwrap();
}

#[tokio::test]
async fn curator_537_605_the_writes_of_one_worker_alone_take_place() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    queue(&two).put("x").await.unwrap();
    let first = queue(&one).next().await.unwrap();
    // The lock node is deleted without the worker's knowledge, as after an expiry.
    two.delete(first.guard().unwrap().path(), Version::Any).await.unwrap();
    let second = queue(&two).next().await.unwrap();
    let write =
        |both: ironkeeper_client::Transaction| both.create("/result", "", CreateMode::Persistent);
    second.done_with(write).await.unwrap();
    let late = first.done_with(|both| both.create("/other", "", CreateMode::Persistent)).await;
    assert!(matches!(late, Err(RecipeError::Lost { why: Lost::NodeDeleted, .. })), "{late:?}");
    assert!(one.exists("/result").await.unwrap().is_some());
    assert!(one.exists("/other").await.unwrap().is_none());
    // After a rejected write, the item stays for other workers.
    let queue = queue(&two);
    queue.put("y").await.unwrap();
    let refused = queue.next().await.unwrap().done_with(write).await.unwrap_err();
    assert_eq!(refused.kind(), Some(ErrorKind::NodeExists));
    assert_eq!(queue.next().await.unwrap().items(), ["y"]);
}

#[tokio::test]
async fn an_item_costs_two_watch_events_however_many_wait() {
    let world = World::start().await;
    let mut workers = Vec::new();
    let (sender, mut deliveries) = tokio::sync::mpsc::channel(1);
    for number in 0..6 {
        let (client, events) = counted(&world).await;
        let (queue, sender) = (queue(&client), sender.clone());
        workers.push((client.clone(), events));
        tokio::spawn(async move {
            let delivery = queue.next().await.unwrap();
            sender.send((number, delivery)).await.unwrap();
        });
        until_watches(&client, 1).await;
    }
    let producer = queue(&world.client().await);
    for number in 0..5 {
        producer.put("item").await.unwrap();
        let (served, delivery) = deliveries.recv().await.unwrap();
        assert_eq!(served, number);
        until_events(&workers, 4 * number + 2).await;
        // The next worker watches the queue, and the locks as long as the item exists.
        until_watched(&workers[number + 1].0, PATH).await;
        until_watched(&workers[number + 1].0, LOCKS).await;
        delivery.done().await.unwrap();
        // The end of the delivery fired both watches.
        until_events(&workers, 4 * number + 4).await;
        until_watched(&workers[number + 1].0, PATH).await;
    }
}

#[tokio::test]
async fn every_item_is_worked_on_once_by_many_workers() {
    const ITEMS: usize = 60;
    let world = World::start().await;
    for locks in [true, false] {
        let path = format!("/many/{locks}");
        let (seen, mut items) = tokio::sync::mpsc::channel(ITEMS);
        let mut workers = Vec::new();
        for _ in 0..4 {
            let mut queue = WorkQueue::new(&world.client().await, &path).unwrap();
            if !locks {
                queue = queue.without_locks();
            }
            let seen = seen.clone();
            workers.push(tokio::spawn(async move {
                let work = |item| seen.send(item);
                queue.consume(ErrorMode::Requeue, work).await.map(|_| ())
            }));
        }
        let producer = WorkQueue::new(&world.client().await, &path).unwrap();
        for item in 0..ITEMS / 2 {
            producer.put_all([format!("{item}a"), format!("{item}b")]).await.unwrap();
        }
        let mut all = Vec::new();
        while all.len() < ITEMS {
            all.push(items.recv().await.unwrap());
        }
        until_children(&world.client().await, &path, 0).await;
        assert!(items.try_recv().is_err());
        assert_eq!(all.into_iter().collect::<BTreeSet<_>>().len(), ITEMS);
        for worker in workers {
            worker.abort();
        }
    }
}

#[tokio::test]
async fn failed_items_are_queued_again_or_deleted() {
    let world = World::start().await;
    let client = world.client().await;
    for (mode, expected) in [
        (ErrorMode::Requeue, vec!["bad", "good", "bad", "tail"]),
        (ErrorMode::Delete, vec!["bad", "tail", "good"]),
    ] {
        let queue = WorkQueue::new(&client, format!("/modes/{mode:?}")).unwrap();
        queue.put_all(["bad", "tail"]).await.unwrap();
        queue.put("good").await.unwrap();
        let (seen, mut items) = tokio::sync::mpsc::channel(8);
        let mut failures = 0;
        let work = |item: bytes::Bytes| {
            let fails = item == "bad" && failures == 0;
            failures += usize::from(fails);
            let sending = seen.send(item);
            async move {
                sending.await.unwrap();
                if fails { Err("cannot") } else { Ok(()) }
            }
        };
        tokio::select! {
            ended = queue.consume(mode, work) => panic!("{ended:?}"),
            () = async {
                for expected in expected {
                    assert_eq!(items.recv().await.unwrap(), expected);
                }
                until_children(&client, queue.path(), 0).await;
            } => {}
        }
    }
}

#[tokio::test]
async fn curator_623_a_worker_goes_on_after_every_broken_connection() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let waits = queue(&client);
    let producer = queue(&world.client().await);
    let (seen, mut items) = tokio::sync::mpsc::channel(8);
    let worker = tokio::spawn(async move {
        let work = |item| seen.send(item);
        waits.consume(ErrorMode::Requeue, work).await.map(|_| ())
    });
    for round in 0..5 {
        until_watches(&client, 1).await;
        let mut states = client.states();
        proxy.refuse();
        proxy.cut();
        while states.next().await.unwrap().is_connected() {}
        producer.put(round.to_string()).await.unwrap();
        proxy.heal().unwrap();
        assert_eq!(items.recv().await.unwrap(), round.to_string());
    }
    worker.abort();
}

#[tokio::test]
async fn every_lost_request_and_reply_neither_loses_nor_doubles() {
    let world = World::start().await;
    let other = world.client().await;
    for (direction, locks) in [
        (Direction::ToServer, true),
        (Direction::ToClient, true),
        (Direction::ToServer, false),
        (Direction::ToClient, false),
    ] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let other = other.clone();
            async move {
                let path = format!("/cuts-{direction:?}-{locks}/{round}");
                let mut here = WorkQueue::new(&client, &path).unwrap();
                if !locks {
                    here = here.without_locks();
                }
                here.put_all(["a", "b"]).await.unwrap();
                here.put("c").await.unwrap();
                assert_eq!(children(&other, &path).await.len(), 2);
                let delivery = here.next().await.unwrap();
                assert_eq!(delivery.items(), ["a", "b"]);
                delivery.requeue().await.unwrap();
                assert_eq!(children(&other, &path).await.len(), 2);
                for first in ["c", "a"] {
                    let delivery = here.next().await.unwrap();
                    assert_eq!(delivery.items()[0], first);
                    delivery.done().await.unwrap();
                }
                assert_eq!(children(&other, &path).await, [""; 0]);
                until_children(&other, &format!("{path}.locks"), 0).await;
            }
        })
        .await;
        assert!(cuts > 10, "{cuts}");
    }
}

#[tokio::test]
async fn futures_dropped_at_any_await_lose_nothing_and_leave_no_lock() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    for locks in [true, false] {
        let path = format!("/drops/{locks}");
        WorkQueue::new(&other, &path).unwrap().put("x").await.unwrap();
        let queue = || {
            let queue = WorkQueue::new(&client, &path).unwrap();
            if locks { queue } else { queue.without_locks() }
        };
        let mut polls = 0;
        let delivery = loop {
            let fresh = queue();
            let next = drop_after_polls(fresh.next(), polls).await;
            drop(fresh);
            if let Some(delivery) = next {
                break delivery.unwrap();
            }
            until_children(&other, &format!("{path}.locks"), 0).await;
            // The item is being put back as long as there is a receipt.
            let receipts = format!("{path}.receipts");
            until_children(&client, &receipts, 0).await;
            assert_eq!(children(&other, &path).await.len(), 1);
            polls += 1;
        };
        assert!(polls > 2, "{polls}");
        delivery.done().await.unwrap();
        // The same for `done`: it completes, or the item is unlocked.
        for polls in 0..3 {
            queue().put("y").await.unwrap();
            let delivery = queue().next().await.unwrap();
            let _ = drop_after_polls(delivery.done(), polls).await;
            until_children(&other, &format!("{path}.locks"), 0).await;
            if let Some(left) = queue().try_next().await.unwrap() {
                left.done().await.unwrap();
            }
            assert_eq!(children(&other, &path).await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn curator_254_many_producers_never_exceed_the_limit() {
    const LIMIT: usize = 3;
    let world = World::start().await;
    let watching = world.client().await;
    let mut producers = Vec::new();
    for producer in 0..4 {
        let queue = queue(&world.client().await).with_limit(LIMIT).unwrap();
        producers.push(tokio::spawn(async move {
            for item in 0..5 {
                queue.put(format!("{producer}-{item}")).await.unwrap();
            }
        }));
    }
    let worker = queue(&watching);
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let delivery = worker.next().await.unwrap();
        assert!(worker.len().await.unwrap() <= LIMIT);
        assert!(seen.insert(delivery.items()[0].clone()));
        delivery.done().await.unwrap();
    }
    for producer in producers {
        producer.await.unwrap();
    }
    assert!(worker.is_empty().await.unwrap());
}

#[tokio::test]
async fn a_full_queue_is_waited_for_or_not() {
    let world = World::start().await;
    let (client, events) = counted(&world).await;
    let full = queue(&client).with_limit(1).unwrap();
    full.put("a").await.unwrap();
    assert!(!full.put_within("b", Duration::from_millis(20)).await.unwrap());
    assert_eq!(full.len().await.unwrap(), 1);
    until_children(&client, "/queues/w.putters", 0).await;
    let before = events.count();
    let waiting = tokio::spawn({
        let full = full.clone();
        async move { full.put_within("c", Duration::from_secs(60)).await }
    });
    until_watches(&client, 1).await;
    let worker = queue(&world.client().await);
    worker.next().await.unwrap().done().await.unwrap();
    assert!(waiting.await.unwrap().unwrap());
    assert!(events.count() - before <= 2, "{} {before}", events.count());
    let delivery = worker.next().await.unwrap();
    assert_eq!(delivery.items(), ["c"]);
    delivery.done().await.unwrap();
    assert!(matches!(queue(&client).with_limit(0), Err(RecipeError::Misuse(_))));
    assert!(matches!(full.put_all([""; 0]).await, Err(RecipeError::Misuse(_))));
    assert!(matches!(WorkQueue::new(&client, "/"), Err(RecipeError::Misuse(_))));
}

#[tokio::test]
async fn work_that_is_done_with_a_lost_reply_is_done_whoever_locks_the_item_then() {
    let world = World::start().await;
    let other = world.client().await;
    let mut was_done = false;
    for bytes in (0..).step_by(7) {
        let (proxy, client) = world.proxied().await;
        queue(&other).put("work").await.unwrap();
        let delivery = queue(&client).next().await.unwrap();
        let lock = delivery.guard().unwrap().path().to_owned();
        let mut is_locked = false;
        // As a client does that has an old list.
        let meanwhile = async {
            is_locked = other.create(&lock, "other", CreateMode::Ephemeral).await.is_ok();
        };
        let (done, was_cut) = while_away(&proxy, bytes, delivery.done(), meanwhile).await;
        done.unwrap();
        assert_eq!(queue(&other).len().await.unwrap(), 0);
        if is_locked {
            was_done = true;
            other.delete(&lock, Version::Any).await.unwrap();
        }
        if !was_cut {
            break;
        }
    }
    assert!(was_done);
}

#[tokio::test]
async fn a_wait_for_room_may_be_for_ever() {
    let world = World::start().await;
    let client = world.client().await;
    let queue = queue(&client);
    assert!(queue.put_within("a", Duration::MAX).await.unwrap());
    let limited = BlockingQueue::new(&client, "/queues/b", 1).unwrap();
    assert!(limited.offer_within("a", Duration::MAX).await.unwrap());
}
