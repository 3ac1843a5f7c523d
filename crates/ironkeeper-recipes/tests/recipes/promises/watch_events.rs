//! The number of watch events of one handover, counted on the wire.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, Version};
use ironkeeper_recipes::cache::{ChildrenCache, NodeCache, TreeCache};
use ironkeeper_recipes::election::{
    Election, ElectionEvent, ElectionSupport, LeaderLatch, LeaderObserver, LeaderSelector, Offer,
    StaticElection,
};
use ironkeeper_recipes::group::{Group, GroupMember, Party};
use ironkeeper_recipes::lock::{
    MultiLock, Mutex, NonBlockingLease, ReadWriteLock, Reentrant, Semaphore, SemaphoreMutex,
};
use ironkeeper_recipes::naming::NameService;
use ironkeeper_recipes::node::{PersistentNode, TtlNode};
use ironkeeper_recipes::queue::{DelayQueue, IdQueue, Order, PriorityQueue, Queue, ShardedQueue};
use ironkeeper_recipes::service::balance::LeastConnections;
use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance};
use ironkeeper_recipes::shared::{SharedCount, SharedValue};
use ironkeeper_recipes::{Guard, Result};
use tokio::task::JoinHandle;

use crate::world::watch_events::{WatchEvents, counted};
use crate::world::{World, until_children, until_watches};

/// A client whose events are counted.
struct Counted {
    client: Client,
    events: WatchEvents,
}

impl Counted {
    async fn new(world: &World) -> Counted {
        let (client, events) = counted(world).await;
        Counted { client, events }
    }

    /// Returns the number of events so far. Events precede the reply to a later request.
    async fn count(&self) -> usize {
        self.client.sync("/").await.unwrap();
        self.events.count()
    }

    /// Waits until `count` events have arrived, and checks that there are no more.
    #[track_caller]
    fn until(&self, count: usize) -> impl Future<Output = ()> {
        let at = std::panic::Location::caller();
        async move {
            while self.count().await < count {}
            assert_eq!(self.count().await, count, "{at}");
        }
    }
}

/// Starts waiters one after the other.
async fn line_up<T: Send + 'static, F>(
    world: &World,
    waiters: usize,
    wait: impl Fn(Client) -> F,
) -> Vec<(Counted, JoinHandle<Result<T>>)>
where
    F: Future<Output = Result<T>> + Send + 'static,
{
    let mut line = Vec::new();
    for _ in 0..waiters {
        let waiter = Counted::new(world).await;
        let waiting = tokio::spawn(wait(waiter.client.clone()));
        until_watches(&waiter.client, 1).await;
        line.push((waiter, waiting));
    }
    line
}

/// One event per handover, at the next waiter.
async fn check_lock<F>(lock: impl Fn(Client) -> F)
where
    F: Future<Output = Result<Guard>> + Send + 'static,
{
    let world = World::start().await;
    let first = Counted::new(&world).await;
    let mut held = lock(first.client.clone()).await.unwrap();
    let mut line = line_up(&world, 3, lock).await;
    for at in 0..3 {
        held.release().await.unwrap();
        held = (&mut line[at].1).await.unwrap().unwrap();
        for (number, (waiter, _)) in line.iter().enumerate() {
            waiter.until(usize::from(number <= at)).await;
        }
    }
    first.until(0).await;
}

#[tokio::test]
async fn a_hand_over_of_a_lock_for_one_costs_one_event_at_the_next_in_line() {
    check_lock(|client| async move { Mutex::new(&client, "/lock").lock().await }).await;
    check_lock(|client| async move {
        Mutex::new(&client, "/lock").with_lock_delay(Duration::from_secs(60)).lock().await
    })
    .await;
}

#[tokio::test]
async fn a_handle_that_is_taken_twice_costs_no_event_more() {
    let world = World::start().await;
    let first = Counted::new(&world).await;
    let mut handle = Reentrant::new(Mutex::new(&first.client, "/lock"));
    handle.acquire().await.unwrap();
    let take = |client: Client| async move { Mutex::new(&client, "/lock").lock().await };
    let mut line = line_up(&world, 1, take).await;
    handle.acquire().await.unwrap();
    handle.release().await.unwrap();
    line[0].0.until(0).await;
    handle.release().await.unwrap();
    let _held = (&mut line[0].1).await.unwrap().unwrap();
    line[0].0.until(1).await;
    first.until(0).await;
}

