//! Caches, each against a real server, with and without faults.

mod children;
mod node;
mod old_server;
mod tree;

use ironkeeper_client::Client;
use ironkeeper_recipes::cache::{CacheEvent, CacheEvents, TreeCache};

/// Returns the next events as text, up to and including `last`.
async fn told_until(events: &mut CacheEvents, last: &str) -> Vec<String> {
    let mut told = Vec::new();
    while told.last().is_none_or(|text: &String| text != last) {
        told.push(match events.next().await.expect("the cache is kept") {
            CacheEvent::Created(node) => format!("+{}", node.path),
            CacheEvent::Changed { before, after } => {
                assert_eq!(before.path, after.path);
                format!("*{}={}", after.path, String::from_utf8_lossy(&after.data))
            }
            CacheEvent::Deleted(node) => format!("-{}", node.path),
            CacheEvent::Initialized => "initialized".to_owned(),
            CacheEvent::Reset => "reset".to_owned(),
            CacheEvent::Ended(why) => format!("ended: {why}"),
            other => panic!("{other:?}"),
        });
    }
    told
}

/// Reads the subtree from the server.
async fn as_it_is(client: &Client, path: &str) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut walk = client.walk(path).with_data();
    while let Some(visited) = walk.next().await {
        match visited {
            Ok(node) => found.push((node.path, node.data.unwrap_or_default().to_vec())),
            Err(error) => assert_eq!(error.kind(), ironkeeper_client::ErrorKind::NoNode),
        }
    }
    found.sort();
    found
}

fn as_cached(cache: &TreeCache) -> Vec<(String, Vec<u8>)> {
    let mut found: Vec<_> =
        cache.nodes().iter().map(|node| (node.path.clone(), node.data.to_vec())).collect();
    found.sort();
    found
}

/// Waits until the cache equals the subtree, which does not change any more.
async fn until_equal(cache: &TreeCache, client: &Client) {
    let expected = as_it_is(client, cache.path()).await;
    let mut events = cache.events();
    while as_cached(cache) != expected {
        let event = events.next().await;
        assert!(!matches!(event, None | Some(CacheEvent::Ended(_))), "{event:?}");
    }
}

/// Waits until the client has `count` watches.
async fn until_watches(client: &Client, count: usize) {
    while client.watch_count() != count {
        client.sync("/").await.unwrap();
    }
}
