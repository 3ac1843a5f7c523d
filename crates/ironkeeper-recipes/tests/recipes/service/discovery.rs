//! Registration, lookup and unregistration.

use ironkeeper_client::{CreateMode, ErrorKind, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::service::{
    Registration, ServiceChanges, ServiceDiscovery, ServiceInstance, ServiceType,
};
use ironkeeper_testing::Direction;

use crate::world::watch_events::counted;
use crate::world::{World, children, drop_after_polls, until_children, with_every_cut};

const PATH: &str = "/services";
const WEB: &str = "/services/web";

fn instance(id: &str, port: u16) -> ServiceInstance {
    ServiceInstance::new("web").with_id(id).with_port(port)
}

async fn ports(changes: &mut ServiceChanges) -> Vec<u16> {
    let instances = changes.next().await.expect("they are followed");
    instances.iter().filter_map(|instance| instance.port).collect()
}

/// Waits until the instances have these ports.
async fn until_ports(changes: &mut ServiceChanges, expected: &[u16]) {
    while ports(changes).await != expected {}
}

#[tokio::test]
async fn an_instance_is_found_by_its_name_and_id_until_it_is_unregistered() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (here, there) = (ServiceDiscovery::new(&one, PATH), ServiceDiscovery::new(&two, PATH));
    assert_eq!(there.names().await.unwrap(), [""; 0]);
    let mut registration = here.register(instance("a", 80)).await.unwrap();
    let _other = here.register(ServiceInstance::new("mail")).await.unwrap();

    assert_eq!(there.names().await.unwrap(), ["mail", "web"]);
    let found = there.instances("web").await.unwrap();
    assert_eq!(&*found[0], registration.instance());
    assert_eq!(registration.node().unwrap(), format!("{WEB}/a"));
    let node = two.get(&format!("{WEB}/a")).await.unwrap();
    assert_eq!(node.stat.ephemeral_owner, one.session_id().0);

    registration.update(instance("a", 81).disabled()).await.unwrap();
    let found = there.instance("web", "a").await.unwrap().unwrap();
    assert_eq!((found.port, found.enabled), (Some(81), false));
    registration.unregister().await.unwrap();
    assert_eq!(there.instance("web", "a").await.unwrap(), None);
    assert!(there.instances("web").await.unwrap().is_empty());
}

#[tokio::test]
async fn a_cache_tells_of_every_instance_that_comes_changes_and_goes() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let discovery = ServiceDiscovery::new(&one, PATH);
    let cache = ServiceDiscovery::new(&two, PATH).cache("web").await.unwrap();
    assert_eq!(cache.path(), WEB);
    let mut changes = cache.changes();
    let mut a = discovery.register(instance("a", 1)).await.unwrap();
    assert_eq!(ports(&mut changes).await, [1]);
    let b = discovery.register(instance("b", 2)).await.unwrap();
    assert_eq!(ports(&mut changes).await, [1, 2]);
    a.update(instance("a", 3)).await.unwrap();
    assert_eq!(ports(&mut changes).await, [3, 2]);
    assert_eq!(cache.instance("b").unwrap().port, Some(2));
    drop(a);
    assert_eq!(ports(&mut changes).await, [2]);
    // A node that is not an instance is ignored.
    one.create(&format!("{WEB}/readme"), "text", CreateMode::Persistent).await.unwrap();
    let _c = discovery.register(instance("c", 4)).await.unwrap();
    assert_eq!(ports(&mut changes).await, [2, 4]);
    assert_eq!(discovery.instances("web").await.unwrap().len(), 2);
    // The last known instances stay after the end of the session.
    world.end_session(&two).await;
    while changes.next().await.is_some() {}
    assert!(!cache.is_followed());
    assert_eq!(cache.instances().len(), 2);
    drop(b);
}

