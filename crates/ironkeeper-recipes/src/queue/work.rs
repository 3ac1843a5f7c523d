//! A work queue: an item is locked while a worker processes it, and deleted when the work is done.
//! Curator's `DistributedQueue`.
//!
//! # On the tree
//! ```text
//! /queues/orders                persistent
//!   queue-0000000007            persistent: one or several items, in Curator's format
//! /queues/orders.locks          persistent; [`Queue::with_lock_path`] sets another path
//!   queue-0000000007            ephemeral: the lock of a worker
//! /queues/orders.takers         the wait queue of consumers
//! /queues/orders.putters        the wait queue of producers, with a limit
//! /queues/orders.receipts       for puts and removals whose reply was lost
//! /queues/orders.malformed      nodes of the queue that were not items
//! ```
//!
//! # Steps
//! 1. [`WorkQueue::put`]: create a persistent sequential node. With a limit: read the number of
//!    items, and write to the queue's node in the same transaction, conditional on the version that
//!    was read, so that two producers that read the same number do not both put.
//! 2. [`WorkQueue::next`]: list items and locks; create a lock for the first item that has none;
//!    read the item. If there is none, join the wait queue. Only the first waiter watches the
//!    queue, and the locks if all items are locked: when the session of a worker expires, its item
//!    is unlocked.
//! 3. [`Delivery::done`] deletes lock and item in one transaction; in the same transaction,
//!    [`Delivery::requeue`] creates the item again at the end.
//!
//! # Guarantees
//! No item is lost, and no locked item is delivered: an item is deleted when its work is done, or
//! is delivered to another worker when the session of the first one has expired. The first worker
//! may not have noticed that yet. [`Delivery::done_with`] puts the writes of the work and its end
//! into one transaction, so that the writes of one worker only are applied; [`Delivery::guard`] has
//! a fencing token.
//!
//! [`WorkQueue::without_locks`] removes an item before it is delivered: at-most-once instead of
//! at-least-once delivery. Producers of this recipe never exceed [`WorkQueue::with_limit`], however
//! many there are. (Curator's producers read the number and then put, without a condition.)
//!
//! A new item costs two watch events however many consumers wait: one for the first waiter, one for
//! the next when the first one leaves the wait queue; a third at the first waiter if the item
//! arrives between its read and its watch. While all items are locked, the end of each costs the
//! first waiter two events.
//!
//! Consumers reject a path with items of a [`SimpleQueue`](super::SimpleQueue), or of a queue with
//! another order: [`RecipeError::OtherRecipe`].
//!
//! # When things break
//! - The connection is lost: all operations continue after the reconnect; a delivery stays locked.
//! - The session has ended: an error; the item is unlocked.
//! - A delivery is dropped: the lock is deleted, the item stays in its position.
//! - The future of [`WorkQueue::next`] is dropped: the same.
//! - The future of a put is dropped: the item is in the queue once or not at all.

use std::collections::HashSet;
use std::convert::Infallible;
use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Happened, Transaction, Version};

use super::item;
use super::line::stand;
use super::naming::sealed::Sealed;
use super::naming::{ItemName, Naming, Order, PREFIX, in_order, refuse_others};
use super::room::Door;
use crate::error::{RecipeError, Result};
use crate::guard::{Guard, from_now};
use crate::lost::Lost;
use crate::place::{Place, beside, create_containers, ensure_persistent, join, patient};
use crate::reads::children_or_none;
use crate::receipt::Receipts;

/// First in, first out.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

impl Sealed for Fifo {
    const NAMING: Naming = Naming::Plain;
}

impl Order for Fifo {}

/// A work queue with some order: the common type of [`WorkQueue`], [`IdQueue`](super::IdQueue),
/// [`PriorityQueue`](super::PriorityQueue) and [`DelayQueue`](super::DelayQueue).
#[derive(Clone, Debug)]
pub struct Queue<O: Order> {
    inner: Arc<Inner>,
    order: PhantomData<O>,
}

/// A work queue on a path.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
/// use ironkeeper_recipes::queue::WorkQueue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let queue = WorkQueue::new(&client, "/queues/orders")?;
///     queue.put("an order").await?;
///
///     let delivery = queue.next().await?;
///     assert_eq!(delivery.items(), ["an order"]);
///     // The result and the end of the work are one transaction: both, or none.
///     delivery.done_with(|both| both.create("/result", "done", CreateMode::Persistent)).await?;
///     assert!(queue.is_empty().await?);
///     Ok(())
/// }
/// ```
#[doc(alias = "DistributedQueue")]
#[doc(alias = "QueueBuilder")]
#[doc(alias = "LockingQueue")]
pub type WorkQueue = Queue<Fifo>;