#[tokio::test]
async fn a_writer_wakes_the_readers_behind_it_and_the_last_reader_the_next_writer() {
    let world = World::start().await;
    let first = Counted::new(&world).await;
    let writing = ReadWriteLock::new(&first.client, "/lock").write().await.unwrap();
    let read = |client: Client| async move { ReadWriteLock::new(&client, "/lock").read().await };
    let write = |client: Client| async move { ReadWriteLock::new(&client, "/lock").write().await };
    let mut readers = line_up(&world, 3, read).await;
    let mut writers = line_up(&world, 2, write).await;
    writing.release().await.unwrap();
    let mut reading = Vec::new();
    for (reader, waiting) in &mut readers {
        reading.push(waiting.await.unwrap().unwrap());
        reader.until(1).await;
    }
    for guard in reading {
        writers[0].0.until(0).await;
        guard.release().await.unwrap();
    }
    let writing = (&mut writers[0].1).await.unwrap().unwrap();
    writers[0].0.until(1).await;
    writers[1].0.until(0).await;
    writing.release().await.unwrap();
    let _last = (&mut writers[1].1).await.unwrap().unwrap();
    writers[1].0.until(1).await;
    first.until(0).await;
}

#[tokio::test]
async fn a_lease_costs_one_event_at_the_head_of_the_line_and_one_at_the_next() {
    let world = World::start().await;
    for is_mutex in [false, true] {
        let path = format!("/semaphore-{is_mutex}");
        let acquire = |client: Client| {
            let path = path.clone();
            async move {
                match is_mutex {
                    true => SemaphoreMutex::new(&client, path).lock().await,
                    false => Semaphore::new(&client, path, 1)?.acquire().await,
                }
            }
        };
        let first = Counted::new(&world).await;
        let mut lease = acquire(first.client.clone()).await.unwrap();
        let mut line = line_up(&world, 3, acquire).await;
        for at in 0..2 {
            lease.release().await.unwrap();
            lease = (&mut line[at].1).await.unwrap().unwrap();
            // The next waiter is now at the head of the queue, has created its lease node and
            // watches the leases.
            until_children(&first.client, &format!("{path}/leases"), 2).await;
            until_watches(&line[at + 1].0.client, 1).await;
            for (number, (waiter, _)) in line.iter().enumerate() {
                // The first event was for the head of the queue, the second for the lease.
                let mutexes = usize::from(number > 0 && number <= at + 1);
                waiter.until(mutexes + usize::from(number <= at)).await;
            }
        }
        line.pop().expect("there are three").1.abort();
    }
}

#[tokio::test]
async fn several_locks_cost_one_event_where_they_are_waited_for() {
    let world = World::start().await;
    let first = Counted::new(&world).await;
    let take = |client: Client| async move { MultiLock::new(&client, ["/a", "/b"])?.lock().await };
    let mut held = take(first.client.clone()).await.unwrap();
    let mut line = line_up(&world, 2, take).await;
    for at in 0..2 {
        held.release().await.unwrap();
        held = (&mut line[at].1).await.unwrap().unwrap();
        for (number, (waiter, _)) in line.iter().enumerate() {
            waiter.until(usize::from(number <= at)).await;
        }
    }
    first.until(0).await;
}

#[tokio::test]
async fn leases_that_nobody_waits_for_cost_no_event() {
    let world = World::start().await;
    let (one, two) = (Counted::new(&world).await, Counted::new(&world).await);
    let hour = Duration::from_secs(3600);
    let lease = |client: &Client| NonBlockingLease::new(client, "/lease", hour);
    let held = lease(&one.client).obtain("one").await.unwrap().unwrap();
    assert!(lease(&two.client).obtain("two").await.unwrap().is_none());
    held.end().await.unwrap();
    assert!(lease(&two.client).obtain("two").await.unwrap().is_some());
    one.until(0).await;
    two.until(0).await;
}

