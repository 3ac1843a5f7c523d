//! A work queue whose items have due times. Curator's `DistributedDelayQueue`.
//!
//! # On the tree
//! ```text
//! /queues/reminders                   persistent
//!   queue-|18F3A5B2C00|0000000007     persistent: due at that many milliseconds since 1970
//! ```
//! The other nodes, the steps, the guarantees and the failure handling are those of the
//! [`WorkQueue`](super::WorkQueue).
//!
//! # What is different
//! An item is not delivered before its due time, by the clock of the consumer's machine. The first
//! waiter watches the queue and waits for the due time of the first item; the watch fires when an
//! item with an earlier time is put in. When an item becomes due, the only watch event is that of
//! the next waiter, when the first one leaves the wait queue. An item that is queued again keeps
//! its due time, which has passed already.
//!
//! The order is that of the due times in the names and does not depend on a clock, so that a clock
//! that changes while a list is sorted has no effect.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::naming::sealed::Sealed;
use super::naming::{Naming, Order, with_due_ms};
use super::work::Queue;
use crate::error::{RecipeError, Result};

/// Earlier due times first.
#[derive(Clone, Copy, Debug)]
pub struct ByDelay;

impl Sealed for ByDelay {
    const NAMING: Naming = Naming::Delay;
}

impl Order for ByDelay {}

/// A work queue whose items have due times.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::queue::DelayQueue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let queue = DelayQueue::new(&client, "/queues/reminders")?;
///     queue.put_after(Duration::from_secs(3600), "water the plants").await?;
///     assert!(queue.try_next().await?.is_none());
///     queue.put_after(Duration::from_millis(30), "feed the cat").await?;
///     let delivery = queue.next().await?;
///     assert_eq!(delivery.items(), ["feed the cat"]);
///     delivery.done().await?;
///     Ok(())
/// }
/// ```
#[doc(alias = "DistributedDelayQueue")]
pub type DelayQueue = Queue<ByDelay>;

impl Queue<ByDelay> {
    /// Puts an item in that is due at `time`. Waits until the queue is below its limit, if it has
    /// one.
    pub async fn put_at(&self, time: SystemTime, item: impl Into<Bytes>) -> Result<()> {
        self.put_all_at(time, [item.into()]).await
    }

    /// Puts an item in that is due after `delay`. Waits until the queue is below its limit, if it
    /// has one.
    pub async fn put_after(&self, delay: Duration, item: impl Into<Bytes>) -> Result<()> {
        let time = SystemTime::now().checked_add(delay);
        self.put_at(time.ok_or_else(never)?, item).await
    }

    /// Puts several items into one node: one worker receives all of them.
    pub async fn put_all_at<I: Into<Bytes>>(
        &self,
        time: SystemTime,
        items: impl IntoIterator<Item = I>,
    ) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(&base_of(time)?, &items, None).await?;
        Ok(())
    }

    /// Puts an item in that is due at `time`, waiting up to `patience` for room. Returns whether it
    /// was put.
    pub async fn put_at_within(
        &self,
        time: SystemTime,
        item: impl Into<Bytes>,
        patience: Duration,
    ) -> Result<bool> {
        self.put_items(&base_of(time)?, &[item.into()], Some(patience)).await
    }
}

fn base_of(time: SystemTime) -> Result<String> {
    // A time before 1970 counts as 1970: the item is due.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    // Rounded up to the next millisecond, so that the item is not delivered early.
    let ms = since.as_nanos().div_ceil(1_000_000);
    let ms = i64::try_from(ms).map_err(|_| never())?;
    Ok(with_due_ms(ms.max(1)))
}

fn never() -> RecipeError {
    RecipeError::Misuse("a time that never comes".to_owned())
}
