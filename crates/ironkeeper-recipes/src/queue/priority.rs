//! A queue of work whose items have priorities. Curator's `DistributedPriorityQueue`.
//!
//! # On the tree
//! ```text
//! /queues/jobs                        persistent
//!   queue-0FFFFFFFF0000000009         persistent: an item of priority -1, number 9
//!   queue-1000000050000000007         persistent: an item of priority 5, number 7
//! ```
//! All else is as with the [`WorkQueue`](super::WorkQueue), and so are the steps, the guarantees, the
//! watch events, and what happens when things break.
//!
//! # What is different
//! The smaller priority comes first, and in one priority the smaller number. The queue is listed anew
//! for every item, so an urgent one is never behind those of an older list. An item that is queued
//! again keeps its priority. (With Curator it loses it, and comes first then, as it does here.)

use std::time::Duration;

use bytes::Bytes;

use super::naming::sealed::Sealed;
use super::naming::{Naming, Order, with_priority};
use super::work::Queue;
use crate::error::Result;

/// The smaller priority first.
#[derive(Clone, Copy, Debug)]
pub struct ByPriority;

impl Sealed for ByPriority {
    const NAMING: Naming = Naming::Priority;
}

impl Order for ByPriority {}

/// A queue of work whose items have priorities.
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
    /// Puts an item in. Waits for room if there is a limit.
    pub async fn put(&self, priority: i32, item: impl Into<Bytes>) -> Result<()> {
        self.put_all(priority, [item.into()]).await
    }

    /// Puts several items in, as one: one worker gets all of them.
    pub async fn put_all<I: Into<Bytes>>(
        &self,
        priority: i32,
        items: impl IntoIterator<Item = I>,
    ) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(&with_priority(priority), &items, None).await?;
        Ok(())
    }

    /// Puts an item in if there is room, or will be within this time. Says whether it was put.
    pub async fn put_within(
        &self,
        priority: i32,
        item: impl Into<Bytes>,
        patience: Duration,
    ) -> Result<bool> {
        self.put_items(&with_priority(priority), &[item.into()], Some(patience)).await
    }
}
