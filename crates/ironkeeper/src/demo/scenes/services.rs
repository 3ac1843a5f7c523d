//! Demos of services: discovery, load balancing, and the master-worker recipe.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use ironkeeper_recipes::master_worker::{Master, Outcome, Tasks, Worker};
use ironkeeper_recipes::service::balance::{
    Balance, LeastConnections, Random, RoundRobin, SourceHash, Sticky, WeightedRandom,
    WeightedRoundRobin,
};
use ironkeeper_recipes::service::{
    ServiceCache, ServiceDiscovery, ServiceInstance, ServiceProvider,
};

use crate::demo::stage::Stage;

pub async fn discovery(stage: &mut Stage) -> Result<()> {
    let (one, two, user) =
        (stage.enter("web-1").await?, stage.enter("web-2").await?, stage.enter("user").await?);
    let instance = |port| ServiceInstance::new("web").with_address("10.0.0.1").with_port(port);
    let first = ServiceDiscovery::new(&one.client, "/services").register(instance(8001)).await?;
    let _second = ServiceDiscovery::new(&two.client, "/services").register(instance(8002)).await?;
    stage.tells("two instances, in Curator's layout").await?;
    let discovery = ServiceDiscovery::new(&user.client, "/services");
    let web: ServiceProvider = discovery.provider("web").rule(RoundRobin::new()).open().await?;
    let mut ports = Vec::new();
    for _ in 0..4 {
        ports.push(web.choose().and_then(|chosen| chosen.port).context("no instance")?);
    }
    stage.says(&user, format!("goes round: {ports:?}")).await?;
    first.unregister().await?;
    stage.says(&one, "is taken out of service").await?;
    stage.kill(&two).await?;
    let left = discovery.instances("web").await?.len();
    stage.says(&user, format!("finds {left} instances")).await?;
    Ok(())
}

pub async fn cache(stage: &mut Stage) -> Result<()> {
    let (web, user) = (stage.enter("web").await?, stage.enter("user").await?);
    let cache: ServiceCache = ServiceDiscovery::new(&user.client, "/services").cache("web").await?;
    let mut changes = cache.changes();
    stage.says(&user, format!("knows of {} instances, in memory", cache.instances().len())).await?;
    let instance = ServiceInstance::new("web").with_port(8001);
    let _registration = ServiceDiscovery::new(&web.client, "/services").register(instance).await?;
    let now = changes.next().await.context("the session is over")?;
    stage.says(&user, format!("is told of the first one: {now:?}", now = ports(&now))).await?;
    Ok(())
}

fn ports(instances: &[Arc<ServiceInstance>]) -> Vec<u16> {
    instances.iter().filter_map(|instance| instance.port).collect()
}

pub async fn balancers(stage: &mut Stage) -> Result<()> {
    let user = stage.enter("user").await?;
    let discovery = ServiceDiscovery::new(&user.client, "/services");
    let mut registered = Vec::new();
    for (id, weight) in [("small", 1), ("large", 3)] {
        let instance = ServiceInstance::new("web").with_id(id).with_weight(weight);
        registered.push(discovery.register(instance).await?);
    }
    let instances = discovery.instances("web").await?;
    let rules: [(&str, Box<dyn Balance>); 6] = [
        ("round robin", Box::new(RoundRobin::new())),
        ("random", Box::new(Random::new())),
        ("source hash", Box::new(SourceHash)),
        ("weighted round robin", Box::new(WeightedRoundRobin::new())),
        ("weighted random", Box::new(WeightedRandom::new())),
        ("sticky", Box::new(Sticky::new(Random::new()))),
    ];
    for (name, rule) in rules {
        let mut chosen: BTreeMap<String, u32> = BTreeMap::new();
        for _ in 0..100 {
            let instance = rule.choose(&instances, user.name).context("no instance")?;
            *chosen.entry(instance.id.clone()).or_default() += 1;
        }
        stage.says(&user, format!("chooses a hundred times by {name}: {chosen:?}")).await?;
    }
    Ok(())
}

pub async fn least_connections(stage: &mut Stage) -> Result<()> {
    let user = stage.enter("user").await?;
    let discovery = ServiceDiscovery::new(&user.client, "/services");
    let _one = discovery.register(ServiceInstance::new("web").with_port(8001)).await?;
    let _two = discovery.register(ServiceInstance::new("web").with_port(8002)).await?;
    let least = LeastConnections::open(&user.client, "/services", "web").await?;
    let web = discovery.provider("web").rule(least.clone()).open().await?;
    let first = least.connect(&web.candidates()).context("no instance")?;
    let second = least.connect(&web.candidates()).context("no instance")?;
    let ports = [&first, &second].map(|connection| connection.instance().port);
    stage
        .says(&user, format!("has two connections, to {ports:?}: the counts are in the tree"))
        .await?;
    Ok(())
}

pub async fn master_worker(stage: &mut Stage) -> Result<()> {
    let (boss, anna, bob) =
        (stage.enter("boss").await?, stage.enter("anna").await?, stage.enter("bob").await?);
    let master = Master::start(&boss.client, "/jobs", "boss").await?;
    let annas = Worker::join(&anna.client, "/jobs", "anna", 1).await?;
    let task = Tasks::open(&boss.client, "/jobs").await?.submit("2 + 3").await?;
    let assignment = annas.next().await?;
    stage.says(&anna, "has got the task").await?;
    let bobs = Worker::join(&bob.client, "/jobs", "bob", 1).await?;
    stage.kill(&anna).await?;
    drop(assignment);
    let assignment = bobs.next().await?;
    stage.says(&bob, "has got it instead").await?;
    assignment.done("5").await?;
    match task.outcome().await? {
        Outcome::Done { result, .. } => {
            let result = String::from_utf8_lossy(&result).into_owned();
            stage.says(&boss, format!("has the result: {result}")).await?;
        }
        other => bail!("the task has ended as {other:?}"),
    }
    task.forget().await?;
    master.close().await?;
    Ok(())
}
