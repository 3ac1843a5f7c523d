//! A local copy of the children of a node and their data, read without requests. Curator's
//! `PathChildrenCache`.
//!
//! # Steps, guarantees, and when things break
//! Those of [`TreeCache`](super::TreeCache), for one level: the node itself and the nodes below its
//! children are not cached. With a persistent recursive watch the server sends the events of these
//! nodes as well, and the cache ignores them; where the nodes further down change often,
//! [`Watching::OneShot`] receives the events of the children only.

use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::cached_node::{CachedNode, Watching};
use crate::cache::keeper::Keeper;
use crate::cache::scope::Scope;
use crate::cache::store::CacheEvents;
use crate::error::Result;
use crate::place::join;

/// A cache of the children of a node, which need not exist.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
/// use ironkeeper_recipes::cache::ChildrenCache;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create_recursive("/workers/anna", "idle", CreateMode::Persistent).await?;
///     let workers = ChildrenCache::start(&client, "/workers");
///     workers.initialized().await?;
///     assert_eq!(workers.get("anna").unwrap().data, "idle");
///     assert_eq!(workers.children().len(), 1);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "PathChildrenCache")]
#[doc(alias = "ChildrenWatch")]
pub struct ChildrenCache {
    keeper: Keeper,
}

impl ChildrenCache {
    /// Starts to follow the children of `path` in the background. Dropping the cache stops that.
    pub fn start(client: &Client, path: impl Into<String>) -> ChildrenCache {
        ChildrenCache::start_by(client, path, Watching::default())
    }

    /// Starts as [`ChildrenCache::start`] does, with the given kind of watches.
    pub fn start_by(client: &Client, path: impl Into<String>, watching: Watching) -> ChildrenCache {
        ChildrenCache { keeper: Keeper::start(client, Scope::Children(path.into()), watching) }
    }

    /// Returns the path of the node whose children are cached.
    pub fn path(&self) -> &str {
        &self.keeper.path
    }

    /// Waits until all children have been read once. Returns an error if the cache ended before
    /// that.
    pub async fn initialized(&self) -> Result<()> {
        self.keeper.store.initialized().await
    }

    /// Returns whether all children have been read once.
    pub fn is_initialized(&self) -> bool {
        self.keeper.store.is_ready()
    }

    /// Returns a child by its name.
    pub fn get(&self, name: &str) -> Option<Arc<CachedNode>> {
        self.keeper.store.get(&join(self.path(), name))
    }

    /// Returns all children, in the order of their names.
    pub fn children(&self) -> Vec<Arc<CachedNode>> {
        self.keeper.store.all()
    }

    /// Returns the number of children.
    pub fn len(&self) -> usize {
        self.keeper.store.len()
    }

    /// Returns whether there are no children.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the present children as events, followed by all later events.
    pub fn events(&self) -> CacheEvents {
        self.keeper.events()
    }
}
