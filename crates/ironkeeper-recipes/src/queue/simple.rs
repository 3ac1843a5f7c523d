//! A FIFO queue of plain data. Curator's `SimpleDistributedQueue`, which is the queue of
//! ZooKeeper's own recipes.
//!
//! # On the tree
//! ```text
//! /queues/orders                container, removed when empty
//!   qn-0000000007               persistent: an item; its data is the item's data
//!   qn-0000000008
//! /queues/orders.takers         the wait queue of consumers
//! /queues/orders.receipts       see below
//! ```
//!
//! # Steps
//! 1. [`SimpleQueue::offer`] creates a persistent sequential node.
//! 2. [`SimpleQueue::poll`] lists the items, reads the one with the smallest number, and deletes
//!    it. The client whose delete succeeds has the item; if it is already deleted, the client takes
//!    the next one.
//! 3. [`SimpleQueue::take`] does the same; if the queue is empty it joins the wait queue. The first
//!    waiter watches the queue, each of the others watches its predecessor.
//!
//! Puts and removals are transactions that also write to a receipt. After a lost reply the
//! transaction is sent again, and the version of the receipt shows whether the first one was
//! applied. So an item is put in once and delivered once.
//!
//! # Guarantees
//! Items are delivered in the order of their numbers, each to one consumer. If a consumer fails
//! after it has taken an item, the item is lost; see [`WorkQueue`](super::WorkQueue) for the
//! alternative. A new item costs two watch events when there are many waiters: one for the first
//! waiter, and one for the next when the first one leaves the wait queue; a third at the first
//! waiter if the item arrives between its read and its watch, or if the server deleted the empty
//! container meanwhile. (Curator's consumers all watch the queue: one more event for each of them.)
//! Consumers reject a path with items of a [`WorkQueue`](super::WorkQueue) or nodes of a lock.
//!
//! # When things break
//! - The connection is lost: all operations continue after the reconnect. If the empty queue's node
//!   was deleted meanwhile, it is created again.
//! - The session has ended: an error. A put or a removal in flight may have been applied or not.
//! - The future of an offer is dropped: the item is in the queue once or not at all.
//! - The future of a removal is dropped: the item stays, or is created again under its old name in
//!   the background.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind};

use super::line::stand;
use crate::error::{RecipeError, Result};
use crate::other_recipes;
use crate::place::{beside, create_containers, join, patient};
use crate::queue_of_waiters::{Bases, line_up};
use crate::reads::children_or_none;
use crate::receipt::{Receipts, refusal};

pub(super) const BASES: Bases = &["qn-"];

/// After this many items that other consumers took first, the list is too old to be useful.
const MISSES_MAX: usize = 8;

/// A FIFO queue on a path.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::queue::SimpleQueue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let queue = SimpleQueue::new(&client, "/queues/orders")?;
///     let taker = tokio::spawn({
///         let queue = queue.clone();
///         async move { queue.take().await }
///     });
///     queue.offer("an order").await?;
///     assert_eq!(taker.await??, "an order");
///     assert_eq!(queue.poll().await?, None);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "SimpleDistributedQueue")]
#[doc(alias = "DistributedQueue")]
pub struct SimpleQueue {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    client: Client,
    path: String,
    takers: String,
    receipts: Receipts,
    /// The items of the last list that were not tried yet, so that the queue is not listed for
    /// every item.
    ahead: Mutex<Ahead>,
}

#[derive(Debug, Default)]
struct Ahead {
    names: VecDeque<String>,
    misses: usize,
}

