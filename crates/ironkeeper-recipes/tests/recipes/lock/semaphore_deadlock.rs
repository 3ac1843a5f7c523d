//! Deadlocks among waiters for the leases of semaphores.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::lock::{
    Deadlock, DeadlockDetector, LockEvent, LockEvents, Mutex, Semaphore, SemaphoreMutex, Victim,
};
use ironkeeper_recipes::{Guard, RecipeError, Result};
use tokio::task::JoinHandle;

use crate::world::requests::{CHILDREN, CHILDREN2, GET, followed};
use crate::world::watch_events::counted;
use crate::world::{World, children, until_children, until_watches};

/// Returns a semaphore whose owner has a name and watches for deadlock notices.
fn semaphore(client: &Client, path: &str, limit: i32, who: &'static str) -> Semaphore {
    Semaphore::new(client, path, limit).unwrap().with_data(who).heeding_deadlocks()
}

fn acquiring(semaphore: Semaphore) -> JoinHandle<Result<Guard>> {
    tokio::spawn(async move { semaphore.acquire().await })
}

fn locking(client: &Client, path: &str, who: &'static str) -> JoinHandle<Result<Guard>> {
    let mutex = Mutex::new(client, path).with_data(who).heeding_deadlocks();
    tokio::spawn(async move { mutex.lock().await })
}

async fn until_leases(client: &Client, path: &str, count: usize) {
    until_children(client, &format!("{path}/leases"), count).await;
}

