//! Scenes of groups.

use anyhow::Result;
use ironkeeper_recipes::group::{GroupEvent, GroupMember, Party};

use crate::demo::stage::Stage;

pub async fn members(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let annas = GroupMember::join(&anna.client, "/shards", "anna", "10.0.0.1").await?;
    let mut events = annas.events();
    stage.says(&anna, "has joined, with her address").await?;
    let _bobs = GroupMember::join(&bob.client, "/shards", "bob", "10.0.0.2").await?;
    stage.says(&bob, "has joined").await?;
    stage.kill(&bob).await?;
    while let Some(event) = events.next().await {
        stage.says(&anna, format!("is told: {event:?}")).await?;
        if matches!(event, GroupEvent::Left { .. }) {
            break;
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
