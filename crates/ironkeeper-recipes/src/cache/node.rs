//! What one node holds, at hand without a request. Curator's `NodeCache`.
//!
//! # Steps
//! 1. Read and watch the node; if it is not there, watch for its creation.
//! 2. When the watch fires, do so again, whatever the event says.
//!
//! # Guarantees
//! What is seen never goes back, and the last state is always reached: in between, states may be left
//! out if they follow each other quickly. A node that was deleted and created again is told as deleted
//! and created, even if the cache was too late to see it gone. One watch event per change.
//!
//! # When things break
//! - Disconnected: the last known state stays. After the reconnect the server tells whether something
//!   has changed; if not, nothing is read.
//! - Session over: the last known state stays; the events end with [`CacheEvent::Ended`].
//!
//! [`CacheEvent::Ended`]: crate::cache::CacheEvent::Ended

use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::cached_node::CachedNode;
use crate::cache::keeper::Keeper;
use crate::cache::store::CacheEvents;
use crate::error::Result;

/// A cache of one node, which need not be there.
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
    /// Begins to follow a node in the background. Dropping the cache ends that.
    pub fn start(client: &Client, path: impl Into<String>) -> NodeCache {
        NodeCache { keeper: Keeper::start_one(client, path.into()) }
    }

    /// The path of the node.
    pub fn path(&self) -> &str {
        &self.keeper.path
    }

    /// Waits until the node was looked at once. An error if that will never be.
    pub async fn initialized(&self) -> Result<()> {
        self.keeper.store.initialized().await
    }

    /// The node, if it is there.
    pub fn current(&self) -> Option<Arc<CachedNode>> {
        self.keeper.store.get(self.path())
    }

    /// The present state as events, and all events from now on.
    pub fn events(&self) -> CacheEvents {
        self.keeper.events()
    }
}
