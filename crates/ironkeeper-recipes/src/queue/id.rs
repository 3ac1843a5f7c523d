//! A work queue whose items have ids, by which they can be removed. Curator's `DistributedIdQueue`.
//!
//! # On the tree
//! ```text
//! /queues/mails                       persistent
//!   queue-|42|0000000007              persistent: an item with the id 42
//! ```
//! The other nodes, the steps, the guarantees, the watch events and the failure handling are those
//! of the [`WorkQueue`](super::WorkQueue).
//!
//! # What is different
//! Several items may have the same id. In an id, `/` and `|` are replaced by `_`, as in Curator.
//! [`IdQueue::remove`] removes items by their id, except locked items. An item that is queued again
//! keeps its id.

use std::time::Duration;

use bytes::Bytes;

use super::naming::sealed::Sealed;
use super::naming::{Naming, Order, with_id};
use super::work::Queue;
use crate::error::{RecipeError, Result};

/// First in, first out, with ids.
#[derive(Clone, Copy, Debug)]
pub struct ById;

impl Sealed for ById {
    const NAMING: Naming = Naming::Id;
}

impl Order for ById {}

/// A work queue whose items have ids.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::queue::IdQueue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let queue = IdQueue::new(&client, "/queues/mails")?;
///     queue.put("41", "dear Ada").await?;
///     queue.put("42", "dear Bob").await?;
///     assert_eq!(queue.remove("41").await?, 1);
///     let delivery = queue.next().await?;
///     assert_eq!(delivery.id(), Some("42"));
///     delivery.done().await?;
///     Ok(())
/// }
/// ```
#[doc(alias = "DistributedIdQueue")]
pub type IdQueue = Queue<ById>;

impl Queue<ById> {
    /// Puts an item at the end. Waits until the queue is below its limit, if it has one.
    pub async fn put(&self, id: &str, item: impl Into<Bytes>) -> Result<()> {
        self.put_all(id, [item.into()]).await
    }

    /// Puts several items into one node, with one id: one worker receives all of them.
    pub async fn put_all<I: Into<Bytes>>(
        &self,
        id: &str,
        items: impl IntoIterator<Item = I>,
    ) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(&base_of(id)?, &items, None).await?;
        Ok(())
    }

    /// Puts an item, waiting up to `patience` for room. Returns whether it was put.
    pub async fn put_within(
        &self,
        id: &str,
        item: impl Into<Bytes>,
        patience: Duration,
    ) -> Result<bool> {
        self.put_items(&base_of(id)?, &[item.into()], Some(patience)).await
    }

    /// Removes all items with this id that are not locked. Returns their number.
    pub async fn remove(&self, id: &str) -> Result<usize> {
        let base = with_id(id);
        self.remove_where(|item| item.base == base).await
    }

    /// Returns whether there is an item with this id.
    pub async fn contains(&self, id: &str) -> Result<bool> {
        let base = with_id(id);
        self.any(|item| item.base == base).await
    }
}

fn base_of(id: &str) -> Result<String> {
    if id.is_empty() {
        return Err(RecipeError::Misuse("an item needs an id that is not empty".to_owned()));
    }
    Ok(with_id(id))
}