/// Returns the only deadlock that the detector finds.
async fn only_one(detector: &DeadlockDetector) -> Deadlock {
    let mut found = detector.detect().await.unwrap();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

#[track_caller]
fn assert_gave_way(outcome: Result<Guard>, deadlock: &Deadlock) {
    let error = outcome.unwrap_err();
    assert!(
        matches!(&error, RecipeError::Deadlock { cycle, .. } if *cycle == deadlock.to_string()),
        "{error}"
    );
}

#[tokio::test]
async fn semaphore_mutexes_taken_crosswise_are_found_and_ended() {
    let world = World::start().await;
    for (victim, path) in [
        (Victim::Youngest, "/youngest"),
        (Victim::Oldest, "/oldest"),
        (Victim::Wait(0), "/first"),
        (Victim::Wait(1), "/second"),
    ] {
        let (one, two) = (world.client().await, world.client().await);
        let (a, b) = (format!("{path}/a"), format!("{path}/b"));
        let lock = |client: &Client, path: &str| {
            let mutex = SemaphoreMutex::new(client, path).heeding_deadlocks();
            tokio::spawn(async move { mutex.lock().await })
        };
        let held_a = lock(&one, &a).await.unwrap().unwrap();
        let held_b = lock(&two, &b).await.unwrap().unwrap();
        let detector = DeadlockDetector::new(&one, path);
        let second = lock(&two, &a);
        until_leases(&one, &a, 2).await;
        assert_eq!(detector.graph().await.unwrap().waits.len(), 1);
        assert!(detector.detect().await.unwrap().is_empty());
        let first = lock(&one, &b);
        until_leases(&one, &b, 2).await;

        let found = only_one(&detector).await;
        let paths: Vec<&str> = found.waits.iter().map(|wait| wait.lock.as_str()).collect();
        assert!(paths == [a.as_str(), &b] || paths == [b.as_str(), &a], "{paths:?}");
        let is_first = match victim {
            Victim::Youngest => true,
            Victim::Oldest => false,
            Victim::Wait(at) => paths[at] == b,
            _ => unreachable!("there are no other kinds here"),
        };
        assert!(detector.resolve(&found, victim).await.unwrap());
        let (gave_way, goes_on, path) =
            if is_first { (first, second, &b) } else { (second, first, &a) };
        assert_gave_way(gave_way.await.unwrap(), &found);
        // No node of the victim is left.
        until_leases(&one, path, 1).await;
        until_children(&one, &format!("{path}/locks"), 0).await;
        assert!(detector.detect().await.unwrap().is_empty());
        assert!(!detector.resolve(&found, victim).await.unwrap());
        let (given_back, kept) = if is_first { (held_a, held_b) } else { (held_b, held_a) };
        given_back.release().await.unwrap();
        goes_on.await.unwrap().unwrap().release().await.unwrap();
        kept.release().await.unwrap();
    }
}

#[tokio::test]
async fn all_who_have_leases_must_be_stuck() {
    let world = World::start().await;
    let client = world.client().await;
    let _one = semaphore(&client, "/s", 2, "one").acquire().await.unwrap();
    let two = semaphore(&client, "/s", 2, "two").acquire().await.unwrap();
    let _held = Mutex::new(&client, "/m").with_data("three").lock().await.unwrap();
    let three = acquiring(semaphore(&client, "/s", 2, "three"));
    until_leases(&client, "/s", 3).await;
    let first = locking(&client, "/m", "one");
    until_children(&client, "/m", 2).await;
    let detector = DeadlockDetector::new(&client, "/");
    // The second owner is not deadlocked and can release its lease.
    assert_eq!(detector.graph().await.unwrap().waits.len(), 3);
    assert!(detector.detect().await.unwrap().is_empty());
    let second = locking(&client, "/m", "two");
    until_children(&client, "/m", 3).await;

    let found = only_one(&detector).await;
    let text = found.to_string();
    assert!(text.contains("(three) waits at /s for") && text.contains(" or another"), "{text}");
    // When one owner is the victim and releases its lease, the third one is granted.
    second.abort();
    until_children(&client, "/m", 2).await;
    assert!(detector.detect().await.unwrap().is_empty());
    two.release().await.unwrap();
    three.await.unwrap().unwrap().release().await.unwrap();
    first.abort();
}

#[tokio::test]
async fn a_circle_may_go_over_a_semaphore_and_a_mutex() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let lease = Semaphore::new(&one, "/a/s", 1).unwrap().acquire().await.unwrap();
    let held = Mutex::new(&two, "/b/m").lock().await.unwrap();
    let second = acquiring(Semaphore::new(&two, "/a/s", 1).unwrap().heeding_deadlocks());
    until_leases(&one, "/a/s", 2).await;
    let mutex = Mutex::new(&one, "/b/m").heeding_deadlocks();
    let first = tokio::spawn(async move { mutex.lock().await });
    until_children(&one, "/b/m", 2).await;
    assert!(DeadlockDetector::new(&one, "/a").detect().await.unwrap().is_empty());
    let detector = DeadlockDetector::new(&one, "/a").and("/b");
    let found = only_one(&detector).await;
    assert!(detector.resolve(&found, Victim::Youngest).await.unwrap());
    assert_gave_way(first.await.unwrap(), &found);
    lease.release().await.unwrap();
    second.await.unwrap().unwrap().release().await.unwrap();
    held.release().await.unwrap();
}

