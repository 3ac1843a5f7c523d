//! The programs in `examples/` work as documented.

use std::collections::BTreeMap;

use ironkeeper_recipes::config::Config;
use ironkeeper_recipes::election::{Election, LeaderObserver};
use ironkeeper_recipes::queue::WorkQueue;
use ironkeeper_recipes::service::{ServiceDiscovery, ServiceInstance};

use crate::world::World;

/// Includes the functions of an example; its `main` is not called.
macro_rules! example {
    ($name:ident, $path:literal) => {
        #[path = $path]
        #[allow(dead_code, reason = "main is not called")]
        mod $name;
    };
}

example!(config, "../../../examples/config.rs");
example!(discovery, "../../../examples/discovery.rs");
example!(leader, "../../../examples/leader.rs");
example!(mutex, "../../../examples/mutex.rs");
example!(queue, "../../../examples/queue.rs");

/// Compiling the programs here cannot check this: in this workspace tokio has all features.
#[test]
fn readmes_name_the_features_of_tokio_that_their_programs_need() {
    for (readme, feature) in [
        (include_str!("../../../../../README.md"), "rt-multi-thread"),
        (include_str!("../../../README.md"), "rt-multi-thread"),
        (include_str!("../../../../ironkeeper-client/README.md"), "rt-multi-thread"),
        // `#[tokio::test]` has one thread.
        (include_str!("../../../../ironkeeper-testing/README.md"), "rt"),
    ] {
        let needed = format!(r#"tokio = {{ version = "1", features = ["macros", "{feature}"] }}"#);
        assert_eq!(readme.matches("tokio = {").count(), 1);
        assert!(readme.contains(&needed), "{readme}");
        assert!(!readme.contains(r#" = "0.1""#), "the crates are not on a registry");
    }
}

#[tokio::test]
async fn mutex_writes_reports_with_growing_tokens() {
    let world = World::start().await;
    let server = world.connect_string();
    let (one, two) = tokio::join!(mutex::write_report(&server), mutex::write_report(&server));
    let (one, two) = (one.unwrap(), two.unwrap());
    let third = mutex::write_report(&server).await.unwrap();
    assert!(one != two && third > one.max(two), "{one} {two} {third}");
}

#[tokio::test]
async fn leader_leads_again_after_its_session_was_lost() {
    let world = World::start().await;
    let (server, client) = (world.connect_string(), world.client().await);
    let _candidate = tokio::task::JoinSet::from_iter([async move {
        leader::take_part(&server, "candidate").await;
    }]);
    let mut leaders = LeaderObserver::new(&client, "/examples/leader", Election::Latch);
    let mut next_leader = async || loop {
        if let Some(leader) = leaders.next().await.unwrap() {
            break leader;
        }
    };
    let first = next_leader().await;
    world.end_session_by(first.session, first.session.password()).await;
    let second = next_leader().await;
    assert_eq!((first.id(), second.id()), ("candidate".to_owned(), "candidate".to_owned()));
    assert_ne!(first.session, second.session);
    assert!(second.czxid > first.czxid);
}

#[tokio::test]
async fn config_publishes_what_it_is_given() {
    let world = World::start().await;
    let client = world.client().await;
    let store = Config::open(&client, "/examples/config").await.unwrap();
    let values = ["limit.max=20".to_owned(), "mode=fast".to_owned()];
    config::publish(&store, &values).await.unwrap();
    assert_eq!(store.current().get::<u32>("limit.max").unwrap(), Some(20));
    assert_eq!(store.history().await.unwrap().len(), 1);
    config::publish(&store, &["nonsense".to_owned()]).await.unwrap_err();
}

#[tokio::test]
async fn discovery_sends_requests_by_weight() {
    let world = World::start().await;
    let client = world.client().await;
    let services = ServiceDiscovery::new(&client, "/examples/services");
    let mut registered = Vec::new();
    for (port, weight) in [(8001, 5), (8002, 1), (8003, 1)] {
        let web = ServiceInstance::new("web").with_port(port).with_weight(weight);
        registered.push(services.register(web).await.unwrap());
    }
    let sent = discovery::send_requests(&services, 70).await.unwrap();
    assert_eq!(sent, BTreeMap::from([(8001, 50), (8002, 10), (8003, 10)]));
}

#[tokio::test]
async fn queue_works_on_orders_in_their_order() {
    let world = World::start().await;
    let client = world.client().await;
    let orders = WorkQueue::new(&client, "/examples/queue").unwrap();
    orders.put("tea").await.unwrap();
    orders.put("milk").await.unwrap();
    assert_eq!(queue::work(&orders).await.unwrap(), ["tea"]);
    assert_eq!(queue::work(&orders).await.unwrap(), ["milk"]);
    assert!(orders.is_empty().await.unwrap());
}