#[tokio::test]
async fn a_change_of_latches_costs_one_event_at_the_next_and_one_at_the_old_leader() {
    let world = World::start().await;
    let mut latches = Vec::new();
    for number in 0..3 {
        let candidate = Counted::new(&world).await;
        let latch = LeaderLatch::start(&candidate.client, "/leader", number.to_string());
        // The leader watches its own node; each other latch watches its predecessor.
        until_watches(&candidate.client, 1).await;
        latches.push((candidate, latch));
    }
    let (first, latch) = latches.remove(0);
    latch.close().await.unwrap();
    latches[0].1.leading().await.unwrap();
    first.until(1).await;
    latches[0].0.until(1).await;
    latches[1].0.until(0).await;
}

#[tokio::test]
async fn a_change_of_selectors_costs_one_event_at_the_next_and_one_at_the_old_leader() {
    let world = World::start().await;
    let (first, next) = (Counted::new(&world).await, Counted::new(&world).await);
    let selector = LeaderSelector::new(&first.client, "/leader", "first");
    let (lead, mut leads) = tokio::sync::mpsc::channel(1);
    let waiting = async {
        leads.recv().await.expect("the first one leads");
        let selector = LeaderSelector::new(&next.client, "/leader", "next");
        // Counted before its own node is deleted, which is another event.
        selector.lead(async |_| next.until(1).await).await.unwrap();
    };
    let leading = selector.lead(async |_| {
        lead.send(()).await.expect("somebody waits for it");
        until_watches(&next.client, 1).await;
        until_watches(&first.client, 1).await;
    });
    let (led, ()) = tokio::join!(leading, waiting);
    led.unwrap();
    first.until(1).await;
}

#[tokio::test]
async fn a_change_told_step_by_step_costs_one_event_at_the_next_and_one_at_the_old_leader() {
    let world = World::start().await;
    let until_elected = async |election: &mut ElectionSupport| {
        while !matches!(election.next().await.unwrap(), ElectionEvent::ElectedComplete(_)) {}
    };
    let mut candidates = Vec::new();
    for number in 0..3 {
        let candidate = Counted::new(&world).await;
        let mut election =
            ElectionSupport::start(&candidate.client, "/election", number.to_string());
        if number == 0 {
            until_elected(&mut election).await;
        }
        until_watches(&candidate.client, 1).await;
        candidates.push((candidate, election));
    }
    candidates[0].1.stop();
    until_elected(&mut candidates[1].1).await;
    candidates[0].0.until(1).await;
    candidates[1].0.until(1).await;
    candidates[2].0.until(0).await;
}

#[tokio::test]
async fn a_change_of_the_static_leader_wakes_everybody_who_waits() {
    let world = World::start().await;
    let first = world.client().await;
    let Offer::Elected(guard) =
        StaticElection::new(&first, "/leader", "first").offer().await.unwrap()
    else {
        panic!("nobody else is there")
    };
    let elect = |client: Client| async move {
        StaticElection::new(&client, "/leader", "x").elected().await
    };
    let line = line_up(&world, 4, elect).await;
    guard.release().await.unwrap();
    for (waiter, _) in &line {
        waiter.until(1).await;
    }
    line.into_iter().for_each(|(_, waiting)| waiting.abort());
}

#[tokio::test]
async fn an_observer_gets_one_event_per_change_and_none_for_candidates() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, Counted::new(&world).await);
    let latch = LeaderLatch::start(&client, "/leader", "one");
    latch.leading().await.unwrap();
    let mut observer = LeaderObserver::new(&watching.client, "/leader", Election::Latch);
    assert_eq!(observer.next().await.unwrap().unwrap().id(), "one");
    let next = LeaderLatch::start(&client, "/leader", "two");
    let third = LeaderLatch::start(&client, "/leader", "three");
    until_children(&client, "/leader", 3).await;
    third.close().await.unwrap();
    watching.until(0).await;
    latch.close().await.unwrap();
    assert_eq!(observer.next().await.unwrap().unwrap().id(), "two");
    watching.until(1).await;
    drop(next);
}

