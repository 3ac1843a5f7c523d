//! Demos of elections.

use anyhow::{Context, Result, bail};
use ironkeeper_recipes::election::{
    Election, ElectionEvent, ElectionSupport, LeaderLatch, LeaderObserver, LeaderSelector, Offer,
    StaticElection,
};

use crate::demo::stage::{Stage, done, meanwhile};

pub async fn latch(stage: &mut Stage) -> Result<()> {
    let (anna, bob, fan) =
        (stage.enter("anna").await?, stage.enter("bob").await?, stage.enter("fan").await?);
    let annas = LeaderLatch::start(&anna.client, "/leader", "anna");
    let leadership = annas.leading().await?;
    stage.says(&anna, format!("leads, with token {}", leadership.fencing_token())).await?;
    let mut observer = LeaderObserver::new(&fan.client, "/leader", Election::Latch);
    let leader = observer.next().await?.context("nobody leads")?;
    stage.says(&fan, format!("sees from outside that {} leads", leader.id())).await?;
    let bobs = LeaderLatch::start(&bob.client, "/leader", "bob");
    stage.until_created("latch-0000000001").await?;
    stage.says(&bob, "is the next in line").await?;
    stage.kill(&anna).await?;
    let leadership = bobs.leading().await?;
    stage.says(&bob, format!("leads, with token {}", leadership.fencing_token())).await?;
    let leader = loop {
        if let Some(leader) = observer.next().await? {
            break leader;
        }
    };
    stage.says(&fan, format!("is told that {} leads", leader.id())).await?;
    bobs.close().await?;
    Ok(())
}

pub async fn selector(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let (end, ended) = tokio::sync::oneshot::channel::<()>();
    let (begin, begun) = tokio::sync::oneshot::channel::<()>();
    let annas = LeaderSelector::new(&anna.client, "/leader", "anna");
    let annas = meanwhile(async move {
        let term = |_| async {
            let _ = begin.send(());
            let _ = ended.await;
        };
        annas.lead(term).await
    });
    begun.await?;
    stage.says(&anna, "leads for as long as her function runs").await?;
    let bobs = LeaderSelector::new(&bob.client, "/leader", "bob");
    let bobs = meanwhile(async move { bobs.lead(async |_| "bob's term").await });
    stage.until_created("-0000000001").await?;
    stage.says(&bob, "waits for his turn").await?;
    let _ = end.send(());
    done(annas).await?;
    stage.says(&anna, "has returned, so her term is over").await?;
    let led = done(bobs).await?;
    stage.says(&bob, format!("has led as well: {led:?}")).await?;
    Ok(())
}

pub async fn support(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let mut election = ElectionSupport::start(&anna.client, "/election", "anna");
    while let Some(event) = election.next().await {
        match event {
            ElectionEvent::Failed(error) => return Err(error.into()),
            event => {
                stage.says(&anna, format!("{event:?}").split('(').next().unwrap_or("?")).await?;
                if matches!(event, ElectionEvent::ElectedComplete(_)) {
                    election.stop();
                }
            }
        }
    }
    Ok(())
}

pub async fn static_election(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let Offer::Elected(_guard) =
        StaticElection::new(&anna.client, "/leader", "anna").offer().await?
    else {
        bail!("somebody leads already")
    };
    stage.says(&anna, "was the first to create the node, and leads").await?;
    let bobs = StaticElection::new(&bob.client, "/leader", "bob");
    let Offer::Leader(leader) = bobs.offer().await? else { bail!("two lead") };
    stage.says(&bob, format!("reads in it that {leader} leads, and waits")).await?;
    let waiting = meanwhile(async move { bobs.elected().await });
    stage.kill(&anna).await?;
    let guard = done(waiting).await?;
    stage.says(&bob, "leads").await?;
    guard.release().await?;
    Ok(())
}
