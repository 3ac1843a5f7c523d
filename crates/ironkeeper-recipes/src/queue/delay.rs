//! A queue of work whose items are due at a time. Curator's `DistributedDelayQueue`.
//!
//! # On the tree
//! ```text
//! /queues/reminders                   persistent
//!   queue-|18F3A5B2C00|0000000007     persistent: due at that many milliseconds since 1970
//! ```
//! All else is as with the [`WorkQueue`](super::WorkQueue), and so are the steps, the guarantees, and
//! what happens when things break.
//!
//! # What is different
//! Nobody gets an item before its time, by the clock of the machine that asks for it. The first in line
//! watches the queue and waits for the time of the first item; an item that is put in with an earlier
//! time wakes it. A time that comes costs no watch event but the one at the next in line, when the first
//! one leaves. An item that is queued again keeps its time, which has come already.
//!
//! The order is that of the times in the names, and a clock has no part in it: one that moves while
//! a list is sorted cannot disturb it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::naming::sealed::Sealed;
use super::naming::{Naming, Order, with_due_ms};
use super::work::Queue;
use crate::error::{RecipeError, Result};

/// The earlier time first.
#[derive(Clone, Copy, Debug)]
pub struct ByDelay;

impl Sealed for ByDelay {
    const NAMING: Naming = Naming::Delay;
}

impl Order for ByDelay {}

/// A queue of work whose items are due at a time.
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
    /// Puts an item in that is due at `time`. Waits for room if there is a limit.
    pub async fn put_at(&self, time: SystemTime, item: impl Into<Bytes>) -> Result<()> {
        self.put_all_at(time, [item.into()]).await
    }

    /// Puts an item in that is due after this time. Waits for room if there is a limit.
    pub async fn put_after(&self, delay: Duration, item: impl Into<Bytes>) -> Result<()> {
        let time = SystemTime::now().checked_add(delay);
        self.put_at(time.ok_or_else(never)?, item).await
    }

    /// Puts several items in, as one: one worker gets all of them.
    pub async fn put_all_at<I: Into<Bytes>>(
        &self,
        time: SystemTime,
        items: impl IntoIterator<Item = I>,
    ) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(&base_of(time)?, &items, None).await?;
        Ok(())
    }

    /// Puts an item in that is due at `time`, if there is room, or will be within `patience`. Says whether
    /// it was put.
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
    // Before 1970 is as good as 1970: it is due.
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    // To the next millisecond: nobody shall have it too early.
    let ms = since.as_nanos().div_ceil(1_000_000);
    let ms = i64::try_from(ms).map_err(|_| never())?;
    Ok(with_due_ms(ms.max(1)))
}

fn never() -> RecipeError {
    RecipeError::Misuse("a time that never comes".to_owned())
}
