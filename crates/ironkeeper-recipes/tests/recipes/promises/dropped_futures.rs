//! Futures dropped at every await: their effects are undone.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::barrier::{CyclicBarrier, DoubleBarrier};
use ironkeeper_recipes::election::{ElectionSupport, LeaderLatch, StaticElection};
use ironkeeper_recipes::group::{GroupMember, Party, SetPartitioner};
use ironkeeper_recipes::lock::{
    MultiLock, Mutex, ReadWriteLock, Semaphore, SemaphoreMutex, SingleNodeLock,
};
use ironkeeper_recipes::queue::{IdQueue, WorkQueue};

use crate::world::{World, children, drop_after_polls, until_children, waits_within_polls};

/// Drops a future after 0, 1, 2, ... polls until it completes first, and runs `is_tidy` each time.
async fn check<F: Future>(start: impl Fn() -> F, is_tidy: impl AsyncFn()) {
    for polls in 0.. {
        let done = drop_after_polls(start(), polls).await;
        let is_done = done.is_some();
        drop(done);
        is_tidy().await;
        if is_done {
            assert!(polls > 1, "{polls}");
            return;
        }
    }
}

/// Like [`check`], but for a future that finally waits for another session.
async fn check_waiting<F: Future>(client: &Client, start: impl Fn() -> F, is_tidy: impl AsyncFn()) {
    for polls in 0.. {
        let waits = waits_within_polls(client, start(), polls).await;
        is_tidy().await;
        if waits {
            assert!(polls > 1, "{polls}");
            return;
        }
    }
}

#[tokio::test]
async fn a_read_write_lock_is_given_back() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let lock = ReadWriteLock::new(&client, "/lock");
    let empty = async || until_children(&other, "/lock", 0).await;
    check(|| lock.read(), empty).await;
    check(|| lock.write(), empty).await;
    check(|| lock.try_read(), empty).await;
    check(|| lock.try_write(), empty).await;
    let held = ReadWriteLock::new(&other, "/lock").write().await.unwrap();
    let one = async || until_children(&other, "/lock", 1).await;
    check_waiting(&client, || lock.read(), one).await;
    check_waiting(&client, || lock.write(), one).await;
    check(|| lock.try_write(), one).await;
    held.release().await.unwrap();
}

#[tokio::test]
async fn several_locks_are_given_back() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let locks = MultiLock::new(&client, ["/a", "/b"]).unwrap();
    let empty = async || {
        until_children(&other, "/a", 0).await;
        until_children(&other, "/b", 0).await;
    };
    check(|| locks.lock(), empty).await;
    check(|| locks.try_lock(), empty).await;
    check(|| async { locks.lock().await.unwrap().release().await }, empty).await;
    let held = Mutex::new(&other, "/b").lock().await.unwrap();
    let one = async || {
        until_children(&other, "/a", 0).await;
        until_children(&other, "/b", 1).await;
    };
    check_waiting(&client, || locks.lock(), one).await;
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_wait_for_a_lock_delay_gives_the_lock_back_and_leaves_the_marker() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    // The state after a holder ended without a release.
    other.create_recursive("/lock/lock-delay", "gone", CreateMode::Persistent).await.unwrap();
    let mutex = Mutex::new(&client, "/lock").with_lock_delay(Duration::from_millis(20));
    let marker = async || until_children(&other, "/lock", 1).await;
    check(|| mutex.lock(), marker).await;
    // The next contender waits for the delay, and no longer.
    mutex.lock().await.unwrap().release().await.unwrap();
    assert_eq!(children(&other, "/lock").await, [""; 0]);
}

#[tokio::test]
async fn a_wait_for_a_lease_is_given_up() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let held = SemaphoreMutex::new(&other, "/semaphore").lock().await.unwrap();
    let semaphore = Semaphore::new(&client, "/semaphore", 1).unwrap();
    let only_the_holder = async || {
        until_children(&other, "/semaphore/leases", 1).await;
        until_children(&other, "/semaphore/locks", 0).await;
    };
    check_waiting(&client, || semaphore.acquire(), only_the_holder).await;
    check(|| semaphore.try_acquire(), only_the_holder).await;
    held.release().await.unwrap();
}