#[tokio::test]
async fn whoever_stands_far_back_in_the_line_waits_with_its_head() {
    let world = World::start().await;
    let client = world.client().await;
    let lease = semaphore(&client, "/s", 1, "holder").acquire().await.unwrap();
    let held = Mutex::new(&client, "/m").with_data("last").lock().await.unwrap();
    let mut line = Vec::new();
    for (at, who) in ["head", "second", "third", "last"].into_iter().enumerate() {
        line.push(acquiring(semaphore(&client, "/s", 1, who)));
        until_children(&client, "/s/locks", at + 1).await;
    }
    until_leases(&client, "/s", 2).await;
    let detector = DeadlockDetector::new(&client, "/");
    assert!(detector.detect().await.unwrap().is_empty());
    let holder = locking(&client, "/m", "holder");
    until_children(&client, "/m", 2).await;
    let found = detector.detect().await.unwrap().swap_remove(0);
    let ids: Vec<String> = found.waits.iter().map(|wait| wait.waiter.id()).collect();
    assert!(ids.iter().any(|id| id == "head") && ids.iter().any(|id| id == "holder"), "{ids:?}");
    let last = ids.iter().position(|id| id == "last").expect("it is a part of the circle");
    assert!(detector.resolve(&found, Victim::Wait(last)).await.unwrap());
    assert_gave_way(line.pop().unwrap().await.unwrap(), &found);
    assert!(detector.detect().await.unwrap().is_empty());
    held.release().await.unwrap();
    holder.await.unwrap().unwrap().release().await.unwrap();
    lease.release().await.unwrap();
    for waiting in line {
        waiting.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test]
async fn leases_that_expire_have_the_names_of_their_owners() {
    const HOUR: Duration = Duration::from_secs(60 * 60);
    let world = World::start().await;
    let client = world.client().await;
    let semaphore =
        |path: &str, who: &'static str| semaphore(&client, path, 1, who).with_lease_time(HOUR);
    let a = semaphore("/a", "one").acquire().await.unwrap();
    let _b = semaphore("/b", "two").acquire().await.unwrap();
    let one = acquiring(semaphore("/b", "one"));
    until_leases(&client, "/b", 2).await;
    let two = acquiring(semaphore("/a", "two"));
    until_leases(&client, "/a", 2).await;
    let detector = DeadlockDetector::new(&client, "/");
    let found = only_one(&detector).await;
    let mut holders: Vec<String> = found.waits.iter().map(|wait| wait.holder.id()).collect();
    holders.sort();
    assert_eq!(holders, ["one", "two"]);

    // An owner granted in the meantime is not notified, and its node keeps its lease time.
    a.release().await.unwrap();
    let a = two.await.unwrap().unwrap();
    assert!(!detector.resolve(&found, Victim::Youngest).await.unwrap());
    assert_eq!(detector.announce(&found).await.unwrap(), 1);
    let data = client.get(a.path()).await.unwrap().data;
    assert_eq!(data, b"lease-time-ms=3600000\ntwo".as_slice());
    one.abort();
}

#[tokio::test]
async fn tasks_without_names_that_share_a_semaphore_are_no_deadlock() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let plain = |client: &Client, limit| Semaphore::new(client, "/s", limit).unwrap();
    let detector = DeadlockDetector::new(&one, "/");
    {
        let lease = plain(&one, 1).acquire().await.unwrap();
        let (second, third) = (acquiring(plain(&one, 1)), acquiring(plain(&one, 1)));
        until_leases(&one, "/s", 2).await;
        until_children(&one, "/s/locks", 2).await;
        assert!(detector.detect().await.unwrap().is_empty());
        lease.release().await.unwrap();
        // In either order: neither waits for the end of the other task.
        let lease = tokio::spawn(async move {
            second.await.unwrap().unwrap().release().await.unwrap();
        });
        third.await.unwrap().unwrap().release().await.unwrap();
        lease.await.unwrap();
    }
    // The lease of the same session may belong to another task, which releases it.
    let lease = plain(&one, 2).acquire().await.unwrap();
    let _others = plain(&two, 2).acquire().await.unwrap();
    let _held = Mutex::new(&one, "/m").lock().await.unwrap();
    let waiting = acquiring(plain(&one, 2));
    until_leases(&one, "/s", 3).await;
    let mutex = Mutex::new(&two, "/m");
    let other = tokio::spawn(async move { mutex.lock().await });
    until_children(&one, "/m", 2).await;
    assert!(detector.detect().await.unwrap().is_empty());
    lease.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    other.abort();
}

