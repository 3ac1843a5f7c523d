//! Known bugs of other libraries that no other file tests. The list is in `known-bugs.md`.

use std::time::Duration;

use ironkeeper_client::{Client, ErrorKind};
use ironkeeper_recipes::barrier::{Barrier, CountDownLatch, DoubleBarrier};
use ironkeeper_recipes::election::LeaderLatch;
use ironkeeper_recipes::lock::{Mutex, ReadWriteLock, Semaphore};
use ironkeeper_recipes::queue::{SimpleQueue, WorkQueue};
use ironkeeper_recipes::{RecipeError, Result};
use ironkeeper_testing::Direction;
use tokio::task::JoinHandle;

use crate::world::{World, children, until_children};

const PATH: &str = "/locks/b";

#[tokio::test]
async fn curator_678_a_release_that_loses_its_connection_leaves_no_node_and_the_next_lock_is_had() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        let (proxy, client) = world.proxied().await;
        let mutex = Mutex::new(&client, PATH);
        for _ in 0..3 {
            let guard = mutex.lock().await.unwrap();
            proxy.cut_after(direction, 5);
            guard.release().await.unwrap();
            assert!(!proxy.is_armed(), "the release was hit");
            assert_eq!(children(&watching, PATH).await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn zk_ruby_49_a_waiter_that_gives_up_leaves_no_node_and_holds_up_nobody() {
    let world = World::start().await;
    let (one, two, three) = (world.client().await, world.client().await, world.client().await);
    let held = Mutex::new(&one, PATH).lock().await.unwrap();
    let late = Mutex::new(&two, PATH).lock_within(Duration::from_millis(30)).await.unwrap();
    assert!(late.is_none());
    until_children(&one, PATH, 1).await;
    held.release().await.unwrap();
    Mutex::new(&three, PATH).lock().await.unwrap().release().await.unwrap();
}

/// Spawns a wait that ends only with the client.
fn waiting<T: Send + 'static>(
    wait: impl Future<Output = Result<T>> + Send + 'static,
) -> JoinHandle<Result<()>> {
    tokio::spawn(async { wait.await.map(drop) })
}

async fn all_waits(
    client: &Client,
    watching: &Client,
) -> Vec<(&'static str, JoinHandle<Result<()>>)> {
    let own = |client: &Client| client.clone();
    let (a, b, c, d) = (own(client), own(client), own(client), own(client));
    let latch = LeaderLatch::start(client, "/w/leader", "waits");
    let barrier = Barrier::new(client, "/w/barrier");
    let double = DoubleBarrier::new(client, "/w/double", 2).unwrap();
    let count_down = CountDownLatch::new(client, "/w/count", 1).unwrap();
    let waits = vec![
        ("mutex", waiting(async move { Mutex::new(&a, "/w/mutex").lock().await })),
        ("reader", waiting(async move { ReadWriteLock::new(&b, "/w/rw").read().await })),
        ("semaphore", waiting(async move { Semaphore::new(&c, "/w/s", 1)?.acquire().await })),
        ("latch", waiting(async move { latch.leading().await })),
        ("barrier", waiting(async move { barrier.wait().await })),
        ("double barrier", waiting(async move { double.enter().await })),
        ("count-down latch", waiting(async move { count_down.wait().await })),
        ("simple queue", waiting(async move { SimpleQueue::new(&d, "/w/simple")?.take().await })),
        ("work queue", {
            let queue = WorkQueue::new(client, "/w/work").unwrap();
            waiting(async move { queue.next().await })
        }),
    ];
    for path in ["/w/mutex", "/w/rw", "/w/leader"] {
        until_children(watching, path, 2).await;
    }
    for path in ["/w/double", "/w/simple.takers", "/w/work.takers"] {
        until_children(watching, path, 1).await;
    }
    waits
}

#[tokio::test]
async fn curator_673_675_677_720_closing_the_client_ends_every_wait() {
    let world = World::start().await;
    let (client, holder) = (world.client().await, world.client().await);
    let _mutex = Mutex::new(&holder, "/w/mutex").lock().await.unwrap();
    let _writer = ReadWriteLock::new(&holder, "/w/rw").write().await.unwrap();
    let _lease = Semaphore::new(&holder, "/w/s", 1).unwrap().acquire().await.unwrap();
    let leader = LeaderLatch::start(&holder, "/w/leader", "leads");
    leader.leading().await.unwrap();
    Barrier::new(&holder, "/w/barrier").set().await.unwrap();
    let waits = all_waits(&client, &holder).await;
    client.close().await.unwrap();
    for (what, wait) in waits {
        let ended = wait.await.unwrap().unwrap_err();
        let closed = ended.kind() == Some(ErrorKind::Closed) || ended.is_session_over();
        assert!(closed, "{what}: {ended}");
    }
    // No node of them is left, and a closed client rejects new requests.
    until_children(&holder, "/w/mutex", 1).await;
    until_children(&holder, "/w/leader", 1).await;
    let refused = Mutex::new(&client, "/w/mutex").lock().await.unwrap_err();
    assert!(matches!(refused, RecipeError::Client(_)), "{refused}");
}