#[tokio::test]
async fn an_instance_that_comes_or_goes_is_one_watch_event_at_a_cache() {
    let world = World::start().await;
    let client = world.client().await;
    let (watching, events) = counted(&world).await;
    let discovery = ServiceDiscovery::new(&client, PATH);
    // Creates the parent first, so that the parent is not counted.
    let _first = discovery.register(instance("first", 1)).await.unwrap();
    let cache = ServiceDiscovery::new(&watching, PATH).cache("web").await.unwrap();
    let mut changes = cache.changes();
    let before = events.count();
    let second = discovery.register(instance("second", 2)).await.unwrap();
    assert_eq!(ports(&mut changes).await, [1, 2]);
    second.unregister().await.unwrap();
    assert_eq!(ports(&mut changes).await, [1]);
    watching.sync("/").await.unwrap();
    // A recursive watch reports the child itself, and not also NodeChildrenChanged of the parent.
    assert_eq!(events.count() - before, 2);
}

#[tokio::test]
async fn an_id_that_a_dead_process_left_behind_is_taken_over_at_once() {
    let world = World::start().await;
    let (old, new) = (world.client().await, world.client().await);
    let left = ServiceDiscovery::new(&old, PATH).register(instance("a", 1)).await.unwrap();
    let taken = ServiceDiscovery::new(&new, PATH).register(instance("a", 2)).await.unwrap();
    let owner = async || new.get(&format!("{WEB}/a")).await.unwrap().stat.ephemeral_owner;
    assert_eq!(owner().await, new.session_id().0);
    // The old session is still open. It leaves the new node alone, and registers again when the
    // id is free.
    old.sync(WEB).await.unwrap();
    assert_eq!(owner().await, new.session_id().0);
    let cache = ServiceDiscovery::new(&new, PATH).cache("web").await.unwrap();
    let mut changes = cache.changes();
    taken.unregister().await.unwrap();
    until_ports(&mut changes, &[1]).await;
    assert_eq!(owner().await, old.session_id().0);
    left.unregister().await.unwrap();
}

#[tokio::test]
async fn a_static_instance_stays_until_somebody_unregisters_it() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let discovery = ServiceDiscovery::new(&two, PATH);
    for service_type in [ServiceType::Static, ServiceType::Permanent] {
        let fixed = instance("fixed", 1).with_type(service_type);
        let registration = ServiceDiscovery::new(&one, PATH).register(fixed.clone()).await.unwrap();
        drop(registration);
        let again = discovery.register(fixed.clone()).await.unwrap();
        assert_eq!(discovery.instance("web", "fixed").await.unwrap(), Some(fixed.clone()));
        again.unregister().await.unwrap();
        assert_eq!(children(&one, WEB).await, [""; 0]);
        drop(discovery.register(fixed).await.unwrap());
        assert!(discovery.unregister("web", "fixed").await.unwrap());
        assert!(!discovery.unregister("web", "fixed").await.unwrap());
    }
}

#[tokio::test]
async fn sequential_instances_may_share_an_id() {
    let world = World::start().await;
    let client = world.client().await;
    let discovery = ServiceDiscovery::new(&client, PATH);
    let many = |port| instance("same", port).with_type(ServiceType::DynamicSequential);
    let one = discovery.register(many(1)).await.unwrap();
    let _two = discovery.register(many(2)).await.unwrap();
    assert_eq!(discovery.instances("web").await.unwrap().len(), 2);
    one.unregister().await.unwrap();
    assert_eq!(discovery.instances("web").await.unwrap()[0].port, Some(2));
}

#[tokio::test]
async fn curator_53_97_an_instance_deleted_during_an_outage_is_announced_again() {
    let world = World::start().await;
    let watching = world.client().await;
    let (proxy, client) = world.proxied().await;
    let registration: Registration =
        ServiceDiscovery::new(&client, PATH).register(instance("a", 1)).await.unwrap();
    let cache = ServiceDiscovery::new(&watching, PATH).cache("web").await.unwrap();
    let mut changes = cache.changes();
    proxy.refuse();
    proxy.cut();
    watching.delete(&format!("{WEB}/a"), Version::Any).await.unwrap();
    assert_eq!(ports(&mut changes).await, [0_u16; 0]);
    proxy.heal().unwrap();
    assert_eq!(ports(&mut changes).await, [1]);
    registration.unregister().await.unwrap();
}

