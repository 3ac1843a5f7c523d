//! Demos of names and ids.

use anyhow::{Result, ensure};
use ironkeeper_recipes::naming::{NameService, SegmentIds, SequentialIds, Snowflake, Uuid};

use crate::demo::stage::Stage;

pub async fn names(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    let annas = NameService::new(&anna.client, "/names")?;
    ensure!(annas.bind("db/orders", "10.0.0.1:5432").await?, "the name was taken");
    stage.says(&anna, "binds a name").await?;
    let bobs = NameService::new(&bob.client, "/names")?;
    ensure!(!bobs.bind("db/orders", "10.0.0.2:5432").await?, "a name was bound twice");
    let address = bobs.lookup("db/orders").await?.unwrap_or_default();
    let address = String::from_utf8_lossy(&address).into_owned();
    stage.says(&bob, format!("cannot have it, and reads what it means: {address}")).await?;
    Ok(())
}

pub async fn ids(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let orders = SequentialIds::new(&anna.client, "/orders");
    let drawn = [orders.next().await?, orders.next().await?];
    stage.says(&anna, format!("has drawn {drawn:?}: the server counts")).await?;
    let users = SegmentIds::new(&anna.client, "/users", 1000)?;
    let drawn = [users.next().await?, users.next().await?, users.next().await?];
    stage.says(&anna, format!("has drawn {drawn:?} of a block of 1000")).await?;
    Ok(())
}

pub async fn snowflake(stage: &mut Stage) -> Result<()> {
    let (anna, bob) = (stage.enter("anna").await?, stage.enter("bob").await?);
    for actor in [&anna, &bob] {
        let ids = Snowflake::lease(&actor.client, "/snowflake").await?;
        let id = ids.next().await?;
        let worker = ids.worker();
        stage.says(actor, format!("is worker {worker} and makes {id} without asking")).await?;
    }
    Ok(())
}

pub async fn uuids(stage: &mut Stage) -> Result<()> {
    let anna = stage.enter("anna").await?;
    let id = Uuid::random();
    let again: Uuid = id.to_string().parse()?;
    ensure!(again == id && Uuid::random() != id, "an id that is not unique");
    stage
        .says(&anna, format!("makes {id} without asking anybody, and nobody makes it again"))
        .await?;
    Ok(())
}
