//! `Semaphore` and its leases.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::lock::{Semaphore, SemaphoreMutex};
use ironkeeper_recipes::{Lost, RecipeError};
use ironkeeper_testing::Direction;

use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/semaphores/s";
const LEASES: &str = "/semaphores/s/leases";
const LOCKS: &str = "/semaphores/s/locks";

fn semaphore(client: &Client, limit: i32) -> Semaphore {
    Semaphore::new(client, PATH, limit).unwrap()
}

#[tokio::test]
async fn never_more_leases_than_the_limit() {
    let world = World::start().await;
    let inside = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for _ in 0..8 {
        let (client, inside) = (world.client().await, inside.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..3 {
                let lease = semaphore(&client, 3).acquire().await.unwrap();
                assert!(inside.fetch_add(1, Ordering::SeqCst) < 3);
                client.exists("/").await.unwrap();
                inside.fetch_sub(1, Ordering::SeqCst);
                lease.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    let client = world.client().await;
    assert_eq!(children(&client, LEASES).await, [""; 0]);
    assert_eq!(children(&client, LOCKS).await, [""; 0]);
}

#[tokio::test]
async fn several_leases_are_had_together_or_not_at_all() {
    let world = World::start().await;
    let client = world.client().await;
    let semaphore = semaphore(&client, 3);
    let two = semaphore.acquire_many(2).await.unwrap();
    assert!(semaphore.try_acquire_many(2).await.unwrap().is_none());
    assert_eq!(children(&client, LEASES).await.len(), 2);
    let third = semaphore.try_acquire().await.unwrap().unwrap();
    assert!(two.iter().all(|lease| lease.fencing_token() < third.fencing_token()));
    assert_eq!(semaphore.participants().await.unwrap().len(), 3);
    assert!(semaphore.acquire_within(Duration::from_millis(20)).await.unwrap().is_none());
    until_children(&client, LEASES, 3).await;
    until_children(&client, LOCKS, 0).await;
}

#[tokio::test]
async fn misuse_gets_a_clear_error() {
    let world = World::start().await;
    let client = world.client().await;
    for error in [
        Semaphore::new(&client, PATH, -1).unwrap_err(),
        semaphore(&client, 2).acquire_many(3).await.unwrap_err(),
        semaphore(&client, 2).acquire_many(0).await.unwrap_err(),
        Semaphore::set_shared_limit(&client, "/limit", -3).await.unwrap_err(),
    ] {
        assert!(matches!(error, RecipeError::Misuse(_)), "{error}");
    }
    client.create("/limit", "three", CreateMode::Persistent).await.unwrap();
    let shared = Semaphore::with_shared_limit(&client, PATH, "/limit");
    let error = shared.acquire().await.unwrap_err();
    assert!(matches!(error, RecipeError::Malformed { .. }), "{error}");
    until_children(&client, LEASES, 0).await;
}

#[tokio::test]
async fn curator_75_a_waiter_notices_a_raised_limit() {
    let world = World::start().await;
    let client = world.client().await;
    let shared = Semaphore::with_shared_limit(&client, PATH, "/config/limit");
    // Without a limit, no lease is granted.
    assert!(shared.try_acquire().await.unwrap().is_none());
    let waiting = tokio::spawn({
        let shared = shared.clone();
        async move { (shared.acquire().await.unwrap(), shared.acquire().await.unwrap()) }
    });
    until_children(&client, LEASES, 1).await;
    Semaphore::set_shared_limit(&client, "/config/limit", 1).await.unwrap();
    until_children(&client, LEASES, 2).await;
    Semaphore::set_shared_limit(&client, "/config/limit", 2).await.unwrap();
    let (one, two) = waiting.await.unwrap();
    // A lowered limit revokes no lease, and grants none.
    Semaphore::set_shared_limit(&client, "/config/limit", 1).await.unwrap();
    assert!(one.is_valid() && two.is_valid());
    one.release().await.unwrap();
    assert!(shared.try_acquire().await.unwrap().is_none());
    two.release().await.unwrap();
    shared.try_acquire().await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(client.watch_count(), 0);
}

#[tokio::test]
async fn curator_595_the_end_of_a_session_frees_its_leases() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let lease = semaphore(&one, 1).acquire().await.unwrap();
    let waiting = tokio::spawn(async move { semaphore(&two, 1).acquire().await });
    let (lost, ()) = tokio::join!(lease.lost(), world.end_session(&one));
    assert_eq!(lost, Lost::SessionEnded);
    waiting.await.unwrap().unwrap().release().await.unwrap();
}

#[tokio::test]
async fn curator_315_335_every_lost_request_and_reply_leaves_no_orphan() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, round| {
            let watching = watching.clone();
            async move {
                let path = format!("/cuts-{direction:?}/{round}");
                let semaphore = Semaphore::new(&client, &path, 1).unwrap();
                let lease = semaphore.acquire().await.unwrap();
                assert_eq!(children(&watching, &format!("{path}/leases")).await.len(), 1);
                lease.release().await.unwrap();
                for part in ["leases", "locks"] {
                    assert_eq!(children(&watching, &format!("{path}/{part}")).await, [""; 0]);
                }
            }
        })
        .await;
    }
}