#[tokio::test]
async fn curator_163_388_a_service_that_went_away_empty_comes_back_with_its_next_instance() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let discovery = ServiceDiscovery::new(&client, PATH);
    let cache = ServiceDiscovery::new(&watching, PATH).cache("web").await.unwrap();
    let mut changes = cache.changes();
    for port in [1, 2] {
        let here = discovery.register(instance("a", port)).await.unwrap();
        until_ports(&mut changes, &[port]).await;
        here.unregister().await.unwrap();
        until_ports(&mut changes, &[]).await;
        // As the server does with an empty container, unless it has done so already.
        if let Err(error) = client.delete(WEB, Version::Any).await {
            assert_eq!(error.kind(), ErrorKind::NoNode, "{error}");
        }
        assert_eq!(discovery.names().await.unwrap(), [""; 0]);
    }
}

#[tokio::test]
async fn at_the_end_of_the_session_the_registration_ends_with_a_reason() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let registration =
        ServiceDiscovery::new(&client, PATH).register(instance("a", 1)).await.unwrap();
    let ended = registration.ended();
    world.end_session(&client).await;
    assert!(ended.await.is_session_over());
    until_children(&watching, WEB, 0).await;
    let refused = ServiceDiscovery::new(&client, PATH).register(instance("b", 1)).await;
    assert!(refused.unwrap_err().is_session_over());
}

#[tokio::test]
async fn every_lost_request_and_reply_leaves_one_instance_and_then_none() {
    let world = World::start().await;
    let watching = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let watching = watching.clone();
            async move {
                let discovery = ServiceDiscovery::new(&client, PATH);
                let mut here = discovery.register(instance("a", 1)).await.unwrap();
                here.update(instance("a", 2)).await.unwrap();
                let found = ServiceDiscovery::new(&watching, PATH).instances("web").await.unwrap();
                assert_eq!((found.len(), found[0].port), (1, Some(2)));
                here.unregister().await.unwrap();
                assert_eq!(children(&watching, WEB).await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_take_over_survives_every_lost_request_and_reply() {
    let world = World::start().await;
    let old = world.client().await;
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let old = old.clone();
            async move {
                let path = format!("{WEB}/a");
                old.create_recursive(&path, "", CreateMode::Ephemeral).await.unwrap();
                let discovery = ServiceDiscovery::new(&client, PATH);
                let here = discovery.register(instance("a", 1)).await.unwrap();
                let stat = old.exists(&path).await.unwrap().unwrap();
                assert_eq!(stat.ephemeral_owner, client.session_id().0);
                here.unregister().await.unwrap();
                assert_eq!(children(&old, WEB).await, [""; 0]);
            }
        })
        .await;
    }
}

#[tokio::test]
async fn a_registration_dropped_at_any_await_leaves_nothing() {
    let world = World::start().await;
    let (client, watching) = (world.client().await, world.client().await);
    let discovery = ServiceDiscovery::new(&client, PATH);
    for polls in 0.. {
        let registering = discovery.register(instance(&format!("a-{polls}"), 1));
        let done = drop_after_polls(registering, polls).await;
        let is_done = done.is_some();
        drop(done);
        until_children(&watching, WEB, 0).await;
        if is_done {
            break;
        }
    }
}

#[tokio::test]
async fn names_and_updates_that_make_no_sense_are_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let discovery = ServiceDiscovery::new(&client, PATH);
    for wrong in [instance("a/b", 1), instance("", 1), ServiceInstance::new("a/b")] {
        let refused = discovery.register(wrong).await.unwrap_err();
        assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
    }
    let mut here = discovery.register(instance("a", 1)).await.unwrap();
    let refused = here.update(instance("b", 1)).await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}
