//! Demos of shared values.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use ironkeeper_recipes::shared::{
    AtomicInteger, AtomicLong, AtomicValue, CachedCounter, Map, Set, SharedCount, SharedValue,
};

use crate::demo::stage::{Stage, done, meanwhile};

/// How long a client whose optimistic writes all failed waits for the lock.
const PATIENCE: Duration = Duration::from_secs(10);

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
    let annas = SharedValue::open(&anna.client, "/motto", "slow").await?;
    let bobs = SharedValue::open(&bob.client, "/motto", "fast").await?;
    let read = bobs.current();
    let text = String::from_utf8_lossy(&read.value).into_owned();
    stage.says(&bob, format!("finds a value there: {text:?}")).await?;
    annas.set("steady").await?;
    stage.says(&anna, "has changed it").await?;
    ensure!(!bobs.try_set(&read, "fast").await?, "a change was overwritten");
    stage.says(&bob, "cannot change what he has not read").await?;
    Ok(())
}

pub async fn atomic_value(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let title = AtomicValue::new(&anna.client, "/title");
    title.set("draft").await?;
    let change = title.compare_and_set("draft", "final").await?;
    stage.says(&anna, format!("has changed a draft: {}", change.applied)).await?;
    let bobs = AtomicValue::new(&bob.client, "/title");
    let change = bobs.compare_and_set("draft", "nonsense").await?;
    stage.says(&bob, format!("comes too late: {}", change.applied)).await?;
    let left = AtomicInteger::new(&bob.client, "/left").promoted_to("/left-lock", PATIENCE);
    left.set(3).await?;
    let change = left.subtract(1).await?;
    let now = change.after.context("the lock was not to be had")?;
    stage.says(&bob, format!("takes one; {now} are left, {:?}", change.stats)).await?;
    Ok(())
}

pub async fn set(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let (annas, bobs) = (Set::new(&anna.client, "/seen")?, Set::new(&bob.client, "/seen")?);
    ensure!(annas.insert("page 1").await?, "it was there");
    stage.says(&anna, "has seen page 1").await?;
    ensure!(!bobs.insert("page 1").await?, "it was put in twice");
    stage.says(&bob, format!("knows: {:?}", bobs.members().await?)).await?;
    bobs.clear().await?;
    Ok(())
}

pub async fn shared_count(stage: &mut Stage) -> Result<()> {
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