/// In total over all workers: one event at the head of the queue, and one at the next worker.
async fn check_queue<O: Order + Send + 'static>(put: impl AsyncFn(&Queue<O>)) {
    let world = World::start().await;
    let producer = Queue::<O>::new(&world.client().await, "/queue").unwrap();
    let next = |client: Client| async move { Queue::<O>::new(&client, "/queue")?.next().await };
    let mut line = line_up(&world, 3, next).await;
    put(&producer).await;
    let delivery = (&mut line[0].1).await.unwrap().unwrap();
    line[0].0.until(1).await;
    line[1].0.until(1).await;
    line[2].0.until(0).await;
    drop(delivery);
    line.into_iter().skip(1).for_each(|(_, waiting)| waiting.abort());
}

#[tokio::test]
async fn an_item_with_an_id_a_priority_or_a_time_costs_two_events_however_many_wait() {
    check_queue(async |queue: &IdQueue| queue.put("id", "x").await.unwrap()).await;
    check_queue(async |queue: &PriorityQueue| queue.put(1, "x").await.unwrap()).await;
    // Put before it is due: the head of the queue reads it and waits until the due time.
    let later = Duration::from_millis(200);
    check_queue(async |queue: &DelayQueue| queue.put_after(later, "x").await.unwrap()).await;
}

#[tokio::test]
async fn an_item_of_a_sharded_queue_costs_two_events_however_many_wait() {
    let world = World::start().await;
    let producer = ShardedQueue::new(&world.client().await, "/clicks");
    producer.put("first").await.unwrap();
    producer.next().await.unwrap().done().await.unwrap();
    let mut line = Vec::new();
    for _ in 0..3 {
        let worker = Counted::new(&world).await;
        let queue = ShardedQueue::new(&worker.client, "/clicks");
        let waiting = tokio::spawn(async move { queue.next().await });
        // The only shard or the predecessor, and the list of shards.
        until_watches(&worker.client, 2).await;
        line.push((worker, waiting));
    }
    producer.put("second").await.unwrap();
    let delivery = (&mut line[0].1).await.unwrap().unwrap();
    line[0].0.until(1).await;
    line[1].0.until(1).await;
    line[2].0.until(0).await;
    drop(delivery);
    line.into_iter().skip(1).for_each(|(_, waiting)| waiting.abort());
}

#[tokio::test]
async fn a_shared_value_costs_one_event_per_reader_and_change() {
    let world = World::start().await;
    let writer = world.client().await;
    let value = SharedValue::open(&writer, "/value", "seed").await.unwrap();
    let count = SharedCount::open(&writer, "/count", 0).await.unwrap();
    let reader = Counted::new(&world).await;
    let opened = SharedValue::open(&reader.client, "/value", "").await.unwrap();
    let mut values = opened.changes();
    let opened = SharedCount::open(&reader.client, "/count", 0).await.unwrap();
    let mut counts = opened.changes();
    for number in 1..4 {
        value.set(number.to_string()).await.unwrap();
        assert_eq!(values.next().await.unwrap().value, number.to_string());
        count.set(number).await.unwrap();
        assert_eq!(counts.next().await.unwrap().unwrap().value, number);
    }
    reader.until(6).await;
}

#[tokio::test]
async fn caches_cost_one_event_per_change() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive("/tree/node", "0", CreateMode::Persistent).await.unwrap();
    let [node, children, tree] =
        [Counted::new(&world).await, Counted::new(&world).await, Counted::new(&world).await];
    let node_cache = NodeCache::start(&node.client, "/tree/node");
    let children_cache = ChildrenCache::start(&children.client, "/tree");
    let tree_cache = TreeCache::start(&tree.client, "/tree");
    node_cache.initialized().await.unwrap();
    children_cache.initialized().await.unwrap();
    tree_cache.initialized().await.unwrap();
    let until_all = async |data: Option<&str>, changes: usize| {
        let is = |seen: Option<std::sync::Arc<ironkeeper_recipes::cache::CachedNode>>| {
            seen.as_ref().map(|node| &node.data[..]) == data.map(str::as_bytes)
        };
        while !is(node_cache.current()) {
            node.count().await;
        }
        while !is(children_cache.get("node")) {
            children.count().await;
        }
        while !is(tree_cache.get("/tree/node")) {
            tree.count().await;
        }
        // A read or an event shows a change; the next watch is set after both.
        for counted in [&node, &children, &tree] {
            counted.until(changes).await;
        }
        until_watches(&node.client, 1).await;
    };
    client.set("/tree/node", "1", Version::Any).await.unwrap();
    until_all(Some("1"), 1).await;
    client.delete("/tree/node", Version::Any).await.unwrap();
    until_all(None, 2).await;
    client.create("/tree/node", "2", CreateMode::Persistent).await.unwrap();
    until_all(Some("2"), 3).await;
}

