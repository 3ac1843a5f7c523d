//! Condition variables.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::lock::{Condition, Mutex};
use ironkeeper_recipes::{Guard, Lost, RecipeError, Result};
use ironkeeper_testing::Direction;
use tokio::task::JoinHandle;

use crate::world::watch_events::counted;
use crate::world::{
    World, children, drop_after_polls, until_children, until_watches, with_every_cut,
};

const LOCK: &str = "/lock";
const PATH: &str = "/condition";
const FOR_EVER: Duration = Duration::from_secs(3600);

fn condition(client: &Client) -> Condition {
    Condition::new(&Mutex::new(client, LOCK), PATH)
}

async fn locked(client: &Client) -> Guard {
    Mutex::new(client, LOCK).lock().await.unwrap()
}

/// Starts a waiter, and returns when it waits.
async fn waiter(client: &Client) -> JoinHandle<Result<Guard>> {
    waiter_seen_by(client, client).await
}

/// Starts a waiter; `watching` reads the nodes.
async fn waiter_seen_by(client: &Client, watching: &Client) -> JoinHandle<Result<Guard>> {
    let condition = condition(client);
    let before = condition.waiting().await.unwrap();
    let waiting = tokio::spawn(async move {
        let guard = condition.mutex().lock().await?;
        condition.wait(guard).await
    });
    until_children(watching, PATH, before + 1).await;
    // The waiter has released the lock.
    until_children(watching, LOCK, 0).await;
    waiting
}

#[tokio::test]
async fn those_who_wait_are_notified_in_the_order_of_their_coming() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = waiter(&one).await;
    let second = waiter(&two).await;
    let condition = condition(&one);
    assert_eq!(condition.waiting().await.unwrap(), 2);
    let guard = locked(&one).await;
    let token = guard.fencing_token();
    assert!(condition.notify_one(&guard).await.unwrap());
    guard.release().await.unwrap();
    let first = first.await.unwrap().unwrap();
    assert!(first.is_valid() && first.fencing_token() > token);
    assert_eq!(condition.waiting().await.unwrap(), 1);
    assert!(condition.notify_one(&first).await.unwrap());
    assert!(!condition.notify_one(&first).await.unwrap());
    first.release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn all_are_notified_and_hold_the_lock_one_after_another() {
    let world = World::start().await;
    let client = world.client().await;
    let mut waiting = Vec::new();
    for _ in 0..5 {
        waiting.push(waiter(&client).await);
    }
    let guard = locked(&client).await;
    assert_eq!(condition(&client).notify_all(&guard).await.unwrap(), 5);
    assert_eq!(condition(&client).notify_all(&guard).await.unwrap(), 0);
    guard.release().await.unwrap();
    for waiting in waiting {
        // Each waiter holds the lock alone until it is released here, in any order.
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
    assert_eq!(children(&client, PATH).await, [""; 0]);
}

#[tokio::test]
async fn a_notification_costs_one_watch_event_however_many_wait() {
    let world = World::start().await;
    let notifier = world.client().await;
    let (client, events) = counted(&world).await;
    let mut waiting = Vec::new();
    for _ in 0..10 {
        waiting.push(waiter_seen_by(&client, &notifier).await);
    }
    until_watches(&client, 10).await;
    let before = events.count();
    let guard = locked(&notifier).await;
    condition(&notifier).notify_one(&guard).await.unwrap();
    // The notified waiter is queued for the lock behind the notifier.
    until_children(&notifier, LOCK, 2).await;
    until_watches(&client, 10).await;
    assert_eq!(events.count() - before, 1);
    guard.release().await.unwrap();
    let granted = waiting.remove(0).await.unwrap().unwrap();
    assert_eq!(events.count() - before, 2);
    granted.release().await.unwrap();
    for waiting in waiting {
        waiting.abort();
    }
    until_children(&notifier, PATH, 0).await;
}

#[tokio::test]
async fn a_wait_that_takes_too_long_ends_with_the_lock_held() {
    let world = World::start().await;
    let client = world.client().await;
    let condition = condition(&client);
    let guard = locked(&client).await;
    let (guard, notified) = condition.wait_within(guard, Duration::ZERO).await.unwrap();
    assert!(!notified && guard.check().await.unwrap());
    assert_eq!(children(&client, PATH).await, [""; 0]);
    // A wait that is notified in time returns `true`.
    let waiting = tokio::spawn({
        let condition = condition.clone();
        async move { condition.wait_within(guard, FOR_EVER).await }
    });
    until_children(&client, PATH, 1).await;
    let guard = locked(&client).await;
    condition.notify_one(&guard).await.unwrap();
    guard.release().await.unwrap();
    let (_guard, notified) = waiting.await.unwrap().unwrap();
    assert!(notified);
}

#[tokio::test]
async fn a_bounded_buffer_by_two_conditions_loses_nothing() {
    const ITEMS: i32 = 30;
    let world = World::start().await;
    let watching = world.client().await;
    watching.create("/count", "0", CreateMode::Persistent).await.unwrap();
    // Adds `step` to the count when the result is in 0..=2, and waits for the other side otherwise.
    let side = async |client: Client, step: i32| {
        let mutex = Mutex::new(&client, LOCK);
        let (ours, theirs) = if step > 0 { ("/room", "/items") } else { ("/items", "/room") };
        let (ours, theirs) = (Condition::new(&mutex, ours), Condition::new(&mutex, theirs));
        let count = async || -> Result<i32> {
            let data = client.get("/count").await?.data;
            Ok(std::str::from_utf8(&data).unwrap().parse().unwrap())
        };
        for _ in 0..ITEMS {
            let is_stuck = || async { Ok(!(0..=2).contains(&(count().await? + step))) };
            let guard = ours.wait_while(mutex.lock().await.unwrap(), is_stuck).await.unwrap();
            let next = (count().await.unwrap() + step).to_string();
            guard.transaction().set("/count", next, Version::Any).commit().await.unwrap();
            theirs.notify_one(&guard).await.unwrap();
            guard.release().await.unwrap();
        }
    };
    let (producer, consumer) = (world.client().await, world.client().await);
    tokio::join!(side(producer, 1), side(consumer, -1));
    assert_eq!(watching.get("/count").await.unwrap().data, "0");
}

#[tokio::test]
async fn who_has_lost_the_lock_notifies_nobody_and_does_not_wait() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let waiting = waiter(&two).await;
    let stale = locked(&one).await;
    two.delete(stale.path(), Version::Any).await.unwrap();
    for refused in [
        condition(&one).notify_one(&stale).await.unwrap_err(),
        condition(&one).notify_all(&stale).await.unwrap_err(),
        condition(&one).wait(stale).await.unwrap_err(),
    ] {
        assert!(matches!(refused, RecipeError::Lost { why: Lost::NodeDeleted, .. }), "{refused}");
    }
    until_children(&two, PATH, 1).await;
    waiting.abort();
    until_children(&one, PATH, 0).await;
}

