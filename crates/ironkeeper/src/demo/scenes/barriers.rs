//! Demos of barriers.

use anyhow::Result;
use ironkeeper_recipes::barrier::{
    Barrier, CountDownLatch, CyclicBarrier, DoubleBarrier, SizedBarrier,
};

use crate::demo::stage::{Stage, done, meanwhile};

pub async fn barrier(stage: &mut Stage) -> Result<()> {
    let (guard, anna) = (stage.enter("guard").await?, stage.enter("anna").await?);
    let gate = Barrier::new(&guard.client, "/gate");
    gate.set().await?;
    stage.says(&guard, "has closed the gate").await?;
    let waiting = Barrier::new(&anna.client, "/gate");
    let waiting = meanwhile(async move { waiting.wait().await });
    stage.says(&anna, "waits").await?;
    gate.remove().await?;
    stage.says(&guard, "has opened it").await?;
    done(waiting).await?;
    stage.says(&anna, "goes through").await?;
    Ok(())
}

pub async fn double(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let annas = DoubleBarrier::new(&anna.client, "/job", 2)?;
    let bobs = DoubleBarrier::new(&bob.client, "/job", 2)?;
    let annas = meanwhile(async move { annas.enter().await });
    stage.until_created("/job/").await?;
    stage.says(&anna, "is here and waits for one more").await?;
    let bob_inside = bobs.enter().await?;
    let anna_inside = done(annas).await?;
    stage.tells("both are here: the node `ready` lets them begin").await?;
    let leaving = meanwhile(async move { anna_inside.leave().await });
    stage.says(&anna, "is done and waits for bob").await?;
    bob_inside.leave().await?;
    done(leaving).await?;
    stage.tells("both are done").await?;
    Ok(())
}

pub async fn sized(stage: &mut Stage) -> Result<()> {
    let (boss, anna, bob) =
        (stage.enter("boss").await?, stage.enter("anna").await?, stage.enter("bob").await?);
    SizedBarrier::new(&boss.client, "/trip").set_size(3).await?;
    stage.says(&boss, "says on the tree that three have to come").await?;
    let waiting = [&anna, &bob].map(|actor| {
        let barrier = SizedBarrier::new(&actor.client, "/trip");
        meanwhile(async move { barrier.enter().await })
    });
    stage.until_created("-member").await?;
    stage.until_created("-member").await?;
    stage.tells("two are here").await?;
    SizedBarrier::new(&boss.client, "/trip").set_size(2).await?;
    stage.says(&boss, "has heard that the third one is ill").await?;
    let mut inside = Vec::new();
    for entering in waiting {
        inside.push(done(entering).await?);
    }
    stage.tells("off they go").await?;
    Ok(())
}

pub async fn cyclic(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    for _ in 0..2 {
        let annas = CyclicBarrier::new(&anna.client, "/step", 2)?;
        let annas = meanwhile(async move { annas.wait().await });
        let arrival = CyclicBarrier::new(&bob.client, "/step", 2)?.wait().await?;
        done(annas).await?;
        stage.tells(format!("both have done their part of round {}", arrival.round)).await?;
    }
    Ok(())
}

pub async fn count_down(stage: &mut Stage) -> Result<()> {
    let (starter, anna, bob) =
        (stage.enter("starter").await?, stage.enter("anna").await?, stage.enter("bob").await?);
    let latch = CountDownLatch::new(&starter.client, "/ready", 2)?;
    let waiting = meanwhile({
        let latch = latch.clone();
        async move { latch.wait().await }
    });
    for actor in [&anna, &bob] {
        let left =
            CountDownLatch::new(&actor.client, "/ready", 2)?.count_down_as(actor.name).await?;
        stage.says(actor, format!("is ready; {left} missing")).await?;
    }
    done(waiting).await?;
    stage.says(&starter, "goes").await?;
    latch.remove().await?;
    Ok(())
}