#[tokio::test]
async fn curator_462_a_future_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let client = world.client().await;
    let semaphore = semaphore(&client, 2);
    let mut polls = 0;
    loop {
        let done = drop_after_polls(semaphore.acquire_many(2), polls).await;
        let is_done = done.is_some();
        drop(done);
        until_children(&client, LEASES, 0).await;
        until_children(&client, LOCKS, 0).await;
        if is_done {
            break;
        }
        polls += 1;
    }
    assert!(polls > 3, "{polls}");
}

#[tokio::test]
async fn expired_leases_go_to_whoever_waits() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let time = Duration::from_millis(100);
    let semaphore = |client: &Client| semaphore(client, 1).with_lease_time(time).with_data("x");
    let lease = semaphore(&one).acquire().await.unwrap();
    let next = semaphore(&two).acquire().await.unwrap();
    assert!(!lease.is_valid());
    assert_eq!(lease.lost().await, Lost::Expired);
    assert!(next.fencing_token() > lease.fencing_token());
    let late = lease.release().await.unwrap_err();
    assert!(matches!(late, RecipeError::Lost { why: Lost::NodeDeleted, .. }), "{late}");
}

#[tokio::test]
async fn a_lease_is_not_cut_short_by_what_the_next_one_took_to_ask() {
    let world = World::start().await;
    let one = world.client().await;
    let (proxy, two) = world.proxied().await;
    let semaphore =
        |client: &Client| semaphore(client, 1).with_lease_time(Duration::from_millis(1500));
    let lease = semaphore(&one).acquire().await.unwrap();
    proxy.delay(Direction::ToServer, Duration::from_millis(50));
    let mut acquiring = tokio::spawn({
        let semaphore = semaphore(&two);
        async move { semaphore.acquire().await.unwrap() }
    });
    let next = tokio::select! {
        // The second client has created its node and waits for the first lease; no delay from here
        // on.
        () = until_children(&one, LEASES, 2) => {
            proxy.heal().unwrap();
            acquiring.await.unwrap()
        }
        // On a suspended machine: granted, but not before the first lease expired.
        next = &mut acquiring => next.unwrap(),
    };
    assert!(!lease.is_valid());
    next.release().await.unwrap();
}

#[tokio::test]
async fn curator_376_a_semaphore_mutex_hands_over() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = SemaphoreMutex::new(&one, PATH).lock().await.unwrap();
    let waiter = two.clone();
    let waiting =
        tokio::spawn(async move { SemaphoreMutex::new(&waiter, PATH).lock().await.unwrap() });
    until_children(&one, LEASES, 2).await;
    first.release().await.unwrap();
    let second = waiting.await.unwrap();
    let mutex = SemaphoreMutex::new(&one, PATH);
    assert!(mutex.try_lock().await.unwrap().is_none());
    assert!(mutex.lock_within(Duration::from_millis(20)).await.unwrap().is_none());
    // Not reentrant: the holder also has to wait.
    assert!(SemaphoreMutex::new(&two, PATH).try_lock().await.unwrap().is_none());
    second.release().await.unwrap();
}

#[tokio::test]
async fn the_time_of_a_lease_begins_with_its_grant() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let first = Semaphore::new(&one, "/s", 1).unwrap().acquire().await.unwrap();
    let time = Duration::from_secs(5);
    let waiting = tokio::spawn(async move {
        Semaphore::new(&two, "/s", 1).unwrap().with_lease_time(time).acquire().await
    });
    until_children(&one, "/s/leases", 2).await;
    // The wait is longer than the lease time.
    tokio::time::pause();
    tokio::time::advance(time + Duration::from_secs(1)).await;
    tokio::time::resume();
    first.release().await.unwrap();
    let second = waiting.await.unwrap().unwrap();
    assert!(second.is_valid());
    assert!(second.check().await.unwrap());
}

#[tokio::test]
async fn a_lease_may_be_for_ever() {
    let world = World::start().await;
    let client = world.client().await;
    let ever = semaphore(&client, 1).with_lease_time(Duration::MAX);
    let held = ever.acquire().await.unwrap();
    assert!(held.is_valid());
    let refused = ever.acquire_within(Duration::from_millis(50)).await.unwrap();
    assert!(refused.is_none() && held.check().await.unwrap());
}