impl SimpleQueue {
    /// Creates a handle of a queue on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<SimpleQueue> {
        let path = path.into();
        let inner = Inner {
            client: client.clone(),
            takers: beside(&path, "takers")?,
            receipts: Receipts::new(beside(&path, "receipts")?),
            path,
            ahead: Mutex::default(),
        };
        Ok(SimpleQueue { inner: Arc::new(inner) })
    }

    /// Returns the path of the queue.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    pub(super) fn client(&self) -> &Client {
        &self.inner.client
    }

    pub(super) fn receipts(&self) -> &Receipts {
        &self.inner.receipts
    }

    /// Puts an item at the end.
    pub async fn offer(&self, item: impl Into<Bytes>) -> Result<()> {
        self.offer_all([item.into()]).await
    }

    /// Puts several items at the end, in one transaction and in this order.
    pub async fn offer_all<I: Into<Bytes>>(
        &self,
        items: impl IntoIterator<Item = I>,
    ) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        let Inner { client, path, receipts, .. } = &*self.inner;
        let name = join(path, BASES[0]);
        let mode = CreateMode::PersistentSequential;
        loop {
            let offered = receipts
                .commit(client, |once| {
                    items.iter().fold(once, |once, item| once.create(&name, item, mode))
                })
                .await;
            match offered {
                Ok(()) => return Ok(()),
                Err(error) if refusal(&error) == Some(ErrorKind::NoNode) => {
                    create_containers(client, &name).await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Returns the first item without removing it. `None` if the queue is empty.
    pub async fn peek(&self) -> Result<Option<Bytes>> {
        let Inner { client, path, .. } = &*self.inner;
        for name in self.list().await? {
            let item = join(path, &name);
            match client.retry(&patient(), || client.get(&item)).await {
                Ok(node) => return Ok(Some(node.data)),
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(None)
    }

    /// As [`SimpleQueue::peek`], with [`RecipeError::Empty`] if the queue is empty.
    pub async fn element(&self) -> Result<Bytes> {
        self.peek().await?.ok_or_else(|| self.empty())
    }

    /// Removes the first item and returns it. `None` if the queue is empty.
    pub async fn poll(&self) -> Result<Option<Bytes>> {
        let Inner { client, path, receipts, .. } = &*self.inner;
        loop {
            let name = match self.next_ahead() {
                Some(name) => name,
                None => {
                    // Items that are being put back have to be in the list.
                    receipts.settled().await;
                    let names = self.list().await?;
                    if names.is_empty() {
                        return Ok(None);
                    }
                    *self.ahead() = Ahead { names: names.into(), misses: 0 };
                    continue;
                }
            };
            let item = join(path, &name);
            let mut trying = Trying { queue: self, is_over: false };
            let node = match client.retry(&patient(), || client.get(&item)).await {
                Ok(node) => node,
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    trying.is_over = true;
                    self.ahead().misses += 1;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let is_ours = receipts.remove(client, &item, &node).await?;
            trying.is_over = true;
            if is_ours {
                self.ahead().misses = 0;
                return Ok(Some(node.data));
            }
            self.ahead().misses += 1;
        }
    }

    /// As [`SimpleQueue::poll`], with [`RecipeError::Empty`] if the queue is empty.
    pub async fn remove(&self) -> Result<Bytes> {
        self.poll().await?.ok_or_else(|| self.empty())
    }

    /// Removes the first item and returns it. Waits for an item if the queue is empty.
    pub async fn take(&self) -> Result<Bytes> {
        if let Some(item) = self.poll().await? {
            return Ok(item);
        }
        let Inner { client, path, takers, .. } = &*self.inner;
        let _first = stand(client, takers).await?;
        loop {
            // Without a watch, because our own removal would fire it.
            if let Some(item) = self.poll().await? {
                return Ok(item);
            }
            match client.retry(&patient(), || client.children_and_watch(path)).await {
                Ok((names, _, watch)) => {
                    if sorted(&names).is_empty() {
                        watch.await?;
                    }
                }
                // The server has deleted the empty container.
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    create_containers(client, &join(path, BASES[0])).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// As [`SimpleQueue::take`], but waits at most for `patience`.
    #[doc(alias = "poll_timeout")]
    pub async fn poll_within(&self, patience: Duration) -> Result<Option<Bytes>> {
        match tokio::time::timeout(patience, self.take()).await {
            Ok(taken) => taken.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Returns the number of items.
    pub async fn len(&self) -> Result<usize> {
        Ok(self.list().await?.len())
    }

    /// Returns whether there are no items.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.len().await? == 0)
    }

    fn empty(&self) -> RecipeError {
        RecipeError::Empty { path: self.inner.path.clone() }
    }

    fn ahead(&self) -> MutexGuard<'_, Ahead> {
        // Nothing under the lock can panic.
        self.inner.ahead.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next_ahead(&self) -> Option<String> {
        let mut ahead = self.ahead();
        if ahead.misses >= MISSES_MAX {
            ahead.names.clear();
        }
        ahead.names.pop_front()
    }

    /// Returns the items in order.
    async fn list(&self) -> Result<Vec<String>> {
        let Inner { client, path, .. } = &*self.inner;
        let names = children_or_none(client, path).await?;
        let items = sorted(&names);
        if items.len() < names.len() {
            other_recipes::refuse(path, &names, is_item)?;
        }
        Ok(items)
    }
}

/// A try to take the first item. If its future is dropped or it fails, the item may still be the
/// first, and the queue is listed again.
struct Trying<'a> {
    queue: &'a SimpleQueue,
    is_over: bool,
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        if !self.is_over {
            self.queue.ahead().names.clear();
        }
    }
}

/// Returns the items among the names, in order.
fn sorted(names: &[String]) -> Vec<String> {
    let line = line_up(names.iter().filter(|name| is_item(name)), BASES, None);
    line.iter().map(|item| item.name.to_owned()).collect()
}

fn is_item(name: &str) -> bool {
    name.starts_with(BASES[0])
}
