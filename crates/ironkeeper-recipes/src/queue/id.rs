//! A queue of work whose items have ids, by which they can be removed. Curator's `DistributedIdQueue`.
//!
//! # On the tree
//! ```text
//! /queues/mails                       persistent
//!   queue-|42|0000000007              persistent: an item with the id 42
//! ```
//! All else is as with the [`WorkQueue`](super::WorkQueue), and so are the steps, the guarantees, the
//! watch events, and what happens when things break.
//!
//! # What is different
//! Several items may have the same id. In an id, `/` and `|` become `_`, as Curator does it.
//! [`IdQueue::remove`] takes items out by their id; those that somebody works on stay. An item that is
//! queued again keeps its id.

use std::time::Duration;

use bytes::Bytes;

use super::naming::sealed::Sealed;
use super::naming::{Naming, Order, with_id};
use super::work::Queue;
use crate::error::{RecipeError, Result};

/// In the order of coming, with ids.
#[derive(Clone, Copy, Debug)]
pub struct ById;

impl Sealed for ById {
    const NAMING: Naming = Naming::Id;
}

impl Order for ById {}

/// A queue of work whose items have ids.
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
    /// Puts an item in, at the end. Waits for room if there is a limit.
    pub async fn put(&self, id: &str, item: impl Into<Bytes>) -> Result<()> {
        self.put_all(id, [item.into()]).await
    }

    /// Puts several items in, as one, with one id: one worker gets all of them.
    pub async fn put_all<I: Into<Bytes>>(
        &self,
        id: &str,
        items: impl IntoIterator<Item = I>,
    ) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(&base_of(id)?, &items, None).await?;
        Ok(())
    }

    /// Puts an item in if there is room, or will be within this time. Says whether it was put.
    pub async fn put_within(
        &self,
        id: &str,
        item: impl Into<Bytes>,
        patience: Duration,
    ) -> Result<bool> {
        self.put_items(&base_of(id)?, &[item.into()], Some(patience)).await
    }

    /// Removes all items with this id that nobody works on. Says how many.
    pub async fn remove(&self, id: &str) -> Result<usize> {
        let base = with_id(id);
        self.remove_where(|item| item.base == base).await
    }

    /// Whether there is an item with this id.
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
