//! `PersistentWatcher`.

use ironkeeper_client::{Client, CreateMode, Version, WatchItem, WatchMode, WatchType};
use ironkeeper_recipes::node::PersistentWatcher;

use crate::world::World;

async fn next_path(watcher: &mut PersistentWatcher) -> String {
    match watcher.next().await.unwrap() {
        Some(WatchItem::Event(event)) => event.path,
        other => panic!("{other:?}"),
    }
}

async fn set(client: &Client, mode: WatchMode) -> PersistentWatcher {
    PersistentWatcher::start(client, "/w", mode).await.unwrap()
}

#[tokio::test]
async fn it_tells_of_the_node_or_of_everything_below() {
    let world = World::start().await;
    let client = world.client().await;
    let (mut one, mut all) =
        (set(&client, WatchMode::Persistent).await, set(&client, WatchMode::Recursive).await);
    assert_eq!(one.path(), "/w");
    client.create("/w", "", CreateMode::Persistent).await.unwrap();
    client.create("/w/a", "", CreateMode::Persistent).await.unwrap();
    client.set("/w/a", "1", Version::Any).await.unwrap();
    client.set("/w", "1", Version::Any).await.unwrap();
    for expected in ["/w", "/w/a", "/w/a", "/w"] {
        assert_eq!(next_path(&mut all).await, expected);
    }
    for _ in 0..3 {
        assert_eq!(next_path(&mut one).await, "/w");
    }
}

#[tokio::test]
async fn a_reconnect_and_a_removal_leave_a_gap_and_the_watch() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let mut watcher = set(&client, WatchMode::Recursive).await;
    proxy.cut();
    assert_eq!(watcher.next().await.unwrap(), Some(WatchItem::Gap));
    client.create("/w", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(next_path(&mut watcher).await, "/w");
    client.remove_watches("/w", WatchType::Any).await.unwrap();
    assert_eq!(watcher.next().await.unwrap(), Some(WatchItem::Gap));
    client.create("/w/a", "", CreateMode::Persistent).await.unwrap();
    assert_eq!(next_path(&mut watcher).await, "/w/a");
}

#[tokio::test]
async fn curator_1292_nothing_is_left_of_one_that_is_closed_or_dropped() {
    let world = World::start().await;
    let client = world.client().await;
    for _ in 0..10 {
        set(&client, WatchMode::Recursive).await.close().await.unwrap();
    }
    assert_eq!(client.watch_count(), 0);
    for _ in 0..10 {
        drop(set(&client, WatchMode::Recursive).await);
    }
    assert_eq!(client.watch_count(), 0);
    // The server has no watch either: requests are applied in order.
    assert!(client.check_watches("/w", WatchType::Any).await.is_err());
}

#[tokio::test]
async fn curator_729_it_ends_with_the_session() {
    let world = World::start().await;
    let client = world.client().await;
    let mut watcher = set(&client, WatchMode::Recursive).await;
    client.close().await.unwrap();
    assert_eq!(watcher.next().await.unwrap(), Some(WatchItem::SessionEnded));
    assert_eq!(watcher.next().await.unwrap(), None);
    assert_eq!(watcher.next().await.unwrap(), None);
}
