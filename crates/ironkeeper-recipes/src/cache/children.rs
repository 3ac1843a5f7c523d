//! The children of a node and what they hold, at hand without a request. Curator's
//! `PathChildrenCache`.
//!
//! # Steps, guarantees, and when things break
//! Those of [`TreeCache`](super::TreeCache), for one level: the node itself and what is below its
//! children are left out. With a lasting watch the server tells of those too, and the cache passes over
//! it; where much happens further down, [`Watching::OneShot`] is told of the children alone.

use std::sync::Arc;

use ironkeeper_client::Client;

use crate::cache::cached_node::{CachedNode, Watching};
use crate::cache::keeper::Keeper;
use crate::cache::scope::Scope;
use crate::cache::store::CacheEvents;
use crate::error::Result;
use crate::place::join;

/// A cache of the children of a node, which need not be there.
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
    /// Begins to follow the children of `path` in the background. Dropping the cache ends that.
    pub fn start(client: &Client, path: impl Into<String>) -> ChildrenCache {
        ChildrenCache::start_by(client, path, Watching::default())
    }

    /// As [`ChildrenCache::start`], by watches of one's choice.
    pub fn start_by(client: &Client, path: impl Into<String>, watching: Watching) -> ChildrenCache {
        ChildrenCache { keeper: Keeper::start(client, Scope::Children(path.into()), watching) }
    }

    /// The path of the node whose children these are.
    pub fn path(&self) -> &str {
        &self.keeper.path
    }

    /// Waits until all children were looked at once. An error if that will never be.
    pub async fn initialized(&self) -> Result<()> {
        self.keeper.store.initialized().await
    }

    /// Whether all children were looked at once.
    pub fn is_initialized(&self) -> bool {
        self.keeper.store.is_ready()
    }

    /// A child by its name.
    pub fn get(&self, name: &str) -> Option<Arc<CachedNode>> {
        self.keeper.store.get(&join(self.path(), name))
    }

    /// All children, in the order of their names.
    pub fn children(&self) -> Vec<Arc<CachedNode>> {
        self.keeper.store.all()
    }

    /// How many children there are.
    pub fn len(&self) -> usize {
        self.keeper.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The children of the present as events, and all events from now on.
    pub fn events(&self) -> CacheEvents {
        self.keeper.events()
    }
}
