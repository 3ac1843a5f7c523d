//! Connections counted across all clients.

use std::sync::Arc;

use ironkeeper_client::{Client, CreateMode};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::service::ServiceInstance;
use ironkeeper_recipes::service::balance::{Balance, LeastConnections};
use ironkeeper_testing::Direction;

use crate::world::{World, children, until_children, with_every_cut};

const COUNTS: &str = "/services.connections/web";

async fn open(client: &Client) -> LeastConnections {
    LeastConnections::open(client, "/services", "web").await.unwrap()
}

fn instances(ids: &[&str]) -> Vec<Arc<ServiceInstance>> {
    ids.iter().map(|id| Arc::new(ServiceInstance::new("web").with_id(*id))).collect()
}

/// Waits until the counts are `expected`, as in "a=2 b=1". One check per round trip.
async fn until_counts(client: &Client, least: &LeastConnections, expected: &str) {
    loop {
        let counts: Vec<String> =
            least.counts().iter().map(|(id, count)| format!("{id}={count}")).collect();
        if counts.join(" ") == expected {
            return;
        }
        client.exists("/").await.unwrap();
    }
}

#[tokio::test]
async fn connections_of_all_clients_are_spread_over_all_instances() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (here, there) = (open(&one).await, open(&two).await);
    let all = instances(&["a", "b", "c"]);
    let mut ours = Vec::new();
    for _ in 0..4 {
        ours.push(here.connect(&all).unwrap());
    }
    until_counts(&two, &there, "a=2 b=1 c=1").await;
    // The other client connects to the instances with fewer connections.
    let theirs = [there.connect(&all).unwrap(), there.connect(&all).unwrap()];
    assert_eq!(there.counts().values().collect::<Vec<_>>(), [&2, &2, &2]);
    until_counts(&one, &here, "a=2 b=2 c=2").await;
    // An instance with one connection fewer gets the next one.
    ours.retain(|connection| connection.instance().id != "c");
    until_counts(&two, &there, "a=2 b=2 c=1").await;
    assert_eq!(there.choose(&all, "").unwrap().id, "c");
    assert_eq!(there.choose(&all[..2], "").unwrap().id, "a");
    assert!(there.connect(&[]).is_none());
    drop(theirs);
}

#[tokio::test]
async fn the_connections_of_a_dead_client_do_not_count() {
    let world = World::start().await;
    let (one, two) = (world.client().await, world.client().await);
    let (here, there) = (open(&one).await, open(&two).await);
    let all = instances(&["a", "b"]);
    let _lost: Vec<_> = (0..3).map(|_| here.connect(&all).unwrap()).collect();
    until_counts(&two, &there, "a=2 b=1").await;
    // Other nodes do not count.
    two.create(&format!("{COUNTS}/readme"), "text", CreateMode::Persistent).await.unwrap();
    world.end_session(&one).await;
    until_counts(&two, &there, "").await;
}

/// Waits until the only node with counts has this data.
async fn until_written(client: &Client, expected: &str) {
    let names = children(client, COUNTS).await;
    assert_eq!(names.len(), 1);
    let path = format!("{COUNTS}/{}", names[0]);
    loop {
        let (node, watch) = client.get_and_watch(&path).await.unwrap();
        if node.data == expected {
            return;
        }
        watch.await.unwrap();
    }
}

#[tokio::test]
async fn a_count_survives_every_lost_request_and_reply() {
    let world = World::start().await;
    let watching = world.client().await;
    let all = instances(&["a"]);
    for direction in [Direction::ToServer, Direction::ToClient] {
        with_every_cut(&world, direction, |client, _| {
            let (watching, all) = (&watching, &all);
            async move {
                let here = open(&client).await;
                let connections = [here.connect(all).unwrap(), here.connect(all).unwrap()];
                until_written(watching, r#"{"a":2}"#).await;
                drop(connections);
                until_written(watching, "{}").await;
                drop(here);
                until_children(watching, COUNTS, 0).await;
            }
        })
        .await;
    }
}

#[tokio::test]
async fn services_at_the_root_have_no_place_beside_them() {
    let world = World::start().await;
    let client = world.client().await;
    let refused = LeastConnections::open(&client, "/", "web").await.unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}
