//! A local copy of a node and everything below it, read without requests. Curator's `CuratorCache`,
//! `TreeCache`.
//!
//! # Steps
//! 1. Set one persistent recursive watch on the node, which need not exist.
//! 2. Read the node and everything below it, with a bounded number of requests in flight.
//! 3. Read again every node that an event names, whatever the type of the event.
//! 4. After a gap in the events, compare the stat of every node with the cached one, and read what
//!    differs.
//!
//! On servers without persistent watches (before 3.6), each node has two one-shot watches instead.
//!
//! # Guarantees
//! Every node reaches its last state in the cache, and its states are reported in order;
//! intermediate states may be skipped. A node is reported as created after its parent and as
//! deleted before it. A node that was deleted and created again is reported as deleted and created.
//! The cache as a whole is not a consistent snapshot: of two changes to two nodes, the later one
//! may be seen first. One watch event per change. Nodes without read permission are not cached.
//!
//! # When things break
//! - Disconnected: the last known nodes stay. After the reconnect the stats are compared; data and
//!   child lists are read only where they have changed, so that many caches that reconnect together
//!   do not overload the servers.
//! - The root deleted: the cache is empty, and fills again when the root is created again.
//! - Session ended: the last known nodes stay; the events end with [`CacheEvent::Ended`].
//! - A listener too slow: [`CacheEvent::Reset`], then all nodes again. No event is dropped
//!   silently.
//! - A list of children larger than the client accepts: the cache ends with that error and does not
//!   retry.
//!
//! [`CacheEvent::Ended`]: crate::cache::CacheEvent::Ended
//! [`CacheEvent::Reset`]: crate::cache::CacheEvent::Reset

use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::cached_node::{CachedNode, Watching};
use crate::cache::keeper::Keeper;
use crate::cache::scope::Scope;
use crate::cache::store::CacheEvents;
use crate::error::Result;

/// A cache of a subtree.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode, Version};
/// use ironkeeper_recipes::cache::{CacheEvent, TreeCache};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create_recursive("/app/config/limits", "10", CreateMode::Persistent).await?;
///     let app = TreeCache::start(&client, "/app");
///     app.initialized().await?;
///     assert_eq!(app.get("/app/config/limits").unwrap().data, "10");
///     assert_eq!(app.children("/app").len(), 1);
///
///     let mut events = app.events();
///     client.set("/app/config/limits", "20", Version::Any).await?;
///     loop {
///         match events.next().await {
///             Some(CacheEvent::Created(node)) => println!("there is {}", node.path),
///             Some(CacheEvent::Changed { after, .. }) => break assert_eq!(after.data, "20"),
///             Some(_) => {}
///             None => return Err("the session is over".into()),
///         }
///     }
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "CuratorCache")]
pub struct TreeCache {
    keeper: Keeper,
}

impl TreeCache {
    /// Starts to follow `path` and everything below it in the background. Dropping the cache stops
    /// that.
    pub fn start(client: &Client, path: impl Into<String>) -> TreeCache {
        TreeCache::start_by(client, path, Watching::default())
    }

    /// Starts as [`TreeCache::start`] does, with the given kind of watches.
    pub fn start_by(client: &Client, path: impl Into<String>, watching: Watching) -> TreeCache {
        TreeCache { keeper: Keeper::start(client, Scope::Tree(path.into()), watching) }
    }

    /// Returns the path of the root.
    pub fn path(&self) -> &str {
        &self.keeper.path
    }

    /// Waits until all nodes have been read once. Returns an error if the cache ended before that.
    pub async fn initialized(&self) -> Result<()> {
        self.keeper.store.initialized().await
    }

    /// Returns whether all nodes have been read once.
    pub fn is_initialized(&self) -> bool {
        self.keeper.store.is_ready()
    }

    /// Returns a node by its full path.
    pub fn get(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.keeper.store.get(path)
    }

    /// Returns the children of a node, in the order of their names.
    pub fn children(&self, path: &str) -> Vec<Arc<CachedNode>> {
        self.keeper.store.children(path)
    }

    /// Returns all nodes, in the order of their paths.
    pub fn nodes(&self) -> Vec<Arc<CachedNode>> {
        self.keeper.store.all()
    }

    /// Returns the number of nodes.
    pub fn len(&self) -> usize {
        self.keeper.store.len()
    }

    /// Returns whether there are no nodes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the present nodes as events, followed by all later events.
    pub fn events(&self) -> CacheEvents {
        self.keeper.events()
    }
}
