//! A work queue whose items have priorities. Curator's `DistributedPriorityQueue`.
//!
//! # On the tree
//! ```text
//! /queues/jobs                        persistent
//!   queue-0FFFFFFFF0000000009         persistent: an item of priority -1, number 9
//!   queue-1000000050000000007         persistent: an item of priority 5, number 7
//! ```
//! The other nodes, the steps, the guarantees, the watch events and the failure handling are those
//! of the [`WorkQueue`](super::WorkQueue).
//!
//! # What is different
//! Smaller priorities come first, and within a priority smaller sequence numbers. The queue is
//! listed again for every item, so that an urgent item does not wait for the items of an older
//! list. An item that is queued again keeps its priority. (With Curator it loses its priority and
//! comes first; an item that Curator queued again comes first here, too.)

use std::time::Duration;

use bytes::Bytes;

use super::naming::sealed::Sealed;
use super::naming::{Naming, Order, with_priority};
use super::work::Queue;
use crate::error::Result;

/// Smaller priorities first.
#[derive(Clone, Copy, Debug)]
pub struct ByPriority;

impl Sealed for ByPriority {
    const NAMING: Naming = Naming::Priority;
}

impl Order for ByPriority {}

/// A work queue whose items have priorities.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::queue::PriorityQueue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let queue = PriorityQueue::new(&client, "/queues/jobs")?;
///     queue.put(5, "tidy up").await?;
///     queue.put(-1, "put out the fire").await?;
///     let delivery = queue.next().await?;
///     assert_eq!(delivery.items(), ["put out the fire"]);
///     delivery.done().await?;
///     Ok(())
/// }
/// ```
#[doc(alias = "DistributedPriorityQueue")]
pub type PriorityQueue = Queue<ByPriority>;

impl Queue<ByPriority> {
    /// Puts an item in. Waits until the queue is below its limit, if it has one.
    pub async fn put(&self, priority: i32, item: impl Into<Bytes>) -> Result<()> {
        self.put_all(priority, [item.into()]).await
    }

    /// Puts several items into one node: one worker receives all of them.
    pub async fn put_all<I: Into<Bytes>>(
        &self,
        priority: i32,
        items: impl IntoIterator<Item = I>,
    ) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(&with_priority(priority), &items, None).await?;
        Ok(())
    }

    /// Puts an item, waiting up to `patience` for room. Returns whether it was put.
    pub async fn put_within(
        &self,
        priority: i32,
        item: impl Into<Bytes>,
        patience: Duration,
    ) -> Result<bool> {
        self.put_items(&with_priority(priority), &[item.into()], Some(patience)).await
    }
}
