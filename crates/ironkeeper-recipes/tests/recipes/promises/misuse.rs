//! Misuse returns a clear error; nodes that Curator leaves on the tree do not.

use std::time::Duration;

use ironkeeper_client::CreateMode;
use ironkeeper_recipes::barrier::Barrier;
use ironkeeper_recipes::lock::{Mutex, ReadWriteLock, Semaphore, SemaphoreMutex, SingleNodeLock};
use ironkeeper_recipes::queue::{
    BlockingQueue, DelayQueue, IdQueue, PriorityQueue, SimpleQueue, WorkQueue,
};
use ironkeeper_recipes::{RecipeError, Result};

use crate::world::World;

#[track_caller]
fn refused<T: std::fmt::Debug>(result: Result<T>, recipe: &str) {
    let error = result.expect_err("two recipes on one path");
    assert!(matches!(error, RecipeError::OtherRecipe { .. }), "{error}");
    assert!(error.to_string().contains(recipe), "{error}");
}

/// Far longer than any of these takes, so that an endless wait is an error.
const PATIENCE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_node_that_belongs_to_no_session_is_no_lock() {
    let world = World::start().await;
    let client = world.client().await;
    for (path, mode) in
        [("/persistent", CreateMode::Persistent), ("/container", CreateMode::Container)]
    {
        client.create(path, "", mode).await.unwrap();
        let lock = SingleNodeLock::new(&client, path);
        for result in [lock.lock_within(PATIENCE).await, lock.try_lock().await] {
            let error = result.unwrap_err();
            assert!(matches!(error, RecipeError::Malformed { .. }), "{error}");
            assert!(error.to_string().contains("belongs to no session"), "{error}");
        }
    }
}

#[tokio::test]
async fn a_semaphore_is_refused_where_another_lock_is_at_work() {
    let world = World::start().await;
    let client = world.client().await;
    let held = Mutex::new(&client, "/lock").lock().await.unwrap();
    let semaphore = Semaphore::new(&client, "/lock", 2).unwrap();
    refused(semaphore.acquire().await, "mutex");
    refused(semaphore.try_acquire_many(2).await, "mutex");
    refused(semaphore.acquire_many_within(2, PATIENCE).await, "mutex");
    refused(SemaphoreMutex::new(&client, "/lock").lock().await, "mutex");
    held.release().await.unwrap();
    // The path is free again; now in the opposite order.
    let lease = semaphore.acquire().await.unwrap();
    refused(Mutex::new(&client, "/lock").lock().await, "semaphore");
    refused(ReadWriteLock::new(&client, "/lock").read().await, "semaphore");
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_queue_is_refused_where_there_are_items_of_another() {
    let world = World::start().await;
    let client = world.client().await;
    let simple = SimpleQueue::new(&client, "/simple").unwrap();
    simple.offer("x").await.unwrap();
    let work = |path: &str| WorkQueue::new(&client, path).unwrap();
    refused(work("/simple").next_within(PATIENCE).await, "simple queue");
    refused(PriorityQueue::new(&client, "/simple").unwrap().try_next().await, "simple queue");
    refused(Mutex::new(&client, "/simple").lock().await, "simple queue");
    work("/work").put("x").await.unwrap();
    let taker = SimpleQueue::new(&client, "/work").unwrap();
    refused(taker.poll_within(PATIENCE).await, "queue of work");
    refused(taker.peek().await, "queue of work");
    refused(BlockingQueue::new(&client, "/work", 1).unwrap().poll().await, "queue of work");
    // As with Curator, an item without id, priority or due time is valid in these queues, too.
    let delivery = PriorityQueue::new(&client, "/work").unwrap().next().await.unwrap();
    delivery.requeue().await.unwrap();
    let delivery = DelayQueue::new(&client, "/work").unwrap().next().await.unwrap();
    delivery.requeue().await.unwrap();
    IdQueue::new(&client, "/work").unwrap().next().await.unwrap().done().await.unwrap();
    IdQueue::new(&client, "/ids").unwrap().put("a", "x").await.unwrap();
    refused(PriorityQueue::new(&client, "/ids").unwrap().try_next().await, "ids");
    refused(work("/ids").try_next().await, "ids");
    PriorityQueue::new(&client, "/urgent").unwrap().put(1, "x").await.unwrap();
    refused(work("/urgent").try_next().await, "priorities");
    // Lock nodes of Curator's users below the queue, and nodes of operators, are ignored.
    for name in ["/mixed/locks", "/mixed/readme"] {
        client.create_recursive(name, "", CreateMode::Persistent).await.unwrap();
    }
    let mixed = work("/mixed").with_lock_path("/mixed/locks");
    mixed.put("x").await.unwrap();
    mixed.next().await.unwrap().done().await.unwrap();
}

#[tokio::test]
async fn a_barrier_is_refused_where_there_are_children_of_another_recipe() {
    let world = World::start().await;
    let client = world.client().await;
    let held = Mutex::new(&client, "/lock").lock().await.unwrap();
    let barrier = Barrier::new(&client, "/lock");
    refused(barrier.set().await, "mutex");
    refused(barrier.wait_within(PATIENCE).await, "mutex");
    held.release().await.unwrap();
    SimpleQueue::new(&client, "/queue").unwrap().offer("x").await.unwrap();
    refused(Barrier::new(&client, "/queue").wait().await, "simple queue");
    // A barrier may be below another barrier.
    let (above, below) = (Barrier::new(&client, "/above"), Barrier::new(&client, "/above/below"));
    assert!(above.set().await.unwrap() && below.set().await.unwrap());
    assert!(!above.set().await.unwrap());
    assert!(!above.wait_within(Duration::from_millis(1)).await.unwrap());
}
