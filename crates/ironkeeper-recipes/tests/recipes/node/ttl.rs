//! `TtlNode`.

use std::time::Duration;

use ironkeeper_client::{Client, ErrorKind, Version};
use ironkeeper_recipes::RecipeError;
use ironkeeper_recipes::node::TtlNode;

use crate::world::World;

const PATH: &str = "/ttl/n";
/// So short that on a machine that is suspended for a while the node expires, and is created again
/// shortly after.
const SHORT: Duration = Duration::from_millis(100);
const LONG: Duration = Duration::from_secs(600);

/// Starts a node; `None` if the server does not allow TTL nodes.
async fn started(client: &Client, ttl: Duration) -> Option<TtlNode> {
    let node = TtlNode::start(client, PATH, ttl, "1").unwrap();
    match node.created().await {
        Err(error) if error.kind() == Some(ErrorKind::Unimplemented) => {
            assert!(std::env::var("IRONKEEPER_TEST_SERVER").is_ok(), "{error}");
            None
        }
        other => {
            other.unwrap();
            Some(node)
        }
    }
}

/// Waits until the child `touch` has been written `times` times.
async fn until_renewed(client: &Client, times: i32) {
    let touch = format!("{PATH}/touch");
    loop {
        let (found, watch) = client.exists_and_watch(&touch).await.unwrap();
        if found.is_some_and(|stat| stat.version >= times) {
            return;
        }
        watch.await.unwrap();
    }
}

/// Returns the data of the node, as soon as the node exists.
async fn said(client: &Client) -> bytes::Bytes {
    loop {
        match client.get(PATH).await {
            Ok(node) => return node.data,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoNode),
        }
    }
}

#[tokio::test]
async fn it_is_renewed_again_and_again() {
    let world = World::start().await;
    let client = world.client().await;
    let Some(_node) = started(&client, SHORT).await else { return };
    until_renewed(&client, 5).await;
}

#[tokio::test]
async fn it_says_what_was_set_and_stays_behind() {
    let world = World::start().await;
    let client = world.client().await;
    let Some(node) = started(&client, LONG).await else { return };
    node.set_data("2").await.unwrap();
    assert_eq!((node.data(), client.get(PATH).await.unwrap().data), ("2".into(), "2".into()));
    // The node stays until its TTL has passed.
    drop(node);
    assert!(client.exists(PATH).await.unwrap().is_some());
}

#[tokio::test]
async fn deleted_it_is_created_and_renewed_again() {
    let world = World::start().await;
    let client = world.client().await;
    let Some(_node) = started(&client, SHORT).await else { return };
    until_renewed(&client, 1).await;
    let (_, watch) = client.exists_and_watch(PATH).await.unwrap();
    loop {
        match client.delete_recursive(PATH).await {
            Ok(_) => break,
            Err(error) => assert_eq!(error.kind(), ErrorKind::NoNode),
        }
    }
    watch.await.unwrap();
    until_renewed(&client, 1).await;
    assert_eq!(said(&client).await, "1");
}

#[tokio::test]
async fn a_renewal_outlives_a_broken_connection() {
    let world = World::start().await;
    let (proxy, client) = world.proxied().await;
    let other = world.client().await;
    let Some(_node) = started(&client, SHORT).await else { return };
    until_renewed(&other, 1).await;
    proxy.cut();
    let touch = format!("{PATH}/touch");
    let version = other.exists(&touch).await.unwrap().map_or(0, |stat| stat.version);
    until_renewed(&other, version + 3).await;
    if let Err(error) = other.delete(&touch, Version::Any).await {
        assert_eq!(error.kind(), ErrorKind::NoNode, "it is not there only if its time was over");
    }
    until_renewed(&other, 1).await;
}

#[tokio::test]
async fn no_time_to_live_is_refused() {
    let world = World::start().await;
    let client = world.client().await;
    let refused = TtlNode::start(&client, PATH, Duration::ZERO, "").unwrap_err();
    assert!(matches!(refused, RecipeError::Misuse(_)), "{refused}");
}
