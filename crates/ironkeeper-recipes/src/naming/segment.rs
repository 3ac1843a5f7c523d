//! Ids fetched in blocks; the next block is fetched before the current block is used up.
//!
//! # On the tree
//! ```text
//! /ids/orders                an [`AtomicLong`]: the first id that is not allocated yet
//! /ids/orders-receipts       see [`AtomicValue`](crate::shared::AtomicValue)
//! ```
//!
//! # Steps
//! 1. Add the block size to the number. The ids from the old number up to the sum belong to this
//!    handle.
//! 2. Return the ids of the block one by one, without a request. When half of the block is used,
//!    fetch the next block in the background.
//!
//! # Guarantees
//! No id is returned twice by any handle on the path, including those of Curator's
//! `CachedAtomicLong` and of [`CachedCounter`](crate::shared::CachedCounter). The ids of one handle
//! grow; between handles there is no order. Ids are skipped only when a handle is dropped with
//! unused ids, or the session ends. No watches.
//!
//! # When things break
//! - The connection is lost: the ids of up to two blocks remain available; then `next` waits for
//!   the reconnect.
//! - The session has ended: the fetched ids remain available, because no other handle can get them;
//!   then an error.
//! - The future of [`SegmentIds::next`] is dropped: no id is lost.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_client::Client;
use tokio::sync::Notify;

use crate::error::{RecipeError, Result};
use crate::shared::AtomicLong;

/// Ids on a path, fetched in blocks ahead of their use.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::naming::SegmentIds;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let orders = SegmentIds::new(&client, "/ids/orders", 1000)?;
///     for id in 0..10 {
///         assert_eq!(orders.next().await?, id); // one request for all of them
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "IdGenerator")]
pub struct SegmentIds {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    number: AtomicLong,
    path: String,
    size: i64,
    blocks: Mutex<Blocks>,
    fetched: Notify,
}

#[derive(Debug, Default)]
struct Blocks {
    current: Range<i64>,
    ahead: Option<Range<i64>>,
    is_fetching: bool,
    /// The error of the last fetch, for a caller that waits for the block.
    failed: Option<RecipeError>,
}

impl SegmentIds {
    /// Creates a generator of ids on `path`, with blocks of this size. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, size: u32) -> Result<SegmentIds> {
        let path = path.into();
        if size == 0 {
            return Err(RecipeError::Misuse(format!("{path}: a block needs one id at least")));
        }
        let inner = Inner {
            number: AtomicLong::new(client, path.as_str()).with_receipts(),
            path,
            size: size.into(),
            blocks: Mutex::default(),
            fetched: Notify::new(),
        };
        Ok(SegmentIds { inner: Arc::new(inner) })
    }

    /// Returns the path of the ids.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Returns the next id. Waits only if the next block has not been fetched yet.
    pub async fn next(&self) -> Result<i64> {
        loop {
            // Registered before the check, so that no notification is missed.
            let fetched = self.inner.fetched.notified();
            {
                let mut blocks = self.inner.blocks();
                if blocks.current.is_empty()
                    && let Some(ahead) = blocks.ahead.take()
                {
                    blocks.current = ahead;
                }
                let id = blocks.current.next();
                let left = blocks.current.end - blocks.current.start;
                if blocks.ahead.is_none() && !blocks.is_fetching && left <= self.inner.size / 2 {
                    match blocks.failed.take() {
                        Some(error) if id.is_none() => return Err(error),
                        // Another try would fail with the same error.
                        Some(error) if error.is_session_over() => blocks.failed = Some(error),
                        _ => {
                            blocks.is_fetching = true;
                            tokio::spawn(fetch(self.inner.clone()));
                        }
                    }
                }
                if let Some(id) = id {
                    return Ok(id);
                }
            }
            fetched.await;
        }
    }
}

impl Inner {
    fn blocks(&self) -> MutexGuard<'_, Blocks> {
        // Nothing under the lock can panic.
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Fetches a block, in a task of its own, because the future that waits for the block may be
/// dropped.
async fn fetch(inner: Arc<Inner>) {
    let fetched = inner.number.add(inner.size).await;
    {
        let mut blocks = inner.blocks();
        blocks.is_fetching = false;
        match fetched {
            Ok(change) => {
                blocks.ahead = change.after.map(|end| end - inner.size..end);
            }
            Err(error) => blocks.failed = Some(error),
        }
    }
    inner.fetched.notify_waiters();
}
