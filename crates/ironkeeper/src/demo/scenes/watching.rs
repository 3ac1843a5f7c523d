//! Scenes of caches and of nodes that look after themselves.

use anyhow::{Context, Result};
use ironkeeper_client::{CreateMode, Version};
use ironkeeper_recipes::cache::{CacheEvent, TreeCache};
use ironkeeper_recipes::node::PersistentNode;

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