#[tokio::test]
async fn whoever_asks_for_several_leases_does_not_wait_for_itself() {
    let world = World::start().await;
    let client = world.client().await;
    let _one = semaphore(&client, "/s", 2, "one").acquire().await.unwrap();
    let _held = Mutex::new(&client, "/m").with_data("two").lock().await.unwrap();
    let two = semaphore(&client, "/s", 2, "two");
    let two = tokio::spawn(async move { two.acquire_many(2).await });
    until_leases(&client, "/s", 3).await;
    let detector = DeadlockDetector::new(&client, "/");
    assert!(detector.detect().await.unwrap().is_empty());
    let one = locking(&client, "/m", "one");
    until_children(&client, "/m", 2).await;
    let found = only_one(&detector).await;
    assert!(detector.resolve(&found, Victim::Oldest).await.unwrap());
    assert!(matches!(two.await.unwrap(), Err(RecipeError::Deadlock { .. })));
    until_leases(&client, "/s", 1).await;
    one.abort();
}

/// Waits for the next deadlock notice of a waiter and returns its path and cycle.
async fn told(events: &mut LockEvents) -> (String, String) {
    loop {
        match events.next().await.expect("the semaphore is there") {
            LockEvent::Deadlocked { path, cycle } => return (path, cycle),
            _ => continue,
        }
    }
}

#[tokio::test]
async fn the_head_of_the_line_is_told_of_a_deadlock_and_keeps_its_words_and_its_place() {
    let world = World::start().await;
    let client = world.client().await;
    let lease = semaphore(&client, "/s", 1, "one").acquire().await.unwrap();
    let held = Mutex::new(&client, "/m").with_data("two").lock().await.unwrap();
    let waiting = semaphore(&client, "/s", 1, "two");
    let mut events = waiting.events();
    let second = acquiring(waiting);
    until_leases(&client, "/s", 2).await;
    let first = locking(&client, "/m", "one");
    until_children(&client, "/m", 2).await;
    let detector = DeadlockDetector::new(&client, "/");
    let found = only_one(&detector).await;
    let node = found.waits.iter().find(|wait| wait.lock == "/s").unwrap().waiter.path.clone();
    for _ in 0..2 {
        assert_eq!(detector.announce(&found).await.unwrap(), 2);
        assert_eq!(told(&mut events).await, (node.clone(), found.to_string()));
        loop {
            let (read, watch) = client.get_and_watch(&node).await.unwrap();
            if read.data == "two" {
                break;
            }
            watch.await.unwrap();
        }
        assert_eq!(only_one(&detector).await, found);
    }
    first.abort();
    lease.release().await.unwrap();
    let lease = second.await.unwrap().unwrap();
    assert_eq!(lease.path(), node);
    lease.release().await.unwrap();
    // All events of the lease, in order.
    let mut granted = 0;
    loop {
        match events.next().await.unwrap() {
            LockEvent::Granted { path, .. } if path == node => granted += 1,
            LockEvent::Released { path } if path == node => break,
            _ => continue,
        }
    }
    assert_eq!(granted, 1);
    held.release().await.unwrap();
}

#[tokio::test]
async fn the_line_and_the_leases_say_the_same_of_their_owner() {
    let world = World::start().await;
    let client = world.client().await;
    let _held = SemaphoreMutex::new(&client, "/s").with_data("one").lock().await.unwrap();
    let waiting = SemaphoreMutex::new(&client, "/s").with_data("two");
    let waiting = tokio::spawn(async move { waiting.lock().await });
    until_leases(&client, "/s", 2).await;
    let line = Mutex::new(&client, "/s/locks").participants().await.unwrap();
    assert_eq!(line[0].id(), "two");
    let leases = Semaphore::new(&client, "/s", 1).unwrap().participants().await.unwrap();
    assert_eq!(leases.iter().map(|one| one.id()).collect::<Vec<_>>(), ["one", "two"]);
    waiting.abort();
}

