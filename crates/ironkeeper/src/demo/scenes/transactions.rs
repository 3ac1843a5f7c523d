//! Demos of configuration, models and transactions.

use anyhow::{Context, Result, bail, ensure};
use ironkeeper_client::CreateMode;
use ironkeeper_recipes::config::{Config, Update};
use ironkeeper_recipes::model::{
    CachedModel, Migration, MigrationSet, Migrator, Model, Modeled, Schema, SchemaClient,
    SchemaSet, Text,
};
use ironkeeper_recipes::stm::Memory;

use crate::demo::stage::Stage;

pub async fn config(stage: &mut Stage) -> Result<()> {
    let (ops, app) = (stage.enter("ops").await?, stage.enter("app").await?);
    let apps = Config::open(&app.client, "/shop").await?;
    let mut changes = apps.changes();
    let opss = Config::open(&ops.client, "/shop").await?;
    opss.publish(&Update::new().set("limit", 20).set("mode", "fast").by("ops")).await?;
    stage.says(&ops, "publishes two values in one transaction").await?;
    let now = changes.next().await.context("the session is over")?;
    let limit = now.get::<u32>("limit")?;
    stage.says(&app, format!("sees both or none: limit {limit:?}")).await?;
    opss.publish(&Update::new().set("limit", 2).because("a typing error")).await?;
    opss.roll_back_to(1).await?;
    let revisions = opss.history().await?.len();
    stage
        .says(&ops, format!("goes back to the first; {revisions} revisions are on record"))
        .await?;
    Ok(())
}

pub async fn memory(stage: &mut Stage) -> Result<()> {
    let bank = stage.enter("bank").await?;
    let memory = Memory::open(&bank.client, "/bank").await?;
    memory.atomically(|now| async move { now.put_as("/bank/anna", &100).await }).await?;
    let left: u32 = memory
        .atomically(|now| async move {
            let anna: u32 = now.get_as("/bank/anna").await?.unwrap_or(0);
            let bob: u32 = now.get_as("/bank/bob").await?.unwrap_or(0);
            now.put_as("/bank/anna", &(anna - 30)).await?;
            now.put_as("/bank/bob", &(bob + 30)).await?;
            Ok(anna - 30)
        })
        .await?;
    stage.says(&bank, format!("has moved 30, with all versions checked; {left} are left")).await?;
    Ok(())
}

pub async fn models(stage: &mut Stage) -> Result<()> {
    let app = stage.enter("app").await?;
    let limits: Model<u32> = Model::new("/limits/{name}", Text)?;
    let users: Modeled<u32> = limits.at(&app.client, &["users"])?;
    users.write(&7).await?;
    let read = users.read().await?.context("it was just written")?;
    stage.says(&app, format!("has written a number and reads a number: {}", read.value)).await?;
    let first = Migration::new("the shop").create("/shop", "").create("/shop/orders", "");
    let migrator = Migrator::new(&app.client, "/migrations/lock");
    let set = MigrationSet::new("/migrations/shop").then(first);
    let applied = [migrator.migrate(&set).await?.len(), migrator.migrate(&set).await?.len()];
    stage.says(&app, format!("migrates twice; steps applied: {applied:?}")).await?;
    Ok(())
}

pub async fn cached_model(stage: &mut Stage) -> Result<()> {
    let (app, ops) = (stage.enter("app").await?, stage.enter("ops").await?);
    let limits: Model<u32> = Model::new("/limits/{name}", Text)?;
    limits.at(&ops.client, &["users"])?.write(&7).await?;
    let followed: CachedModel<u32> = limits.follow(&app.client, &[]).await?;
    let users = followed.get("users").context("it was written")?;
    stage.says(&app, format!("has all limits in memory, as numbers: users {users}")).await?;
    let mut changes = followed.changes();
    ops.client.set("/limits/users", "many", ironkeeper_client::Version::Any).await?;
    let now = changes.next().await.context("the session is over")?;
    stage.says(&ops, "writes what is no number").await?;
    let malformed: Vec<&String> = now.malformed.keys().collect();
    stage.says(&app, format!("is told which one is malformed: {malformed:?}")).await?;
    Ok(())
}

pub async fn schemas(stage: &mut Stage) -> Result<()> {
    let app = stage.enter("app").await?;
    let is_number = |_: &str, data: &[u8]| match data.iter().all(u8::is_ascii_digit) {
        true => Ok(()),
        false => Err("it is no number".to_owned()),
    };
    let rules = SchemaSet::new().with(Schema::new("limits", "/limits/*")?.data(is_number)).strict();
    let client = SchemaClient::new(&app.client, rules);
    app.client.create("/limits", "", CreateMode::Persistent).await?;
    client.create("/limits/users", "7", CreateMode::Persistent)?.await?;
    stage.says(&app, "has written what the rules allow").await?;
    let Err(refused) = client.create("/limits/rooms", "many", CreateMode::Persistent) else {
        bail!("a rule was broken")
    };
    ensure!(app.client.exists("/limits/rooms").await?.is_none(), "it has reached the server");
    stage.says(&app, format!("is refused before anything is sent: {refused}")).await?;
    Ok(())
}
