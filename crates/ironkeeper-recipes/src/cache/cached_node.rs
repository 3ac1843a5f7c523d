//! What a cache holds, and what it tells.

use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::Stat;

use crate::error::RecipeError;

/// A node as a cache knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedNode {
    /// Its path.
    pub path: String,
    /// Its data.
    pub data: Bytes,
    /// Its stat, of the time when the node was last read. What it says of the children may be older
    /// than the children in the cache.
    pub stat: Stat,
}

/// Something happened to a cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "CuratorCacheListener")]
#[doc(alias = "TreeCacheEvent")]
pub enum CacheEvent {
    /// A node is there that was not.
    Created(Arc<CachedNode>),
    /// The data of a node was written.
    Changed {
        /// As it was.
        before: Arc<CachedNode>,
        /// As it is.
        after: Arc<CachedNode>,
    },
    /// A node is gone. Nodes below it have been told of before.
    Deleted(Arc<CachedNode>),
    /// Everything that was there at the start has been told.
    Initialized,
    /// The listener was too slow, and events are missing here. What it knows is void: all nodes of the
    /// present follow as created.
    Reset,
    /// The cache is not kept any more: the session is over, the cache was dropped, or the server
    /// refuses. What it holds stays as it is. Nothing follows.
    Ended(RecipeError),
}

/// By which watches a cache is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watching {
    /// By one lasting recursive watch, or by one-shot watches if the server is older than 3.6.
    #[default]
    Lasting,
    /// By one-shot watches, two for each node, on any server. After a reconnect the server itself
    /// tells what has changed, so that nothing has to be compared.
    OneShot,
}
