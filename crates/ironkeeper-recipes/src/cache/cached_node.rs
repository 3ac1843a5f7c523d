//! The nodes and the events of a cache.

use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_client::Stat;

use crate::error::RecipeError;

/// A node as it is in a cache.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CachedNode {
    /// The path of the node.
    pub path: String,
    /// The data of the node.
    pub data: Bytes,
    /// The stat of the node when it was last read. The fields about children may be older than the
    /// children in the cache.
    pub stat: Stat,
}

/// A change of a cache.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[doc(alias = "CuratorCacheListener")]
#[doc(alias = "TreeCacheEvent")]
pub enum CacheEvent {
    /// A node was created, or read for the first time.
    Created(Arc<CachedNode>),
    /// The data of a node was written.
    Changed {
        /// The node before the write.
        before: Arc<CachedNode>,
        /// The node after the write.
        after: Arc<CachedNode>,
    },
    /// A node was deleted. The events of the nodes below it precede this one.
    Deleted(Arc<CachedNode>),
    /// All nodes that existed at the start have been reported.
    Initialized,
    /// The listener was too slow and events were dropped. It has to discard its state: all present
    /// nodes follow as created.
    Reset,
    /// The cache is not updated any more: the session has ended, the cache was dropped, or the
    /// server rejects its requests. The cached nodes stay as they are. This is the last event.
    Ended(RecipeError),
}

/// The kind of watches that keep a cache up to date.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Watching {
    /// One persistent recursive watch, or one-shot watches if the server is older than 3.6.
    #[default]
    Lasting,
    /// One-shot watches, two for each node, on any server. After a reconnect the server itself
    /// sends events for what has changed, so the cache need not compare stats.
    OneShot,
}
