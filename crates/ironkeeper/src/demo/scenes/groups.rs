//! Demos of groups.

use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_recipes::group::{
    CommandListener, Console, GroupEvent, GroupMember, Heartbeat, HeartbeatMonitor, Party,
    ProgressBoard, ProgressReporter, Pulse, SetPartitioner,
};

use crate::demo::stage::{Stage, meanwhile};

pub async fn members(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let annas = GroupMember::join(&anna.client, "/shards", "anna", "10.0.0.1").await?;
    let mut events = annas.events();
    stage.says(&anna, "has joined, with her address").await?;
    let _bobs = GroupMember::join(&bob.client, "/shards", "bob", "10.0.0.2").await?;
    stage.says(&bob, "has joined").await?;
    while let Some(event) = events.next().await {
        stage.says(&anna, format!("is told: {event:?}")).await?;
        match event {
            // Kill bob only after this event: a member that joins and leaves between two reads of
            // the group causes no event.
            GroupEvent::Joined { id, .. } if id == bob.name => stage.kill(&bob).await?,
            GroupEvent::Left { .. } => break,
            _ => {}
        }
    }
    annas.leave().await?;
    Ok(())
}

pub async fn party(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let annas = Party::join(&anna.client, "/party", "anna").await?;
    let bobs = Party::join(&bob.client, "/party", "bob").await?;
    stage.says(&bob, format!("sees {}", bobs.participants().join(" and "))).await?;
    annas.leave().await?;
    bobs.leave().await?;
    Ok(())
}

pub async fn partition(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let shards = ["shard-1", "shard-2", "shard-3"];
    let mut annas = SetPartitioner::join(&anna.client, "/shards", shards, "anna")
        .await?
        .with_settling(Duration::from_millis(10));
    let share = annas.acquire().await?;
    stage.says(&anna, format!("is alone and has {}", share.items().join(", "))).await?;
    let bob = stage.enter("bob").await?;
    let mut bobs = SetPartitioner::join(&bob.client, "/shards", shards, "bob")
        .await?
        .with_settling(Duration::from_millis(10));
    stage.says(&bob, "joins").await?;
    share.ended().await;
    share.release().await?;
    stage.says(&anna, "gives everything back: there is somebody to share with").await?;
    let (annas_share, bobs_share) = tokio::try_join!(annas.acquire(), bobs.acquire())?;
    stage.says(&anna, format!("has {}", annas_share.items().join(", "))).await?;
    stage.says(&bob, format!("has {}", bobs_share.items().join(", "))).await?;
    annas_share.release().await?;
    bobs_share.release().await?;
    Ok(())
}

pub async fn heartbeat(stage: &mut Stage) -> Result<()> {
    let (anna, doctor) = (stage.enter("anna").await?, stage.enter("doctor").await?);
    let patience = Duration::from_secs(30);
    let mut monitor = HeartbeatMonitor::open(&doctor.client, "/workers", patience).await?;
    let annas = Heartbeat::start(&anna.client, "/workers", "anna", "10.0.0.1").await?;
    annas.beat().await?;
    stage.says(&anna, "has beaten once").await?;
    stage.kill(&anna).await?;
    loop {
        let pulse = monitor.next().await.context("the session is over")?;
        stage.says(&doctor, format!("{pulse:?}")).await?;
        if matches!(pulse, Pulse::Dead { .. }) {
            return Ok(());
        }
    }
}

pub async fn progress(stage: &mut Stage) -> Result<()> {
    let (anna, boss) = (stage.enter("anna").await?, stage.enter("boss").await?);
    let reporter = ProgressReporter::start(&anna.client, "/import", "anna", Some(100)).await?;
    reporter.report(40, "reading the third file");
    reporter.finish("all is read").await?;
    let board = ProgressBoard::open(&boss.client, "/import").await?;
    for (who, part) in board.parts() {
        stage.says(&boss, format!("reads: {who}: {}", part.report)).await?;
    }
    Ok(())
}

pub async fn command(stage: &mut Stage) -> Result<()> {
    let (anna, bob, boss) =
        (stage.enter("anna").await?, stage.enter("bob").await?, stage.enter("boss").await?);
    for actor in [&anna, &bob] {
        let mut listener = CommandListener::join(&actor.client, "/commands", actor.name).await?;
        let _listening = meanwhile(async move {
            loop {
                let command = listener.next().await?;
                command.answer("done").await?;
            }
            #[expect(unreachable_code, reason = "the type of the loop's errors")]
            Ok::<(), ironkeeper_recipes::RecipeError>(())
        });
    }
    let sent = Console::open(&boss.client, "/commands").await?.send("reload").await?;
    let answers = sent.collect_within(Duration::from_secs(30)).await?;
    for (who, answer) in answers {
        stage.says(&boss, format!("hears from {who}: {answer:?}")).await?;
    }
    Ok(())
}
