//! A node and everything below it, at hand without a request. Curator's `CuratorCache`, `TreeCache`.
//!
//! # Steps
//! 1. Set one lasting recursive watch on the node, which need not be there.
//! 2. Read the node and everything below it, many requests at a time, but not too many.
//! 3. Read again every node that an event names, whatever the event says.
//! 4. After a gap in the events, compare the stat of every node with the one that is known, and read
//!    what is another.
//!
//! On servers without lasting watches (before 3.6), each node has two one-shot watches instead.
//!
//! # Guarantees
//! Every node reaches its last state in the cache, and its states are told in order; in between, some
//! may be left out. A node is told as created after its parent and as deleted before it. A node that
//! was deleted and created again is told as deleted and created. The cache as a whole is not one moment
//! of the tree: of two changes to two nodes, the later may be seen first. One watch event per change.
//! Nodes that may not be read are left out.
//!
//! # When things break
//! - Disconnected: the last known nodes stay. After the reconnect the stats are compared; data and
//!   lists are read only where they have changed, so that many caches that come back together do not
//!   bring the servers down.
//! - The root deleted: the cache is empty, and fills again when the root comes back.
//! - Session over: the last known nodes stay; the events end with [`CacheEvent::Ended`].
//! - A listener too slow: [`CacheEvent::Reset`], and all nodes again. Nothing is lost silently.
//! - A list of children larger than the client accepts: the cache ends with that error and does not
//!   ask again and again.
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
    /// Begins to follow `path` and everything below it in the background. Dropping the cache ends
    /// that.
    pub fn start(client: &Client, path: impl Into<String>) -> TreeCache {
        TreeCache::start_by(client, path, Watching::default())
    }

    /// As [`TreeCache::start`], by watches of one's choice.
    pub fn start_by(client: &Client, path: impl Into<String>, watching: Watching) -> TreeCache {
        TreeCache { keeper: Keeper::start(client, Scope::Tree(path.into()), watching) }
    }

    /// The path of the root.
    pub fn path(&self) -> &str {
        &self.keeper.path
    }

    /// Waits until everything was looked at once. An error if that will never be.
    pub async fn initialized(&self) -> Result<()> {
        self.keeper.store.initialized().await
    }

    /// Whether everything was looked at once.
    pub fn is_initialized(&self) -> bool {
        self.keeper.store.is_ready()
    }

    /// A node by its whole path.
    pub fn get(&self, path: &str) -> Option<Arc<CachedNode>> {
        self.keeper.store.get(path)
    }

    /// The children of a node, in the order of their names.
    pub fn children(&self, path: &str) -> Vec<Arc<CachedNode>> {
        self.keeper.store.children(path)
    }

    /// All nodes, in the order of their paths.
    pub fn nodes(&self) -> Vec<Arc<CachedNode>> {
        self.keeper.store.all()
    }

    /// How many nodes there are.
    pub fn len(&self) -> usize {
        self.keeper.store.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The nodes of the present as events, and all events from now on.
    pub fn events(&self) -> CacheEvents {
        self.keeper.events()
    }
}
