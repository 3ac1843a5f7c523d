//! Connections lost before and after every request.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, Version, WatchItem, WatchMode};
use ironkeeper_recipes::cache::{ChildrenCache, NodeCache};
use ironkeeper_recipes::election::{
    Election, ElectionEvent, ElectionSupport, LeaderLatch, LeaderObserver, LeaderSelector, Led,
    StaticElection,
};
use ironkeeper_recipes::group::{Party, SetPartitioner};
use ironkeeper_recipes::lock::{
    DeadlockDetector, MultiLock, Mutex, NonBlockingLease, Optimistic, ReadWriteLock, Reentrant,
    Semaphore, SemaphoreMutex, revoke,
};
use ironkeeper_recipes::model::{Model, Schema, SchemaClient, SchemaSet, Text};
use ironkeeper_recipes::naming::SegmentIds;
use ironkeeper_recipes::node::{PersistentWatcher, TtlNode};
use ironkeeper_recipes::queue::{DelayQueue, IdQueue, PriorityQueue};
use ironkeeper_recipes::shared::{AtomicLong, AtomicValue, CachedCounter, Set, SharedValue};
use ironkeeper_testing::Direction;

use crate::world::{World, children, until_children, with_every_cut};

/// The arguments of a piece of work.
struct Scene {
    /// The client whose connection is cut.
    client: Client,
    /// A client that only reads, with an intact connection.
    steady: Client,
    /// The path for this round.
    path: String,
}

impl Scene {
    #[track_caller]
    fn assert_empty(&self, path: &str) -> impl Future<Output = ()> {
        let (steady, path) = (self.steady.clone(), format!("{}{path}", self.path));
        async move { assert_eq!(children(&steady, &path).await, [""; 0], "{path}") }
    }
}

async fn check(work: impl AsyncFn(Scene)) {
    let world = World::start().await;
    let steady = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let cuts = with_every_cut(&world, direction, |client, round| {
            let path = format!("/{direction:?}/{round}");
            work(Scene { client, steady: steady.clone(), path })
        })
        .await;
        assert!(cuts > 1, "{cuts}");
    }
}