#[tokio::test]
async fn the_guard_of_another_lock_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let other = Mutex::new(&client, "/other").lock().await.unwrap();
    let refused = condition(&client).notify_one(&other).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    let refused = condition(&client).wait(other).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}

#[tokio::test]
async fn the_end_of_the_session_ends_a_wait_and_its_node() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let waiting = waiter(&one).await;
    world.end_session(&one).await;
    assert!(waiting.await.unwrap().unwrap_err().is_session_over());
    assert_eq!(children(&two, PATH).await, [""; 0]);
    // An expired waiter does not consume a notification.
    let next = waiter(&two).await;
    let guard = locked(&two).await;
    assert!(condition(&two).notify_one(&guard).await.unwrap());
    guard.release().await.unwrap();
    assert!(next.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_notified_wait_that_is_dropped_passes_the_notification_on() {
    let world = World::start().await;
    let client = world.client().await;
    let first = waiter(&client).await;
    let second = waiter(&client).await;
    let guard = locked(&client).await;
    condition(&client).notify_one(&guard).await.unwrap();
    // The first waiter is queued for the lock, and is dropped there.
    until_children(&client, LOCK, 2).await;
    first.abort();
    until_children(&client, PATH, 0).await;
    guard.release().await.unwrap();
    assert!(second.await.unwrap().is_ok());
}

#[tokio::test]
async fn a_wait_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    for polls in 0.. {
        let guard = locked(&client).await;
        let condition = condition(&client);
        let waiting = condition.wait_within(guard, Duration::ZERO);
        let done = drop_after_polls(waiting, polls).await;
        let is_done = done.is_some();
        drop(done);
        until_children(&watching, PATH, 0).await;
        until_children(&watching, LOCK, 0).await;
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn every_lost_request_and_reply_of_a_wait_is_made_up_for() {
    let world = World::start().await;
    let notifier = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let notifier = notifier.clone();
            async move {
                let guard = locked(&client).await;
                let waiting = tokio::spawn(async move {
                    let guard = condition(&client).wait(guard).await?;
                    guard.release().await
                });
                until_children(&notifier, PATH, 1).await;
                let guard = locked(&notifier).await;
                assert!(condition(&notifier).notify_one(&guard).await.unwrap());
                guard.release().await.unwrap();
                waiting.await.unwrap().unwrap();
                assert_eq!(children(&notifier, PATH).await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn curator_654_and_673_a_wait_that_ends_leaves_no_watch_and_a_closed_client_ends_it() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let waiting = waiter_seen_by(&client, &other).await;
    until_watches(&client, 1).await;
    waiting.abort();
    until_children(&other, PATH, 0).await;
    until_watches(&client, 0).await;
    let waiting = waiter_seen_by(&client, &other).await;
    client.close().await.unwrap();
    assert!(waiting.await.unwrap().unwrap_err().is_session_over());
    until_children(&other, PATH, 0).await;
}