#[tokio::test]
async fn nodes_that_heal_themselves_cost_one_event_per_change() {
    let world = World::start().await;
    let (client, owner) = (world.client().await, Counted::new(&world).await);
    let node = PersistentNode::builder(&owner.client, "/node").data("x").start();
    let mut creations = node.creations();
    for deletions in 0..3 {
        creations.next().await.unwrap();
        until_watches(&owner.client, 1).await;
        owner.until(deletions).await;
        client.delete("/node", Version::Any).await.unwrap();
    }
    creations.next().await.unwrap();
    until_watches(&owner.client, 1).await;
    owner.until(3).await;
    node.set_data("y").await.unwrap();
    owner.until(4).await;
}

#[tokio::test]
async fn renewals_of_a_node_with_a_time_to_live_cost_no_event() {
    let world = World::start().await;
    let (client, owner) = (world.client().await, Counted::new(&world).await);
    let node = TtlNode::start(&owner.client, "/ttl", Duration::from_millis(400), "x").unwrap();
    if let Err(error) = node.created().await {
        // Not every server allows TTL nodes.
        return assert!(std::env::var("IRONKEEPER_TEST_SERVER").is_ok(), "{error}");
    }
    loop {
        let (found, watch) = client.exists_and_watch("/ttl/touch").await.unwrap();
        if found.is_some_and(|touch| touch.version >= 2) {
            break;
        }
        watch.await.unwrap();
    }
    owner.until(0).await;
}

#[tokio::test]
async fn a_member_that_comes_changes_or_goes_costs_one_event_at_everybody_who_looks_on() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, Counted::new(&world).await);
    client.create("/group", "", CreateMode::Persistent).await.unwrap();
    client.create("/party", "", CreateMode::Persistent).await.unwrap();
    let group = Group::open(&watching.client, "/group").await.unwrap();
    let anna = GroupMember::join(&client, "/group", "anna", "1").await.unwrap();
    anna.set_data("2").await.unwrap();
    anna.leave().await.unwrap();
    watching.until(3).await;
    drop(group);
    let first = Counted::new(&world).await;
    let party = Party::join(&first.client, "/party", "anna").await.unwrap();
    let before = first.count().await;
    let guest = Party::join(&client, "/party", "guest").await.unwrap();
    guest.leave().await.unwrap();
    first.until(before + 2).await;
    drop(party);
}

#[tokio::test]
async fn a_name_costs_one_event_at_everybody_who_waits_for_it() {
    let world = World::start().await;
    let names = NameService::new(&world.client().await, "/names").unwrap();
    names.bind("other", "1").await.unwrap();
    let wait =
        |client: Client| async move { NameService::new(&client, "/names")?.wait_for("web").await };
    let line = line_up(&world, 2, wait).await;
    names.bind("db", "2").await.unwrap();
    names.bind("web", "3").await.unwrap();
    for (waiter, waiting) in line {
        assert_eq!(waiting.await.unwrap().unwrap(), "3");
        waiter.until(1).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_counted_costs_one_event_at_every_other_client() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, Counted::new(&world).await);
    let discovery = ServiceDiscovery::new(&client, "/services");
    let _one = discovery.register(ServiceInstance::new("web")).await.unwrap();
    let least = LeastConnections::open(&client, "/services", "web").await.unwrap();
    let seen = LeastConnections::open(&watching.client, "/services", "web").await.unwrap();
    let before = watching.count().await;
    let instances = discovery.instances("web").await.unwrap();
    let connection = least.connect(&instances).unwrap();
    let id = connection.instance().id.clone();
    while seen.counts().get(&id) != Some(&1) {
        watching.count().await;
    }
    watching.until(before + 1).await;
    drop(connection);
    while seen.counts().contains_key(&id) {
        watching.count().await;
    }
    watching.until(before + 2).await;
}