#[tokio::test]
async fn a_read_write_lock_leaves_no_orphan() {
    check(async |scene| {
        let lock = ReadWriteLock::new(&scene.client, &scene.path);
        let reading = lock.read().await.unwrap();
        assert_eq!(children(&scene.steady, &scene.path).await, [reading.node_name()]);
        reading.release().await.unwrap();
        let writing = lock.write().await.unwrap();
        assert_eq!(children(&scene.steady, &scene.path).await, [writing.node_name()]);
        writing.release().await.unwrap();
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn several_locks_leave_no_orphan() {
    check(async |scene| {
        let paths = ["a", "b"].map(|name| format!("{}/{name}", scene.path));
        let held = MultiLock::new(&scene.client, paths).unwrap().lock().await.unwrap();
        for guard in held.guards() {
            assert!(guard.check().await.unwrap());
        }
        held.release().await.unwrap();
        scene.assert_empty("/a").await;
        scene.assert_empty("/b").await;
    })
    .await;
}

#[tokio::test]
async fn a_handle_that_is_taken_twice_leaves_no_orphan() {
    check(async |scene| {
        let mut handle = Reentrant::new(Mutex::new(&scene.client, &scene.path));
        handle.acquire().await.unwrap();
        // A guard in doubt cannot be reacquired before the client has reconnected.
        scene.client.connected().await.unwrap();
        handle.acquire().await.unwrap();
        assert_eq!(children(&scene.steady, &scene.path).await.len(), 1);
        handle.release().await.unwrap();
        handle.release().await.unwrap();
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn a_lock_delay_leaves_no_marker_behind_a_release() {
    check(async |scene| {
        let mutex =
            Mutex::new(&scene.client, &scene.path).with_lock_delay(Duration::from_millis(1));
        let held = mutex.lock().await.unwrap();
        assert_eq!(children(&scene.steady, &scene.path).await.len(), 2);
        held.release().await.unwrap();
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn a_lease_is_obtained_once_and_ended() {
    check(async |scene| {
        let hour = Duration::from_secs(3600);
        let lease = NonBlockingLease::new(&scene.client, &scene.path, hour);
        let held = lease.obtain("one").await.unwrap().expect("it was free");
        let other = NonBlockingLease::new(&scene.steady, &scene.path, hour);
        assert!(other.obtain("two").await.unwrap().is_none());
        held.end().await.unwrap();
        assert!(other.obtain("two").await.unwrap().is_some());
    })
    .await;
}

#[tokio::test]
async fn an_optimistic_update_is_made_once() {
    check(async |scene| {
        scene.steady.create_recursive(&scene.path, "", CreateMode::Persistent).await.unwrap();
        let node = Optimistic::new(&scene.client, &scene.path);
        for _ in 0..2 {
            node.update(|old| [old, b"x"].concat()).await.unwrap();
        }
        assert_eq!(scene.steady.get(&scene.path).await.unwrap().data, "xx");
    })
    .await;
}

#[tokio::test]
async fn a_revocation_arrives() {
    check(async |scene| {
        let held = Mutex::new(&scene.steady, &scene.path).lock().await.unwrap();
        assert!(Mutex::new(&scene.client, &scene.path).revoke_holder().await.unwrap());
        held.revocation().await.unwrap();
        let path = held.path().to_owned();
        held.release().await.unwrap();
        assert!(!revoke(&scene.client, &path).await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn a_limit_that_is_shared_arrives_and_is_heeded() {
    check(async |scene| {
        let (client, limit) = (&scene.client, format!("{}-limit", scene.path));
        Semaphore::set_shared_limit(client, &limit, 1).await.unwrap();
        let semaphore = Semaphore::with_shared_limit(client, &scene.path, &limit)
            .with_lease_time(Duration::from_secs(3600));
        let lease = semaphore.acquire().await.unwrap();
        assert!(semaphore.try_acquire().await.unwrap().is_none());
        assert!(lease.check().await.unwrap());
        lease.release().await.unwrap();
        scene.assert_empty("/leases").await;
        scene.assert_empty("/locks").await;
    })
    .await;
}

#[tokio::test]
async fn a_semaphore_of_one_leaves_no_orphan() {
    check(async |scene| {
        let held = SemaphoreMutex::new(&scene.client, &scene.path).lock().await.unwrap();
        assert_eq!(children(&scene.steady, &format!("{}/leases", scene.path)).await.len(), 1);
        held.release().await.unwrap();
        scene.assert_empty("/leases").await;
        scene.assert_empty("/locks").await;
    })
    .await;
}

#[tokio::test]
async fn a_deadlock_is_found() {
    let world = World::start().await;
    let client = world.client().await;
    let lock = |name: &str, who: &'static str| {
        Mutex::new(&client, format!("/deadlock/{name}")).with_data(who)
    };
    let _held = [lock("a", "one").lock().await.unwrap(), lock("b", "two").lock().await.unwrap()];
    for waiting in [lock("b", "one"), lock("a", "two")] {
        let path = waiting.path().to_owned();
        tokio::spawn(async move { waiting.lock().await });
        until_children(&client, &path, 2).await;
    }
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| async move {
            let found = DeadlockDetector::new(&client, "/deadlock").detect().await.unwrap();
            assert_eq!(found.len(), 1);
        })
        .await;
    }
}

#[tokio::test]
async fn a_selector_leads_once_and_gives_way() {
    check(async |scene| {
        let selector = LeaderSelector::new(&scene.client, &scene.path, "one");
        let led = selector.lead(async |leadership| leadership.check().await).await.unwrap();
        assert!(matches!(led, Led::Done(Ok(true))), "{led:?}");
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn an_election_told_step_by_step_ends_with_one_leader_and_then_none() {
    check(async |scene| {
        let mut election = ElectionSupport::start(&scene.client, &scene.path, "one");
        loop {
            match election.next().await.expect("it has not been stopped") {
                ElectionEvent::ElectedComplete(_) => break,
                ElectionEvent::Failed(error) => panic!("{error}"),
                _ => {}
            }
        }
        assert_eq!(children(&scene.steady, &scene.path).await.len(), 1);
        election.stop();
        while let Some(event) = election.next().await {
            assert!(!matches!(event, ElectionEvent::Failed(_)), "{event:?}");
        }
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn a_static_election_leaves_no_orphan() {
    check(async |scene| {
        let election = StaticElection::new(&scene.client, &scene.path, "one");
        let guard = election.elected().await.unwrap();
        assert_eq!(election.leader().await.unwrap().as_deref(), Some("one"));
        guard.release().await.unwrap();
        assert!(scene.steady.exists(&scene.path).await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn an_observer_misses_no_last_leader() {
    check(async |scene| {
        let latch = LeaderLatch::start(&scene.steady, &scene.path, "one");
        latch.leading().await.unwrap();
        let mut observer = LeaderObserver::new(&scene.client, &scene.path, Election::Latch);
        assert_eq!(observer.next().await.unwrap().unwrap().id(), "one");
        latch.close().await.unwrap();
        assert!(observer.next().await.unwrap().is_none());
    })
    .await;
}

#[tokio::test]
async fn items_with_ids_are_put_queued_again_and_removed_once() {
    check(async |scene| {
        let queue = IdQueue::new(&scene.client, &scene.path).unwrap();
        queue.put("a", "1").await.unwrap();
        queue.put("b", "2").await.unwrap();
        queue.next().await.unwrap().requeue().await.unwrap();
        assert_eq!(
            children(&scene.steady, &scene.path).await,
            ["queue-|a|0000000002", "queue-|b|0000000001"]
        );
        assert_eq!(queue.remove("b").await.unwrap(), 1);
        let delivery = queue.next().await.unwrap();
        assert_eq!((delivery.id(), &delivery.items()[0][..]), (Some("a"), &b"1"[..]));
        delivery.done().await.unwrap();
        scene.assert_empty("").await;
        scene.assert_empty(".locks").await;
    })
    .await;
}

#[tokio::test]
async fn urgent_items_are_put_and_worked_on_once() {
    check(async |scene| {
        let queue = PriorityQueue::new(&scene.client, &scene.path).unwrap();
        queue.put(5, "later").await.unwrap();
        queue.put_all(-1, ["now", "and now"]).await.unwrap();
        for expected in [&["now", "and now"][..], &["later"]] {
            let delivery = queue.next().await.unwrap();
            assert_eq!(delivery.items(), expected);
            delivery.done().await.unwrap();
        }
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn items_that_are_due_are_put_and_worked_on_once() {
    check(async |scene| {
        let queue = DelayQueue::new(&scene.client, &scene.path).unwrap();
        queue.put_after(Duration::ZERO, "due").await.unwrap();
        let delivery = queue.next().await.unwrap();
        assert_eq!(delivery.items(), ["due"]);
        delivery.done().await.unwrap();
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn shared_values_are_written_in_order() {
    check(async |scene| {
        let value = SharedValue::open(&scene.client, &scene.path, "seed").await.unwrap();
        value.set("1").await.unwrap();
        let written = value.set("2").await.unwrap();
        assert_eq!(written.value, "2");
        assert_eq!(scene.steady.get(&scene.path).await.unwrap().data, "2");
    })
    .await;
}

#[tokio::test]
async fn atomic_values_are_set_and_counters_count_every_number_once() {
    check(async |scene| {
        let value = AtomicValue::new(&scene.client, &scene.path).with_receipts();
        value.set("text").await.unwrap();
        assert_eq!(scene.steady.get(&scene.path).await.unwrap().data, "text");
        let numbers = format!("{}-numbers", scene.path);
        let long = AtomicLong::new(&scene.client, &numbers).with_receipts();
        long.set(7).await.unwrap();
        let counter = CachedCounter::new(long, 2).unwrap();
        let mut counted = Vec::new();
        for _ in 0..3 {
            counted.push(counter.next().await.unwrap().expect("nobody is in the way"));
        }
        assert!(counted.windows(2).all(|two| two[0] < two[1]), "{counted:?}");
        // Two blocks, and no number twice.
        assert_eq!(AtomicLong::new(&scene.steady, &numbers).get().await.unwrap(), 11);
    })
    .await;
}

#[tokio::test]
async fn a_set_has_its_members_once() {
    check(async |scene| {
        let set = Set::new(&scene.client, &scene.path).unwrap();
        assert!(set.insert("a").await.unwrap());
        assert!(!set.insert("a").await.unwrap());
        assert!(set.contains("a").await.unwrap());
        assert!(set.remove("a").await.unwrap());
        assert!(Set::new(&scene.steady, &scene.path).unwrap().is_empty().await.unwrap());
    })
    .await;
}

#[tokio::test]
async fn caches_reach_the_last_state() {
    check(async |scene| {
        let (steady, child) = (&scene.steady, format!("{}/child", scene.path));
        steady.create_recursive(&child, "1", CreateMode::Persistent).await.unwrap();
        let node = NodeCache::start(&scene.client, &child);
        let children = ChildrenCache::start(&scene.client, &scene.path);
        steady.set(&child, "2", Version::Any).await.unwrap();
        let mut events = node.events();
        while node.current().is_none_or(|node| node.data != "2") {
            events.next().await.expect("the session lives");
        }
        let mut events = children.events();
        while children.get("child").is_none_or(|node| node.data != "2") {
            events.next().await.expect("the session lives");
        }
    })
    .await;
}

#[tokio::test]
async fn a_lasting_watch_tells_of_the_event_or_of_the_gap() {
    check(async |scene| {
        let (client, steady) = (&scene.client, &scene.steady);
        steady.create_recursive(&scene.path, "", CreateMode::Persistent).await.unwrap();
        let mut watcher =
            PersistentWatcher::start(client, &scene.path, WatchMode::Recursive).await.unwrap();
        steady.set(&scene.path, "1", Version::Any).await.unwrap();
        let told = watcher.next().await.unwrap().expect("the session lives");
        assert!(matches!(told, WatchItem::Event(_) | WatchItem::Gap), "{told:?}");
        watcher.close().await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_node_with_a_time_to_live_is_there_once_with_its_last_data() {
    check(async |scene| {
        let hour = Duration::from_secs(3600);
        let node = TtlNode::start(&scene.client, &scene.path, hour, "1").unwrap();
        if let Err(error) = node.created().await {
            // Not every server allows TTL nodes.
            assert!(std::env::var("IRONKEEPER_TEST_SERVER").is_ok(), "{error}");
            return;
        }
        node.set_data("2").await.unwrap();
        assert_eq!(scene.steady.get(&scene.path).await.unwrap().data, "2");
    })
    .await;
}

#[tokio::test]
async fn a_participant_of_a_party_is_there_once_and_gone_when_it_has_left() {
    check(async |scene| {
        let party = Party::join(&scene.client, &scene.path, "anna").await.unwrap();
        assert_eq!(children(&scene.steady, &scene.path).await.len(), 1);
        party.leave().await.unwrap();
        scene.assert_empty("").await;
    })
    .await;
}

#[tokio::test]
async fn a_share_of_a_set_is_acquired_and_given_back() {
    check(async |scene| {
        let joining = SetPartitioner::join(&scene.client, &scene.path, ["1", "2"], "anna");
        let mut anna = joining.await.unwrap().with_settling(Duration::ZERO);
        let share = anna.acquire().await.unwrap();
        assert_eq!(share.items(), ["1", "2"]);
        share.release().await.unwrap();
        anna.leave().await.unwrap();
        let mut next = SetPartitioner::join(&scene.steady, &scene.path, ["1", "2"], "berta")
            .await
            .unwrap()
            .with_settling(Duration::ZERO);
        assert_eq!(next.acquire().await.unwrap().items(), ["1", "2"]);
    })
    .await;
}

#[tokio::test]
async fn blocks_of_ids_are_fetched_once_for_each_who_asks() {
    check(async |scene| {
        let ids = SegmentIds::new(&scene.client, &scene.path, 2).unwrap();
        let mut given = Vec::new();
        for _ in 0..3 {
            given.push(ids.next().await.unwrap());
        }
        given.push(SegmentIds::new(&scene.steady, &scene.path, 2).unwrap().next().await.unwrap());
        assert!(given.windows(2).all(|two| two[0] < two[1]), "{given:?}");
    })
    .await;
}

#[tokio::test]
async fn values_of_a_model_are_followed_to_the_last_one() {
    let world = World::start().await;
    let steady = world.client().await;
    let limits: Model<u32> = Model::new("/limits/{name}", Text).unwrap();
    let limit = limits.at(&steady, &["users"]).unwrap();
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (limits, limit) = (&limits, &limit);
        with_every_cut(&world, direction, |client, _| async move {
            limit.write(&1).await.unwrap();
            let followed = limits.follow(&client, &[]).await.unwrap();
            let mut changes = followed.changes();
            limit.write(&2).await.unwrap();
            while followed.get("users").is_none_or(|users| *users != 2) {
                changes.next().await.expect("the session lives");
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_client_with_rules_tells_of_every_lost_reply_as_one_without_does() {
    check(async |scene| {
        let schema = Schema::new("any", "/**").unwrap();
        let client = SchemaClient::new(&scene.client, SchemaSet::new().with(schema));
        scene.steady.create_recursive(&scene.path, "", CreateMode::Persistent).await.unwrap();
        let policy = ironkeeper_client::RetryPolicy::forever(Duration::from_millis(1));
        let write = || client.set(&scene.path, "1", Version::Any).expect("the rules allow it");
        scene.client.retry(&policy, write).await.unwrap();
        assert_eq!(scene.steady.get(&scene.path).await.unwrap().data, "1");
    })
    .await;
}
