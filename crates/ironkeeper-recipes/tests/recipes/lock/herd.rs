//! How many are woken by a release: one by the fair mutex, all by the single node.

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::lock::{Mutex, SingleNodeLock};

use crate::world::{World, until_children, until_watches};

/// The watches that one session has not seen fire yet.
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
    // Each waits for one node, and each release makes exactly one watch fire: none is set anew.
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
    // All hundred ask the server again; one of them gets it, and ninety-nine have been woken for
    // nothing and watch once more.
    until_watches(&waiting, 99).await;
    watching.create("/after", "", CreateMode::Persistent).await.unwrap();
    let failed_creates = watching.last_zxid().0 - before.0 - 3;
    assert!(failed_creates >= 90, "{failed_creates}");
    for task in tasks {
        task.abort();
    }
}
