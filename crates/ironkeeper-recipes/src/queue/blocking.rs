//! A FIFO queue of plain data with a limit: consumers wait for an item, producers wait for room.
//! The `BlockingQueue` of menagerie and of java.util.concurrent.
//!
//! # On the tree
//! As for [`SimpleQueue`], with the wait queue of producers in `/queues/orders.putters`. The
//! queue's own node is persistent: producers are serialized by its version.
//!
//! # Steps
//! 1. [`BlockingQueue::put`] reads the number of items. If there is room, it creates the item in
//!    one transaction with a write to the queue's node, conditional on the version that it read.
//! 2. If there is no room, it joins the wait queue; the first waiter watches the queue.
//! 3. Consumers work as those of [`SimpleQueue`].
//!
//! # Guarantees
//! As for [`SimpleQueue`]. In addition, producers of this recipe never exceed the limit, however
//! many there are: of two that see the last free slot, the server rejects one. Waiting producers
//! get room in the order of the wait queue, but a producer that is not in it yet may be faster. An
//! item taken out of a full queue costs one watch event for the first waiter, and one for the next
//! when the first one leaves the wait queue.
//!
//! # When things break
//! As for [`SimpleQueue`]. The future of a put is dropped: the item is in the queue once or not at
//! all, and the producer leaves the wait queue.

use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::Client;
use tokio::time::Instant;

use super::room::Door;
use super::simple::{BASES, SimpleQueue};
use crate::error::{RecipeError, Result};
use crate::guard::from_now;
use crate::place::beside;

/// A FIFO queue with a limit.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::queue::BlockingQueue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let queue = BlockingQueue::new(&client, "/queues/orders", 1)?;
///     queue.put("first").await?;
///     assert!(!queue.offer("second").await?); // no room
///     let waiting = tokio::spawn({
///         let queue = queue.clone();
///         async move { queue.put("third").await }
///     });
///     assert_eq!(queue.take().await?, "first");
///     waiting.await??;
///     assert_eq!(queue.take().await?, "third");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct BlockingQueue {
    items: SimpleQueue,
    putters: String,
    limit: usize,
}

impl BlockingQueue {
    /// Creates a handle of a queue on `path` for `limit` items. All clients should use the same
    /// limit. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, limit: usize) -> Result<BlockingQueue> {
        let path = path.into();
        if limit == 0 {
            return Err(RecipeError::Misuse(format!("{path}: always full, its limit is 0")));
        }
        let putters = beside(&path, "putters")?;
        Ok(BlockingQueue { items: SimpleQueue::new(client, path)?, putters, limit })
    }

    /// Returns the path of the queue.
    pub fn path(&self) -> &str {
        self.items.path()
    }

    /// Puts an item at the end. Waits for room if the queue is full.
    pub async fn put(&self, item: impl Into<Bytes>) -> Result<()> {
        self.put_until(&[item.into()], None).await?;
        Ok(())
    }

    /// Puts an item at the end if there is room. Returns whether it was put.
    pub async fn offer(&self, item: impl Into<Bytes>) -> Result<bool> {
        self.put_until(&[item.into()], Some(Instant::now())).await
    }

    /// Puts an item at the end, waiting up to `patience` for room. Returns whether it was put.
    pub async fn offer_within(&self, item: impl Into<Bytes>, patience: Duration) -> Result<bool> {
        self.put_until(&[item.into()], Some(from_now(patience))).await
    }

    /// Puts several items at the end, in one transaction and in this order. Waits for room for all
    /// of them.
    pub async fn put_all<I: Into<Bytes>>(&self, items: impl IntoIterator<Item = I>) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        if items.len() > self.limit {
            let (path, limit) = (self.path(), self.limit);
            let why = format!("{path}: {} items never fit into {limit}", items.len());
            return Err(RecipeError::Misuse(why));
        }
        self.put_until(&items, None).await?;
        Ok(())
    }

    async fn put_until(&self, items: &[Bytes], deadline: Option<Instant>) -> Result<bool> {
        let door = Door {
            client: self.items.client(),
            path: self.path(),
            putters: &self.putters,
            limit: Some(self.limit),
            receipts: self.items.receipts(),
        };
        door.put(BASES[0], items, deadline).await
    }

    /// Removes the first item and returns it. Waits for an item if the queue is empty.
    pub async fn take(&self) -> Result<Bytes> {
        self.items.take().await
    }

    /// Removes the first item and returns it. `None` if the queue is empty.
    pub async fn poll(&self) -> Result<Option<Bytes>> {
        self.items.poll().await
    }

    /// As [`BlockingQueue::take`], but waits at most for `patience`.
    pub async fn poll_within(&self, patience: Duration) -> Result<Option<Bytes>> {
        self.items.poll_within(patience).await
    }

    /// Removes up to `max` items and returns them, without waiting.
    pub async fn drain(&self, max: usize) -> Result<Vec<Bytes>> {
        let mut drained = Vec::new();
        while drained.len() < max
            && let Some(item) = self.poll().await?
        {
            drained.push(item);
        }
        Ok(drained)
    }

    /// Returns the first item without removing it. `None` if the queue is empty.
    pub async fn peek(&self) -> Result<Option<Bytes>> {
        self.items.peek().await
    }

    /// Returns the number of items.
    pub async fn len(&self) -> Result<usize> {
        self.items.len().await
    }

    /// Returns whether there are no items.
    pub async fn is_empty(&self) -> Result<bool> {
        self.items.is_empty().await
    }

    /// Returns the number of further items that fit.
    pub async fn room(&self) -> Result<usize> {
        Ok(self.limit.saturating_sub(self.len().await?))
    }
}
