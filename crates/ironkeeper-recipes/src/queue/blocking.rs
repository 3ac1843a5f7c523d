//! A queue of plain data with a limit: who takes waits for an item, who puts waits for room. The
//! `BlockingQueue` of menagerie and of java.util.concurrent.
//!
//! # On the tree
//! That of [`SimpleQueue`], and beside it `/queues/orders.putters`, where those stand in line who wait
//! for room. The queue's own node is persistent: its version is what producers agree by.
//!
//! # Steps
//! 1. [`BlockingQueue::put`]: read how many items there are. If there is room, create the item in one
//!    transaction with a write to the queue's node, from the version that was read.
//! 2. If there is no room, stand in line; the first in line watches the queue.
//! 3. Items are taken as from [`SimpleQueue`].
//!
//! # Guarantees
//! Those of [`SimpleQueue`], and that our producers never exceed the limit, however many there are:
//! of two who see the last free place, one is refused by the server. Producers get room in the order of
//! their waiting, but one that has not waited yet may be quicker. An item taken out of a full queue costs one
//! watch event at the first in line, and one at the next when that one leaves.
//!
//! # When things break
//! As with [`SimpleQueue`]. The future of a put dropped: the item is in the queue once, or not, and the
//! place in line is given back.

use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::Client;
use tokio::time::Instant;

use super::room::Door;
use super::simple::{BASES, SimpleQueue};
use crate::error::{RecipeError, Result};
use crate::guard::from_now;
use crate::place::beside;

/// A first-in-first-out queue with a limit.
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
    /// A queue on `path` for `limit` items, about which all should say the same. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, limit: usize) -> Result<BlockingQueue> {
        let path = path.into();
        if limit == 0 {
            return Err(RecipeError::Misuse(format!("{path}: always full, its limit is 0")));
        }
        let putters = beside(&path, "putters")?;
        Ok(BlockingQueue { items: SimpleQueue::new(client, path)?, putters, limit })
    }

    /// The path of the queue.
    pub fn path(&self) -> &str {
        self.items.path()
    }

    /// Puts an item in, at the end, and waits for room if there is none.
    pub async fn put(&self, item: impl Into<Bytes>) -> Result<()> {
        self.put_until(&[item.into()], None).await?;
        Ok(())
    }

    /// Puts an item in if there is room. Says whether it was.
    pub async fn offer(&self, item: impl Into<Bytes>) -> Result<bool> {
        self.put_until(&[item.into()], Some(Instant::now())).await
    }

    /// Puts an item in if there is room, or will be within this time. Says whether it was.
    pub async fn offer_within(&self, item: impl Into<Bytes>, patience: Duration) -> Result<bool> {
        self.put_until(&[item.into()], Some(from_now(patience))).await
    }

    /// Puts several items in, all or none, one behind the other, and waits for room for all of them.
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

    /// Takes the first item out, and waits for one if there is none.
    pub async fn take(&self) -> Result<Bytes> {
        self.items.take().await
    }

    /// Takes the first item out. `None` if there is none.
    pub async fn poll(&self) -> Result<Option<Bytes>> {
        self.items.poll().await
    }

    /// As [`BlockingQueue::take`], waiting this long at most.
    pub async fn poll_within(&self, patience: Duration) -> Result<Option<Bytes>> {
        self.items.poll_within(patience).await
    }

    /// Takes out what is there, but not more than `max` items.
    pub async fn drain(&self, max: usize) -> Result<Vec<Bytes>> {
        let mut drained = Vec::new();
        while drained.len() < max
            && let Some(item) = self.poll().await?
        {
            drained.push(item);
        }
        Ok(drained)
    }

    /// The first item, which stays in the queue. `None` if there is none.
    pub async fn peek(&self) -> Result<Option<Bytes>> {
        self.items.peek().await
    }

    /// How many items there are.
    pub async fn len(&self) -> Result<usize> {
        self.items.len().await
    }

    /// Whether there are none.
    pub async fn is_empty(&self) -> Result<bool> {
        self.items.is_empty().await
    }

    /// How many more there is room for.
    pub async fn room(&self) -> Result<usize> {
        Ok(self.limit.saturating_sub(self.len().await?))
    }
}
