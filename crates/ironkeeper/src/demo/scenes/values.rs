//! Scenes of shared values.

use anyhow::{Context, Result, ensure};
use ironkeeper_recipes::shared::{AtomicLong, CachedCounter, Map, SharedCount};

use crate::demo::stage::{Stage, done, meanwhile};

pub async fn counter(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let counting = [&anna, &bob].map(|actor| {
        let hits = AtomicLong::new(&actor.client, "/hits").with_tries(100);
        meanwhile(async move {
            for _ in 0..3 {
                hits.increment().await?.after.context("too many were faster")?;
            }
            Ok::<_, anyhow::Error>(())
        })
    });
    for each in counting {
        done(each).await?;
    }
    let hits = AtomicLong::new(&anna.client, "/hits").get().await?;
    stage.tells(format!("two who count to three at the same time: {hits}")).await?;
    Ok(())
}

pub async fn shared_value(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let annas = SharedCount::open(&anna.client, "/limit", 4).await?;
    let bobs = SharedCount::open(&bob.client, "/limit", 4).await?;
    let mut changes = bobs.changes();
    annas.set(5).await?;
    stage.says(&anna, "sets the limit to 5").await?;
    let seen = changes.next().await.context("the session is over")??;
    stage.says(&bob, format!("is told: {}", seen.value)).await?;
    Ok(())
}

pub async fn cached_counter(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let orders = CachedCounter::new(AtomicLong::new(&anna.client, "/orders"), 100)?;
    let mut numbers = Vec::new();
    for _ in 0..5 {
        numbers.push(orders.next().await?.context("the block could not be fetched")?);
    }
    stage.says(&anna, format!("has drawn {numbers:?} with one write")).await?;
    Ok(())
}

pub async fn map(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let annas = Map::new(&anna.client, "/users")?;
    annas.put("anna", "10.0.0.1").await?;
    stage.says(&anna, "has put her address in").await?;
    let bobs = Map::new(&bob.client, "/users")?;
    let there = bobs.put_if_absent("anna", "10.0.0.2").await?;
    ensure!(there.is_some(), "a value was lost");
    stage.says(&bob, "was too late for that key").await?;
    annas.remove("anna").await?;
    Ok(())
}
