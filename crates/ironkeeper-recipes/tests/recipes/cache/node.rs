//! The cache of one node.

use ironkeeper_client::{CreateMode, Version};
use ironkeeper_recipes::cache::{CacheEvent, NodeCache};

use super::{told_until, until_watches};
use crate::world::World;

const PATH: &str = "/n";

#[tokio::test]
async fn a_life_is_told() {
    let world = World::start().await;
    let client = world.client().await;
    let cache = NodeCache::start(&client, PATH);
    let mut events = cache.events();
    cache.initialized().await.unwrap();
    assert!(cache.current().is_none());
    client.create(PATH, "1", CreateMode::Persistent).await.unwrap();
    assert_eq!(told_until(&mut events, "+/n").await, ["initialized", "+/n"]);
    client.set(PATH, "2", Version::Any).await.unwrap();
    assert_eq!(told_until(&mut events, "*/n=2").await, ["*/n=2"]);
    assert_eq!(cache.current().unwrap().stat.version, 1);
    client.create("/n/child", "", CreateMode::Persistent).await.unwrap();
    client.delete("/n/child", Version::Any).await.unwrap();
    client.delete(PATH, Version::Any).await.unwrap();
    assert_eq!(told_until(&mut events, "-/n").await, ["-/n"]);
    assert!(cache.current().is_none());
}

#[tokio::test]
async fn curator_182_deleted_and_created_again_is_told_as_both() {
    let world = World::start().await;
    let client = world.client().await;
    client.create(PATH, "old", CreateMode::Persistent).await.unwrap();
    let cache = NodeCache::start(&client, PATH);
    cache.initialized().await.unwrap();
    let mut events = cache.events();
    let gone = client.delete(PATH, Version::Any);
    let back = client.create(PATH, "new", CreateMode::Persistent);
    gone.await.unwrap();
    back.await.unwrap();
    assert_eq!(told_until(&mut events, "-/n").await, ["+/n", "initialized", "-/n"]);
    assert_eq!(told_until(&mut events, "+/n").await, ["+/n"]);
    assert_eq!(cache.current().unwrap().data, "new");
}

#[tokio::test]
async fn curator_391_what_happens_during_a_broken_connection_is_told_afterwards() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    other.create(PATH, "1", CreateMode::Persistent).await.unwrap();
    let cache = NodeCache::start(&client, PATH);
    cache.initialized().await.unwrap();
    let mut events = cache.events();
    told_until(&mut events, "initialized").await;
    proxy.refuse();
    proxy.cut();
    other.set(PATH, "2", Version::Any).await.unwrap();
    proxy.heal().unwrap();
    assert_eq!(told_until(&mut events, "*/n=2").await, ["*/n=2"]);
    proxy.refuse();
    proxy.cut();
    other.delete(PATH, Version::Any).await.unwrap();
    proxy.heal().unwrap();
    assert_eq!(told_until(&mut events, "-/n").await, ["-/n"]);
}

#[tokio::test]
async fn the_end_of_the_session_and_of_the_cache_are_told() {
    let world = World::start().await;
    let client = world.client().await;
    client.create(PATH, "kept", CreateMode::Persistent).await.unwrap();
    let cache = NodeCache::start(&client, PATH);
    cache.initialized().await.unwrap();
    let other = NodeCache::start(&client, PATH);
    other.initialized().await.unwrap();
    let (mut events, mut others) = (cache.events(), other.events());
    drop(other);
    let mut last = None;
    while let Some(event) = others.next().await {
        last = Some(event);
    }
    assert!(matches!(last, Some(CacheEvent::Ended(_))), "{last:?}");
    until_watches(&client, 1).await;
    world.end_session(&client).await;
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    let Some(CacheEvent::Ended(why)) = last else { panic!("{last:?}") };
    assert!(why.is_session_over(), "{why}");
    assert_eq!(cache.current().unwrap().data, "kept");
    // A cache started now is never initialized.
    let refused = NodeCache::start(&client, PATH).initialized().await.unwrap_err();
    assert!(refused.is_session_over(), "{refused}");
}
