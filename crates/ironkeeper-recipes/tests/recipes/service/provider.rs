//! The choice among registered instances.

use std::collections::BTreeSet;
use std::time::Duration;

use ironkeeper_recipes::service::balance::{Sticky, WeightedRoundRobin};
use ironkeeper_recipes::service::{
    DownInstancePolicy, ServiceDiscovery, ServiceInstance, ServiceProvider,
};
use serde_json::json;

use crate::world::World;

fn instance(id: &str) -> ServiceInstance {
    ServiceInstance::new("web").with_id(id)
}

fn chosen(provider: &ServiceProvider, count: usize) -> Vec<String> {
    (0..count).map(|_| provider.choose().unwrap().id.clone()).collect()
}

#[tokio::test]
async fn an_instance_with_errors_is_left_alone_until_it_registers_again() {
    let world = World::start().await;
    let client = world.client().await;
    let discovery = ServiceDiscovery::new(&client, "/services");
    let _a = discovery.register(instance("a").registered_at(1)).await.unwrap();
    let mut b = discovery.register(instance("b").registered_at(1)).await.unwrap();
    let policy = DownInstancePolicy::new(2, Duration::from_secs(3600));
    let web = discovery.provider("web").down_policy(policy).open().await.unwrap();
    assert_eq!(chosen(&web, 3), ["a", "b", "a"]);
    let bad = web.cache().instance("b").unwrap();
    web.note_error(&bad);
    assert_eq!(chosen(&web, 2), ["b", "a"]);
    web.note_error(&bad);
    assert_eq!(chosen(&web, 3), ["a", "a", "a"]);
    let mut changes = web.cache().changes();
    b.update(instance("b").registered_at(2)).await.unwrap();
    changes.next().await.unwrap();
    assert_eq!(chosen(&web, 2), ["b", "a"]);
}

#[tokio::test]
async fn filters_and_disabled_instances_are_heeded() {
    let world = World::start().await;
    let client = world.client().await;
    let discovery = ServiceDiscovery::new(&client, "/services");
    let in_zone = |id: &str, zone: &str| instance(id).with_payload(json!({ "zone": zone }));
    let _a = discovery.register(in_zone("a", "east")).await.unwrap();
    let mut b = discovery.register(in_zone("b", "west")).await.unwrap();
    let mut web = discovery
        .provider("web")
        .filter(|instance| {
            instance.payload.as_ref().is_some_and(|payload| payload["zone"] == "west")
        })
        .open()
        .await
        .unwrap();
    assert_eq!(chosen(&web, 2), ["b", "b"]);
    let mut changes = web.cache().changes();
    b.update(in_zone("b", "west").disabled()).await.unwrap();
    changes.next().await.unwrap();
    assert!(web.choose().is_none());
    web = discovery.provider("nothing").open().await.unwrap();
    assert!(web.choose_for("anybody").is_none());
}

#[tokio::test]
async fn weights_and_stickiness_work_on_what_is_registered() {
    let world = World::start().await;
    let client = world.client().await;
    let discovery = ServiceDiscovery::new(&client, "/services");
    let weighted = |id: &str, weight: u32| instance(id).with_weight(weight);
    let a = discovery.register(weighted("a", 2)).await.unwrap();
    let _b = discovery.register(weighted("b", 1)).await.unwrap();
    let web = discovery.provider("web").rule(WeightedRoundRobin::new()).open().await.unwrap();
    assert_eq!(chosen(&web, 3), ["a", "b", "a"]);
    let rule = Sticky::new(WeightedRoundRobin::new());
    let sticky = discovery.provider("web").rule(rule).open().await.unwrap();
    assert_eq!(BTreeSet::from_iter(chosen(&sticky, 5)).len(), 1);
    let mut changes = sticky.cache().changes();
    a.unregister().await.unwrap();
    changes.next().await.unwrap();
    assert_eq!(chosen(&sticky, 2), ["b", "b"]);
}