#[derive(Debug)]
struct Inner {
    client: Client,
    path: String,
    locks: Option<String>,
    takers: String,
    putters: String,
    malformed: String,
    limit: Option<usize>,
    naming: Naming,
    receipts: Receipts,
}

/// The treatment of an item whose work failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorMode {
    /// The item is put at the end of the queue.
    #[default]
    Requeue,
    /// The item is deleted, as if the work had been done.
    Delete,
}

impl<O: Order> Queue<O> {
    /// Creates a handle of a queue on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<Queue<O>> {
        let path = path.into();
        let sides = |what: &str| beside(&path, what);
        Queue::with_sides(client, path.clone(), sides)
    }

    /// Creates a handle of a queue on `path` whose auxiliary nodes have the paths that `sides`
    /// returns.
    pub(super) fn with_sides(
        client: &Client,
        path: String,
        sides: impl Fn(&str) -> Result<String>,
    ) -> Result<Queue<O>> {
        Ok(Queue::of(Inner {
            client: client.clone(),
            path,
            locks: Some(sides("locks")?),
            takers: sides("takers")?,
            putters: sides("putters")?,
            malformed: sides("malformed")?,
            limit: None,
            naming: O::NAMING,
            receipts: Receipts::new(sides("receipts")?),
        }))
    }

    fn of(inner: Inner) -> Queue<O> {
        Queue { inner: Arc::new(inner), order: PhantomData }
    }

    fn changed(self, change: impl FnOnce(&mut Inner)) -> Queue<O> {
        let old = &*self.inner;
        let mut inner = Inner {
            client: old.client.clone(),
            path: old.path.clone(),
            locks: old.locks.clone(),
            takers: old.takers.clone(),
            putters: old.putters.clone(),
            malformed: old.malformed.clone(),
            limit: old.limit,
            naming: old.naming,
            receipts: Receipts::new(old.receipts.path().to_owned()),
        };
        change(&mut inner);
        Queue::of(inner)
    }

    /// Sets the path of the locks. Use the lock path of Curator's participants, if there are any.
    pub fn with_lock_path(self, path: impl Into<String>) -> Queue<O> {
        self.changed(|inner| inner.locks = Some(path.into()))
    }

    /// Removes items before they are delivered. An item is lost if its worker fails.
    pub fn without_locks(self) -> Queue<O> {
        self.changed(|inner| inner.locks = None)
    }

    /// Limits the number of items. All producers should use the same limit.
    #[doc(alias = "maxItems")]
    pub fn with_limit(self, limit: usize) -> Result<Queue<O>> {
        if limit == 0 {
            let why = "a queue that is always full: its limit is 0".to_owned();
            return Err(RecipeError::Misuse(why));
        }
        Ok(self.changed(|inner| inner.limit = Some(limit)))
    }

    /// Returns the path of the queue.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// Returns the client of this handle.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// Returns the number of nodes with items, including the locked ones.
    pub async fn len(&self) -> Result<usize> {
        Ok(self.inner.list().await?.len())
    }

    /// Returns whether there are no items.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.len().await? == 0)
    }

    /// Returns the next unlocked item. Waits for an item if there is none.
    #[doc(alias = "take")]
    #[doc(alias = "get")]
    pub async fn next(&self) -> Result<Delivery> {
        if let Some(delivery) = self.try_next().await? {
            return Ok(delivery);
        }
        let inner = &self.inner;
        inner.ensure().await?;
        let _first = stand(&inner.client, &inner.takers).await?;
        loop {
            // Without watches, because our own lock would fire them.
            if let Some(delivery) = inner.look().await? {
                return Ok(delivery);
            }
            inner.wait().await?;
        }
    }

    /// As [`Queue::next`], but waits at most for `patience`.
    #[doc(alias = "poll_timeout")]
    pub async fn next_within(&self, patience: Duration) -> Result<Option<Delivery>> {
        match tokio::time::timeout(patience, self.next()).await {
            Ok(next) => next.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Returns the next unlocked item, if there is one.
    #[doc(alias = "poll")]
    pub async fn try_next(&self) -> Result<Option<Delivery>> {
        self.inner.look().await
    }

    /// Processes items one after the other, and returns only errors of the queue. To process
    /// several items at a time, call this several times. Dropping the future unlocks the current
    /// item.
    ///
    /// If a node has several items and one of them fails, [`ErrorMode::Requeue`] queues all of them
    /// again, and [`ErrorMode::Delete`] continues with the next item. If the lock is lost, the work
    /// is dropped: another worker may have the item.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    /// use ironkeeper_recipes::queue::{ErrorMode, WorkQueue};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let queue = WorkQueue::new(&client, "/queues/orders")?;
    ///     queue.put_all(["one", "two"]).await?;
    ///     let (seen, mut done) = tokio::sync::mpsc::channel(8);
    ///     let worker = queue.consume(ErrorMode::Requeue, |item| seen.send(item));
    ///     tokio::select! {
    ///         ended = worker => { ended?; }
    ///         second = async { done.recv().await; done.recv().await } => {
    ///             assert_eq!(second.unwrap(), "two");
    ///         }
    ///     }
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "QueueConsumer")]
    pub async fn consume<E: fmt::Display, F>(
        &self,
        mode: ErrorMode,
        mut work: impl FnMut(Bytes) -> F,
    ) -> Result<Infallible>
    where
        F: Future<Output = Result<(), E>>,
    {
        loop {
            let delivery = self.next().await?;
            let worked = async {
                for item in delivery.items() {
                    if let Err(error) = work(item.clone()).await {
                        tracing::warn!(path = delivery.path(), %error, "queue item failed");
                        if mode == ErrorMode::Requeue {
                            return false;
                        }
                    }
                }
                true
            };
            let worked = tokio::select! {
                // `delivery.lost()` is polled second: work that is ready at once costs no read of
                // the lock. The transaction that ends the work checks the lock.
                biased;
                worked = worked => worked,
                lost = delivery.lost() => {
                    tracing::warn!(
                        path = delivery.path(),
                        error = %lost,
                        "work on a queue item abandoned"
                    );
                    continue;
                }
            };
            let ended = if worked { delivery.done().await } else { delivery.requeue().await };
            match ended {
                // This item was delivered to another worker.
                Err(RecipeError::Lost { why: Lost::NodeDeleted, .. }) => {}
                other => other?,
            }
        }
    }

    pub(super) async fn put_items(
        &self,
        base: &str,
        items: &[Bytes],
        patience: Option<Duration>,
    ) -> Result<bool> {
        if items.is_empty() {
            return Err(RecipeError::Misuse("nothing to put into the queue".to_owned()));
        }
        let deadline = patience.map(from_now);
        self.inner.door().put(base, &[item::encode(items)], deadline).await
    }

    pub(super) async fn any(&self, is_meant: impl Fn(&ItemName) -> bool) -> Result<bool> {
        Ok(in_order(&self.inner.list().await?, self.inner.naming).iter().any(is_meant))
    }

    pub(super) async fn remove_where(&self, is_meant: impl Fn(&ItemName) -> bool) -> Result<usize> {
        let mut removed = 0;
        for name in in_order(&self.inner.list().await?, self.inner.naming) {
            if is_meant(&name)
                && let Some(delivery) = self.inner.claim(&name).await?
            {
                match delivery.done().await {
                    Ok(()) => removed += 1,
                    Err(RecipeError::Lost { why: Lost::NodeDeleted, .. }) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(removed)
    }
}

impl Queue<Fifo> {
    /// Puts an item at the end. Waits until the queue is below its limit, if it has one.
    pub async fn put(&self, item: impl Into<Bytes>) -> Result<()> {
        self.put_all([item.into()]).await
    }

    /// Puts several items into one node: one worker receives all of them.
    pub async fn put_all<I: Into<Bytes>>(&self, items: impl IntoIterator<Item = I>) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(PREFIX, &items, None).await?;
        Ok(())
    }

    /// Puts an item, waiting up to `patience` for room. Returns whether it was put.
    pub async fn put_within(&self, item: impl Into<Bytes>, patience: Duration) -> Result<bool> {
        self.put_items(PREFIX, &[item.into()], Some(patience)).await
    }
}

impl Inner {
    fn door(&self) -> Door<'_> {
        Door {
            client: &self.client,
            path: &self.path,
            putters: &self.putters,
            limit: self.limit,
            receipts: &self.receipts,
        }
    }

    async fn ensure(&self) -> Result<()> {
        ensure_persistent(&self.client, &self.path).await
    }

    async fn list(&self) -> Result<Vec<String>> {
        children_or_none(&self.client, &self.path).await
    }

    /// Takes the first available item.
    async fn look(self: &Arc<Inner>) -> Result<Option<Delivery>> {
        let names = self.list().await?;
        let items = in_order(&names, self.naming);
        if items.len() < names.len() {
            refuse_others(&self.path, &names, self.naming)?;
        }
        let locked = match &self.locks {
            Some(locks) if !names.is_empty() => children_or_none(&self.client, locks).await?,
            _ => Vec::new(),
        };
        let now_ms = now_ms();
        for name in free(items, &locked) {
            if self.due_in(&name, now_ms).is_some() {
                // All later items are due later.
                break;
            }
            if let Some(delivery) = self.claim(&name).await? {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }

    /// Returns the time until an item is due, `None` if it is due.
    fn due_in(&self, item: &ItemName, now_ms: i64) -> Option<Duration> {
        let ahead_ms = match self.naming {
            Naming::Delay => item.due_ms().saturating_sub(now_ms),
            _ => 0,
        };
        u64::try_from(ahead_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// Waits until the queue or the locks have changed, or an item is due.
    async fn wait(&self) -> Result<()> {
        let client = &self.client;
        let listed = client.retry(&patient(), || client.children_and_watch(&self.path)).await;
        let (names, changed) = match listed {
            Ok((names, _, watch)) => (names, watch),
            Err(error) if error.kind() == ErrorKind::NoNode => return self.ensure().await,
            Err(error) => return Err(error.into()),
        };
        let mut locked = (Vec::new(), None);
        if let Some(locks) = &self.locks
            && !names.is_empty()
        {
            match client.retry(&patient(), || client.children_and_watch(locks)).await {
                Ok((names, _, watch)) => locked = (names, Some(watch)),
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
        let (locked, unlocked) = locked;
        let now_ms = now_ms();
        let mut due_in = None;
        if let Some(first) = free(in_order(&names, self.naming), &locked).next() {
            due_in = self.due_in(&first, now_ms);
            if due_in.is_none() {
                return Ok(());
            }
        }
        tokio::select! {
            biased;
            event = changed => { event?; }
            event = if_any(unlocked) => { event?; }
            () = if_any(due_in.map(tokio::time::sleep)) => {}
        }
        Ok(())
    }

    /// Locks an item; `None` if it is locked.
    async fn lock(&self, locks: &str, name: &ItemName) -> Result<Option<Place>> {
        let path = join(locks, &name.name);
        loop {
            // Curator stores the address of its client here. Only this recipe reads the data.
            let mark = self.client.random_uuid();
            match Place::claim_below(&self.client, &path, mark.as_bytes()).await {
                // Persistent, not a container: Curator's workers create it at their start only, and
                // take no items after its deletion.
                Err(error) if error.kind() == Some(ErrorKind::NoNode) => {
                    ensure_persistent(&self.client, locks).await?;
                }
                locked => return locked,
            }
        }
    }

    /// Takes an item; `None` if it is locked or deleted.
    async fn claim(self: &Arc<Inner>, name: &ItemName) -> Result<Option<Delivery>> {
        let client = &self.client;
        let path = join(&self.path, &name.name);
        let mut lock = None;
        if let Some(locks) = &self.locks {
            match self.lock(locks, name).await? {
                Some(place) => lock = Some(Guard::new(place)),
                None => return Ok(None),
            }
        }
        let node = match client.retry(&patient(), || client.get(&path)).await {
            Ok(node) => node,
            // The work was done between our list and our lock.
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        if lock.is_none() && !self.receipts.remove(client, &path, &node).await? {
            return Ok(None);
        }
        let items = item::decode(&node.data);
        let is_malformed = items.is_none();
        let delivery = Delivery {
            queue: self.clone(),
            name: name.clone(),
            path,
            data: node.data,
            items: items.unwrap_or_default(),
            lock,
        };
        if is_malformed {
            delivery.set_aside().await?;
            return Ok(None);
        }
        Ok(Some(delivery))
    }
}

/// Returns the unlocked items.
fn free(items: Vec<ItemName>, locked: &[String]) -> impl Iterator<Item = ItemName> {
    let locked: HashSet<&String> = locked.iter().collect();
    items.into_iter().filter(move |item| !locked.contains(&item.name))
}

fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

async fn if_any<F: Future>(future: Option<F>) -> F::Output {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Delivered items. End the work with [`Delivery::done`] or [`Delivery::requeue`]; dropping it
/// unlocks the items, which stay in the queue, unless the queue is without locks.
#[must_use = "a delivery that is dropped leaves its items to others"]
pub struct Delivery {
    queue: Arc<Inner>,
    name: ItemName,
    path: String,
    data: Bytes,
    items: Vec<Bytes>,
    lock: Option<Guard>,
}

impl fmt::Debug for Delivery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Delivery")
            .field("path", &self.path)
            .field("items", &self.items.len())
            .field("lock", &self.lock)
            .finish()
    }
}

impl Delivery {
    /// Returns one item, or several that were put together.
    pub fn items(&self) -> &[Bytes] {
        &self.items
    }

    /// Returns the path of their node, which is already deleted if the queue is without locks.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the id, if they were put with one.
    pub fn id(&self) -> Option<&str> {
        self.name.id()
    }

    /// Returns the lock, with its fencing token. [`Guard::lost`] resolves when it is lost, and
    /// [`Guard::fence`] makes writes conditional on it. `None` if the queue is without locks.
    ///
    /// All locks of an item have the same path: if an operator deletes a lock, and another worker
    /// locks the item, the server still applies a write by [`Guard::fence`] of the first worker.
    /// The writes of [`Delivery::done_with`] are applied once in any case.
    pub fn guard(&self) -> Option<&Guard> {
        self.lock.as_ref()
    }

    /// Resolves when the lock is lost. Never resolves if the queue is without locks.
    pub async fn lost(&self) -> Lost {
        match &self.lock {
            Some(guard) => guard.lost().await,
            None => std::future::pending().await,
        }
    }

    /// Ends the work: deletes the items from the queue.
    #[doc(alias = "ack")]
    pub async fn done(self) -> Result<()> {
        self.done_with(|transaction| transaction).await
    }

    /// Ends the work: deletes the items from the queue and applies the writes of the work, in one
    /// transaction. `write` adds to it, and is called for every try.
    ///
    /// If the server rejects a write, an error is returned and the items are unlocked.
    pub async fn done_with(self, write: impl Fn(Transaction) -> Transaction) -> Result<()> {
        self.end(write).await
    }

    /// Puts the items at the end of the queue, with the same id, priority or due time, because the
    /// work was not done.
    #[doc(alias = "nack")]
    pub async fn requeue(self) -> Result<()> {
        let item = join(&self.queue.path, &self.name.base);
        let data = self.data.clone();
        let mode = CreateMode::PersistentSequential;
        self.end(|transaction| transaction.create(&item, &data, mode)).await
    }

    /// Moves a malformed node out of the queue.
    async fn set_aside(self) -> Result<()> {
        let path = join(&self.queue.malformed, &self.name.name);
        tracing::warn!(path = self.path, moved_to = path, "malformed queue item set aside");
        create_containers(&self.queue.client, &path).await?;
        let data = self.data.clone();
        let mode = CreateMode::PersistentSequential;
        self.end(|transaction| transaction.create(&path, &data, mode)).await
    }

    /// Deletes the items and applies the writes, once.
    async fn end(self, write: impl Fn(Transaction) -> Transaction) -> Result<()> {
        let client = &self.queue.client;
        let Some(lock) = &self.lock else {
            // The items are not in the queue any more.
            return self.queue.receipts.commit(client, write).await;
        };
        let unsure = AtomicBool::new(false);
        let try_once = async || {
            // The lock is the receipt: an earlier try that was applied deleted it. A node that has
            // its name now belongs to another worker with an old list.
            if unsure.load(Ordering::Relaxed) {
                client.sync(lock.path()).await?;
                let found = client.exists(lock.path()).await?;
                if found.is_none_or(|stat| stat.czxid != lock.place().czxid()) {
                    return Ok(true);
                }
            }
            let end = client
                .transaction()
                .delete(lock.path(), Version::Any)
                .delete(&self.path, Version::Any);
            match write(end).commit().await {
                Ok(_) => Ok(true),
                // Another worker has had the lock, or an operator deleted the item.
                Err(error)
                    if error.kind() == ErrorKind::NoNode
                        && matches!(error.failed_operation(), Some(0 | 1)) =>
                {
                    Ok(false)
                }
                Err(error) => {
                    unsure.fetch_or(error.happened() == Happened::Maybe, Ordering::Relaxed);
                    Err(error)
                }
            }
        };
        let ended = client.retry(&patient(), try_once).await;
        let lost = |why| RecipeError::Lost { path: lock.path().to_owned(), why };
        match ended {
            Ok(true) => Ok(()),
            Ok(false) => Err(lost(Lost::NodeDeleted)),
            Err(error) if error.is_session_over() => Err(lost(Lost::SessionEnded)),
            Err(error) => Err(error.into()),
        }
    }
}
