//! The number of contenders that a release wakes: one for `Mutex`, all for `SingleNodeLock`.

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::lock::{Mutex, SingleNodeLock};

use crate::world::{World, until_children, until_watches};

/// Returns the number of watches of a session that have not fired.
fn watches(client: &Client) -> usize {
    client.watch_count()
}

#[tokio::test]
async fn a_release_wakes_one_of_a_thousand_waiters() {
    let world = World::start().await;
    let (watching, waiting) = (world.client().await, world.client().await);
    let held = Mutex::new(&watching, "/lock").lock().await.unwrap();
    let (granted, mut grants) = tokio::sync::mpsc::channel(1);
    let mut tasks = Vec::new();
    for _ in 0..1000 {
        let (mutex, granted) = (Mutex::new(&waiting, "/lock"), granted.clone());
        tasks.push(tokio::spawn(async move {
            let guard = mutex.lock().await.unwrap();
            granted.send(guard).await.unwrap();
        }));
    }
    until_children(&watching, "/lock", 1001).await;
    until_watches(&waiting, 1000).await;
    // Each contender watches one node, and each release fires exactly one watch; none is set again.
    let mut held = held;
    for left in (0..1000).rev() {
        held.release().await.unwrap();
        held = grants.recv().await.unwrap();
        assert_eq!(watches(&waiting), left);
        if left < 990 {
            break;
        }
    }
    for task in tasks {
        task.abort();
    }
}

#[tokio::test]
async fn a_release_of_the_single_node_wakes_all() {
    let world = World::start().await;
    let (watching, waiting) = (world.client().await, world.client().await);
    let held = SingleNodeLock::new(&watching, "/lock").lock().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..100 {
        let lock = SingleNodeLock::new(&waiting, "/lock");
        tasks.push(tokio::spawn(async move {
            let guard = lock.lock().await.unwrap();
            std::future::pending::<()>().await;
            drop(guard);
        }));
    }
    until_watches(&waiting, 100).await;
    let before = waiting.last_zxid();
    held.release().await.unwrap();
    // All hundred contenders send a create; one succeeds, and ninety-nine were woken in vain and
    // set a watch again.
    until_watches(&waiting, 99).await;
    watching.create("/after", "", CreateMode::Persistent).await.unwrap();
    let failed_creates = watching.last_zxid().0 - before.0 - 3;
    assert!(failed_creates >= 90, "{failed_creates}");
    for task in tasks {
        task.abort();
    }
}