#[tokio::test]
async fn a_single_node_that_is_waited_for_is_left_alone() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let held = SingleNodeLock::new(&other, "/single").lock().await.unwrap();
    let lock = SingleNodeLock::new(&client, "/single");
    check_waiting(&client, || lock.lock(), async || assert!(held.check().await.unwrap())).await;
    held.release().await.unwrap();
}

#[tokio::test]
async fn candidates_withdraw() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let empty = async || until_children(&other, "/election", 0).await;
    let election = StaticElection::new(&client, "/election/leader", "one");
    check(|| election.elected(), empty).await;
    check(|| election.offer(), empty).await;
    let lead_and_close = || async {
        let latch = LeaderLatch::start(&client, "/election", "one");
        latch.leading().await.unwrap();
        latch.close().await.unwrap();
    };
    check(lead_and_close, empty).await;
    let offer_and_stop = || async {
        let mut support = ElectionSupport::start(&client, "/election", "one");
        for _ in 0..6 {
            support.next().await;
        }
        support.stop();
        while support.next().await.is_some() {}
    };
    check(offer_and_stop, empty).await;
    // While another candidate leads.
    let _leader = LeaderLatch::start(&other, "/election", "two");
    until_children(&other, "/election", 1).await;
    let wait = || async { LeaderLatch::start(&client, "/election", "one").leading().await };
    check_waiting(&client, wait, async || until_children(&other, "/election", 1).await).await;
}

#[tokio::test]
async fn those_who_leave_are_gone() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    for polls in 0..12 {
        let empty = async |path: &str| until_children(&other, path, 0).await;
        let member = GroupMember::join(&client, "/group", "anna", "").await.unwrap();
        drop_after_polls(member.leave(), polls).await;
        empty("/group").await;
        let party = Party::join(&client, "/party", "anna").await.unwrap();
        drop_after_polls(party.leave(), polls).await;
        empty("/party").await;
        let partitioner = SetPartitioner::join(&client, "/set", ["1"], "anna").await.unwrap();
        drop_after_polls(partitioner.leave(), polls).await;
        empty("/set/party").await;
    }
}

#[tokio::test]
async fn nobody_waits_at_a_double_barrier_for_one_who_has_stopped_leaving() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    for polls in 0.. {
        let one = DoubleBarrier::new(&client, "/barrier", 2).unwrap();
        let two = DoubleBarrier::new(&other, "/barrier", 2).unwrap();
        let (one, two) = tokio::join!(one.enter(), two.enter());
        let waits = waits_within_polls(&client, one.unwrap().leave(), polls).await;
        two.unwrap().leave().await.unwrap();
        // `ready` may stay, as after the end of a session; it does not affect the next round.
        let barrier = DoubleBarrier::new(&other, "/barrier", 2).unwrap();
        while barrier.count().await.unwrap() > 0 {}
        if waits {
            assert!(polls > 1, "{polls}");
            return;
        }
    }
}

#[tokio::test]
async fn a_party_of_a_cyclic_barrier_withdraws_from_giving_up_too() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let barrier = CyclicBarrier::new(&client, "/barrier", 2).unwrap();
    let empty = async || until_children(&other, "/barrier", 0).await;
    check(|| barrier.wait_within(Duration::ZERO), empty).await;
}

#[tokio::test]
async fn an_item_is_queued_again_once_or_stays() {
    let world = World::start().await;
    let (client, other) = (world.client().await, world.client().await);
    let (queue, seen) =
        (IdQueue::new(&client, "/queue").unwrap(), IdQueue::new(&other, "/queue").unwrap());
    queue.put("id", "x").await.unwrap();
    for polls in 0.. {
        let delivery = queue.next().await.unwrap();
        let is_done = drop_after_polls(delivery.requeue(), polls).await.is_some();
        until_children(&other, "/queue.locks", 0).await;
        assert_eq!(seen.len().await.unwrap(), 1);
        assert!(seen.contains("id").await.unwrap());
        if is_done {
            break;
        }
    }
    // After `done`, either all items are removed or none.
    let work = WorkQueue::new(&client, "/work").unwrap();
    for polls in 0.. {
        if work.is_empty().await.unwrap() {
            work.put_all(["x", "y"]).await.unwrap();
        }
        let delivery = work.next().await.unwrap();
        assert_eq!(delivery.items(), ["x", "y"]);
        let is_done = drop_after_polls(delivery.done(), polls).await.is_some();
        until_children(&other, "/work.locks", 0).await;
        if is_done {
            break;
        }
    }
}
