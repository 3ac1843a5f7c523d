//! The cache of the children of a node.

use ironkeeper_client::{CreateMode, Version};
use ironkeeper_recipes::cache::{ChildrenCache, Watching};

use super::told_until;
use crate::world::World;

async fn children_alone_are_told(watching: Watching) {
    let world = World::start().await;
    let client = world.client().await;
    let cache = ChildrenCache::start_by(&client, "/p", watching);
    cache.initialized().await.unwrap();
    assert!(cache.is_initialized() && cache.is_empty());
    let mut events = cache.events();
    let persistent = CreateMode::Persistent;
    client.create("/p", "", persistent).await.unwrap();
    client.create("/p/a", "1", persistent).await.unwrap();
    assert_eq!(told_until(&mut events, "+/p/a").await, ["initialized", "+/p/a"]);
    client.set("/p", "x", Version::Any).await.unwrap();
    client.create("/p/a/below", "", persistent).await.unwrap();
    client.set("/p/a/below", "x", Version::Any).await.unwrap();
    client.set("/p/a", "2", Version::Any).await.unwrap();
    assert_eq!(told_until(&mut events, "*/p/a=2").await, ["*/p/a=2"]);
    assert_eq!(cache.get("a").unwrap().data, "2");
    assert!(cache.get("a/below").is_none());
    assert_eq!((cache.children().len(), cache.len()), (1, 1));
    // The parent is deleted and created again.
    client.delete_recursive("/p").await.unwrap();
    assert_eq!(told_until(&mut events, "-/p/a").await, ["-/p/a"]);
    client.create_recursive("/p/b", "", persistent).await.unwrap();
    assert_eq!(told_until(&mut events, "+/p/b").await, ["+/p/b"]);
}

#[tokio::test]
async fn children_alone_are_told_by_a_lasting_watch() {
    children_alone_are_told(Watching::Lasting).await;
}

#[tokio::test]
async fn children_alone_are_told_by_one_shot_watches() {
    children_alone_are_told(Watching::OneShot).await;
}

#[tokio::test]
async fn the_children_of_the_root_are_cached() {
    let world = World::start().await;
    let client = world.client().await;
    client.create_recursive("/a/b", "", CreateMode::Persistent).await.unwrap();
    for watching in [Watching::Lasting, Watching::OneShot] {
        let cache = ChildrenCache::start_by(&client, "/", watching);
        cache.initialized().await.unwrap();
        assert_eq!(cache.children().len(), 1);
        assert!(cache.get("a").is_some());
    }
}

#[tokio::test]
async fn curator_690_more_than_64_thousand_children_are_loaded() {
    const CHILDREN: usize = 66_000;
    let world = World::start().await;
    let client = world.client().await;
    client.create("/p", "", CreateMode::Persistent).await.unwrap();
    let mut commits = Vec::new();
    for block in 0..CHILDREN / 1000 {
        let mut transaction = client.transaction();
        for number in block * 1000..(block + 1) * 1000 {
            let path = format!("/p/{number}");
            transaction = transaction.create(&path, "", CreateMode::Persistent);
        }
        commits.push(transaction.commit());
    }
    for commit in commits {
        commit.await.unwrap();
    }
    let cache = ChildrenCache::start(&client, "/p");
    cache.initialized().await.unwrap();
    assert_eq!(cache.len(), CHILDREN);
}
