//! A local copy of one node, read without requests. Curator's `NodeCache`.
//!
//! # Steps
//! 1. Read and watch the node; if it does not exist, watch for its creation.
//! 2. After every event, repeat step 1, whatever the type of the event.
//!
//! # Guarantees
//! The observed states never go backwards, and the last state is always reached; intermediate
//! states may be skipped if they follow each other quickly. A node that was deleted and created
//! again is reported as deleted and created, even if the cache never read it as missing. One watch
//! event per change.
//!
//! # When things break
//! - Disconnected: the last known state stays. After the reconnect the server sends an event if the
//!   node has changed; otherwise nothing is read.
//! - Session ended: the last known state stays; the events end with [`CacheEvent::Ended`].
//!
//! [`CacheEvent::Ended`]: crate::cache::CacheEvent::Ended

use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::cached_node::CachedNode;
use crate::cache::keeper::Keeper;
use crate::cache::store::CacheEvents;
use crate::error::Result;

/// A cache of one node, which need not exist.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
/// use ironkeeper_recipes::cache::{CacheEvent, NodeCache};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let cache = NodeCache::start(&client, "/flag");
///     cache.initialized().await?;
///     assert!(cache.current().is_none());
///
///     let mut events = cache.events();
///     client.create("/flag", "on", CreateMode::Persistent).await?;
///     while let Some(event) = events.next().await {
///         if let CacheEvent::Created(node) = event {
///             assert_eq!(node.data, "on");
///             break;
///         }
///     }
///     assert!(cache.current().is_some());
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "CuratorCache")]
#[doc(alias = "DataWatch")]
pub struct NodeCache {
    keeper: Keeper,
}

impl NodeCache {
    /// Starts to follow a node in the background. Dropping the cache stops that.
    pub fn start(client: &Client, path: impl Into<String>) -> NodeCache {
        NodeCache { keeper: Keeper::start_one(client, path.into()) }
    }

    /// Returns the path of the node.
    pub fn path(&self) -> &str {
        &self.keeper.path
    }

    /// Waits until the node has been read once. Returns an error if the cache ended before that.
    pub async fn initialized(&self) -> Result<()> {
        self.keeper.store.initialized().await
    }

    /// Returns the node, if it exists.
    pub fn current(&self) -> Option<Arc<CachedNode>> {
        self.keeper.store.get(self.path())
    }

    /// Returns the present state as events, followed by all later events.
    pub fn events(&self) -> CacheEvents {
        self.keeper.events()
    }
}