#[tokio::test]
async fn only_who_heeds_deadlocks_reads_and_watches_its_lease() {
    let world = World::start().await;
    let holder = world.client().await;
    let mut seen = Vec::new();
    for heeds in [false, true] {
        let (client, requests) = followed(&world).await;
        let lease = Semaphore::new(&holder, "/s", 1).unwrap().acquire().await.unwrap();
        let plain = Semaphore::new(&client, "/s", 1).unwrap();
        let waiting = acquiring(if heeds { plain.heeding_deadlocks() } else { plain });
        until_leases(&holder, "/s", 2).await;
        until_watches(&client, if heeds { 2 } else { 1 }).await;
        lease.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        // The reads of the recipe: the test itself sends `EXISTS`, and a server that deletes the
        // empty container `locks` in between causes more creates.
        let mut reads = requests.take();
        reads.retain(|request| [GET, CHILDREN, CHILDREN2].contains(request));
        seen.push(reads);
        // Where there is nothing to wait for, there is nothing to heed.
        let plain = Semaphore::new(&client, "/s", 1).unwrap().heeding_deadlocks();
        plain.acquire().await.unwrap().release().await.unwrap();
        assert!(!requests.take().contains(&GET));
    }
    let [plain, heeding] = &mut seen[..] else { panic!("there are two") };
    let reads = heeding.iter().filter(|request| **request == GET).count();
    heeding.retain(|request| *request != GET);
    assert_eq!((reads, &*heeding), (1, &*plain));
    assert!(!plain.is_empty());
}

#[tokio::test]
async fn heeding_deadlocks_costs_one_event_when_the_lease_goes() {
    let world = World::start().await;
    let holder = world.client().await;
    for heeds in [false, true] {
        let (client, events) = counted(&world).await;
        let lease = Semaphore::new(&holder, "/s", 1).unwrap().acquire().await.unwrap();
        let plain = Semaphore::new(&client, "/s", 1).unwrap();
        let waiting = acquiring(if heeds { plain.heeding_deadlocks() } else { plain });
        until_leases(&holder, "/s", 2).await;
        until_watches(&client, if heeds { 2 } else { 1 }).await;
        lease.release().await.unwrap();
        let lease = waiting.await.unwrap().unwrap();
        assert_eq!(events.count(), 1);
        lease.release().await.unwrap();
        // Events precede the replies to later requests.
        client.exists("/").await.unwrap();
        assert_eq!(events.count(), if heeds { 2 } else { 1 });
    }
}

/// Takes a lease as Curator does: a queue node, and a lease node that alone has the data. Returns
/// the path of the queue node.
async fn lease_of_curator(client: &Client, path: &str, data: &str) -> String {
    let mode = CreateMode::EphemeralSequential;
    for (part, data) in [("locks/lock-", "10.1.2.3"), ("leases/lease-", data)] {
        client.create_parents(&format!("{path}/{part}")).await.unwrap();
        client.create(&format!("{path}/{part}"), data, mode).await.unwrap();
    }
    let line = children(client, &format!("{path}/locks")).await;
    format!("{path}/locks/{}", line.last().unwrap())
}

#[tokio::test]
async fn leases_of_curator_are_understood() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let detector = DeadlockDetector::new(&one, "/");
    for (data, is_named) in [("10.1.2.3", false), ("one", true)] {
        let path = format!("/{is_named}");
        let (a, b) = (format!("{path}/a"), format!("{path}/b"));
        // Granted: the queue node is deleted.
        let place = lease_of_curator(&one, &a, data).await;
        one.delete(&place, ironkeeper_client::Version::Any).await.unwrap();
        let place = lease_of_curator(&two, &b, "two").await;
        two.delete(&place, ironkeeper_client::Version::Any).await.unwrap();
        // Two threads of one client.
        let place = lease_of_curator(&one, &a, data).await;
        assert_eq!(detector.detect().await.unwrap().len(), usize::from(is_named), "{data}");
        one.delete(&place, ironkeeper_client::Version::Any).await.unwrap();
        // Two clients.
        let first = lease_of_curator(&one, &b, data).await;
        let second = lease_of_curator(&two, &a, "two").await;
        assert_eq!(only_one(&detector).await.waits.len(), 2);
        for place in [first, second] {
            one.delete(&place, ironkeeper_client::Version::Any).await.unwrap();
        }
        assert!(detector.detect().await.unwrap().is_empty());
    }
}
