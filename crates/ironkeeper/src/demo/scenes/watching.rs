//! Demos of caches, persistent nodes, TTL nodes and persistent watches.

use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_client::{CreateMode, Version, WatchItem, WatchMode};
use ironkeeper_recipes::cache::{CacheEvent, ChildrenCache, NodeCache, TreeCache};
use ironkeeper_recipes::node::{PersistentNode, PersistentWatcher, TtlNode};

use crate::demo::stage::Stage;

pub async fn cache(stage: &mut Stage) -> Result<()> {
    let (app, ops) = (stage.enter("app").await?, stage.enter("ops").await?);
    ops.client.create_recursive("/config/limits/users", "10", CreateMode::Persistent).await?;
    let config = TreeCache::start(&app.client, "/config");
    config.initialized().await?;
    stage.says(&app, format!("has {} nodes in memory and reads them there", config.len())).await?;
    let mut events = config.events();
    ops.client.set("/config/limits/users", "20", Version::Any).await?;
    stage.says(&ops, "raises a limit").await?;
    loop {
        let event = events.next().await.context("the session is over")?;
        if let CacheEvent::Changed { after, .. } = event {
            let now = String::from_utf8_lossy(&after.data).into_owned();
            return stage.says(&app, format!("is told of {}: {now}", after.path)).await;
        }
    }
}

pub async fn persistent_node(stage: &mut Stage) -> Result<()> {
    let (anna, clumsy) = (stage.enter("anna").await?, stage.enter("clumsy").await?);
    let node = PersistentNode::builder(&anna.client, "/workers/anna").data("idle").start();
    let mut creations = node.creations();
    creations.next().await?;
    stage.says(&anna, "is here").await?;
    clumsy.client.delete("/workers/anna", Version::Any).await?;
    creations.next().await?;
    stage.says(&clumsy, "has deleted the wrong node; it is back").await?;
    node.close().await?;
    stage.says(&anna, "leaves").await?;
    Ok(())
}

pub async fn node_cache(stage: &mut Stage) -> Result<()> {
    let (app, ops) = (stage.enter("app").await?, stage.enter("ops").await?);
    let motd = NodeCache::start(&app.client, "/motd");
    motd.initialized().await?;
    stage.says(&app, format!("follows a node; is it there? {}", motd.current().is_some())).await?;
    let mut events = motd.events();
    ops.client.create("/motd", "be kind", CreateMode::Persistent).await?;
    stage.says(&ops, "creates it").await?;
    loop {
        if let CacheEvent::Created(node) = events.next().await.context("the session is over")? {
            let text = String::from_utf8_lossy(&node.data).into_owned();
            return stage.says(&app, format!("has it in memory: {text}")).await;
        }
    }
}

pub async fn children_cache(stage: &mut Stage) -> Result<()> {
    let (app, ops) = (stage.enter("app").await?, stage.enter("ops").await?);
    for path in ["/rooms", "/rooms/blue", "/rooms/red", "/rooms/red/table"] {
        ops.client.create(path, "", CreateMode::Persistent).await?;
    }
    let rooms = ChildrenCache::start(&app.client, "/rooms");
    rooms.initialized().await?;
    stage.says(&app, format!("knows {} rooms, and not what is below them", rooms.len())).await?;
    let mut events = rooms.events();
    ops.client.delete("/rooms/blue", Version::Any).await?;
    loop {
        if let CacheEvent::Deleted(node) = events.next().await.context("the session is over")? {
            return stage.says(&app, format!("is told that {} is gone", node.path)).await;
        }
    }
}

pub async fn ttl_node(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let hour = Duration::from_secs(3600);
    let node = TtlNode::start(&anna.client, "/announcement", hour, "open until five")?;
    node.created().await?;
    stage.until_created("/announcement/touch").await?;
    stage.says(&anna, "has put it up, and renews it twice an hour").await?;
    stage.kill(&anna).await?;
    let text = bob.client.get("/announcement").await?.data;
    let text = String::from_utf8_lossy(&text).into_owned();
    stage.says(&bob, format!("still reads it, until its time is over: {text}")).await?;
    Ok(())
}

pub async fn persistent_watcher(stage: &mut Stage) -> Result<()> {
    let (app, ops) = (stage.enter("app").await?, stage.enter("ops").await?);
    let mut watcher = PersistentWatcher::start(&app.client, "/docs", WatchMode::Recursive).await?;
    for path in ["/docs", "/docs/a", "/docs/b"] {
        ops.client.create(path, "", CreateMode::Persistent).await?;
    }
    stage.says(&ops, "has created three nodes").await?;
    for _ in 0..3 {
        if let Some(WatchItem::Event(event)) = watcher.next().await? {
            stage.says(&app, format!("is told of {}, by a watch set once", event.path)).await?;
        }
    }
    watcher.close().await?;
    Ok(())
}
