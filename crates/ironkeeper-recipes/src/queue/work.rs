//! A queue of work: items are locked while somebody works on them, and leave the queue when the work is
//! done. Curator's `DistributedQueue`.
//!
//! # On the tree
//! ```text
//! /queues/orders                persistent
//!   queue-0000000007            persistent: one or several items, in Curator's format
//! /queues/orders.locks          persistent (or what `with_lock_path` says)
//!   queue-0000000007            ephemeral: somebody works on it
//! /queues/orders.takers         those who wait for an item, in line
//! /queues/orders.putters        those who wait for room, in line
//! /queues/orders.receipts       for puts and removals whose reply was lost
//! /queues/orders.malformed      nodes that were in the queue and are no items
//! ```
//!
//! # Steps
//! 1. [`WorkQueue::put`]: create a persistent sequential node. With a limit: read how many there are, and
//!    write to the queue's node in the same transaction, from the version that was read. So two
//!    producers that saw the same number do not both put.
//! 2. [`WorkQueue::next`]: list items and locks; create a lock for the first item that has none; read it.
//!    If there is nothing, stand in line. Only the first in line watches the queue, and the locks if
//!    all items are locked: when a worker dies, its item is free again.
//! 3. [`Delivery::done`] deletes lock and item in one transaction, [`Delivery::requeue`] creates the
//!    item anew at the end in the same.
//!
//! # Guarantees
//! Nothing that was put is lost, and nothing is handed out while somebody works on it: an item leaves
//! when its work is done, or goes to another worker when the session of the first one is over. That
//! one may not know yet. [`Delivery::done_with`] makes the writes of the work and its end one
//! transaction, so that only one worker's writes take place; [`Delivery::guard`] has a fencing token.
//!
//! [`WorkQueue::without_locks`] removes an item before it is handed out: at most once instead of at least
//! once. [`WorkQueue::with_limit`] is never exceeded by our producers, however many there are
//! (Curator's look, and then put).
//!
//! An item that comes costs two watch events however many wait: one at the first in line, one at the
//! next when that one leaves; one more at the first if the item comes between its look and its watch.
//! While all items are worked on, the end of each costs the first in line two
//! events.
//!
//! A path with items of a [`SimpleQueue`](super::SimpleQueue), or of a queue in another order, is refused
//! by whoever takes from it: [`RecipeError::OtherRecipe`].
//!
//! # When things break
//! - Disconnected: everything goes on after the reconnect; a delivery stays locked.
//! - Session over: an error; the item is free for others.
//! - A delivery dropped: the lock is given back, the item stays where it was.
//! - The future of [`WorkQueue::next`] dropped: the same.
//! - The future of a put dropped: the item is in the queue once, or not.

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

/// In the order of coming.
#[derive(Clone, Copy, Debug)]
pub struct Fifo;

impl Sealed for Fifo {
    const NAMING: Naming = Naming::Plain;
}

impl Order for Fifo {}

/// What [`WorkQueue`], [`IdQueue`](super::IdQueue), [`PriorityQueue`](super::PriorityQueue) and
/// [`DelayQueue`](super::DelayQueue) have in common: a queue of work, in some order.
#[derive(Clone, Debug)]
pub struct Queue<O: Order> {
    inner: Arc<Inner>,
    order: PhantomData<O>,
}

/// A queue of work on a path.
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

/// What becomes of an item whose work failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ErrorMode {
    /// It is put at the end of the queue.
    #[default]
    Requeue,
    /// It is deleted, as if the work had been done.
    Delete,
}

impl<O: Order> Queue<O> {
    /// A queue on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Result<Queue<O>> {
        let path = path.into();
        let sides = |what: &str| beside(&path, what);
        Queue::with_sides(client, path.clone(), sides)
    }

    /// A queue on `path` with all that belongs to it where `sides` says.
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

    /// Where the locks are: for Curator's participants, what they were built with.
    pub fn with_lock_path(self, path: impl Into<String>) -> Queue<O> {
        self.changed(|inner| inner.locks = Some(path.into()))
    }

    /// Items are removed before they are handed out. What a worker was given is gone with it.
    pub fn without_locks(self) -> Queue<O> {
        self.changed(|inner| inner.locks = None)
    }

    /// Lets nobody put more than so many. All producers should say the same.
    #[doc(alias = "maxItems")]
    pub fn with_limit(self, limit: usize) -> Result<Queue<O>> {
        if limit == 0 {
            let why = "a queue that is always full: its limit is 0".to_owned();
            return Err(RecipeError::Misuse(why));
        }
        Ok(self.changed(|inner| inner.limit = Some(limit)))
    }

    /// The path of the queue.
    pub fn path(&self) -> &str {
        &self.inner.path
    }

    /// The client it is used by.
    pub fn client(&self) -> &Client {
        &self.inner.client
    }

    /// How many nodes with items there are, those that are worked on included.
    pub async fn len(&self) -> Result<usize> {
        Ok(self.inner.list().await?.len())
    }

    /// Whether there are none.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.len().await? == 0)
    }

    /// The next item that nobody works on. Waits for one.
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
            // Without watches, which our own doing would set off.
            if let Some(delivery) = inner.look().await? {
                return Ok(delivery);
            }
            inner.wait().await?;
        }
    }

    /// Waits this long at most.
    #[doc(alias = "poll_timeout")]
    pub async fn next_within(&self, patience: Duration) -> Result<Option<Delivery>> {
        match tokio::time::timeout(patience, self.next()).await {
            Ok(next) => next.map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The next item that nobody works on, if there is one.
    #[doc(alias = "poll")]
    pub async fn try_next(&self) -> Result<Option<Delivery>> {
        self.inner.look().await
    }

    /// Works on items one after the other, until there is an error that is not the worker's. Whoever
    /// wants to work on several at a time calls this several times. Dropping the future gives back
    /// what is being worked on.
    ///
    /// If a node has several items and one of them fails, [`ErrorMode::Requeue`] queues all of them
    /// again, and [`ErrorMode::Delete`] goes on with the next. If the lock is lost, the work is
    /// dropped: somebody else has the item.
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
                        tracing::warn!(path = delivery.path(), %error, "an item of a queue failed");
                        if mode == ErrorMode::Requeue {
                            return false;
                        }
                    }
                }
                true
            };
            let worked = tokio::select! {
                // Work that is done at once costs no look at the lock; its end is conditional on that.
                biased;
                worked = worked => worked,
                lost = delivery.lost() => {
                    tracing::warn!(path = delivery.path(), %lost, "given up the work on an item");
                    continue;
                }
            };
            let ended = if worked { delivery.done().await } else { delivery.requeue().await };
            match ended {
                // Of one item that somebody else has now.
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
    /// Puts an item in, at the end. Waits for room if there is a limit.
    pub async fn put(&self, item: impl Into<Bytes>) -> Result<()> {
        self.put_all([item.into()]).await
    }

    /// Puts several items in, as one: one worker gets all of them.
    pub async fn put_all<I: Into<Bytes>>(&self, items: impl IntoIterator<Item = I>) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.put_items(PREFIX, &items, None).await?;
        Ok(())
    }

    /// Puts an item in if there is room, or will be within this time. Says whether it was put.
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

    /// Takes the first item that can be had.
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
                // All behind it are due later.
                break;
            }
            if let Some(delivery) = self.claim(&name).await? {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }

    /// How long until an item is due, if it is not.
    fn due_in(&self, item: &ItemName, now_ms: i64) -> Option<Duration> {
        let ahead_ms = match self.naming {
            Naming::Delay => item.due_ms().saturating_sub(now_ms),
            _ => 0,
        };
        u64::try_from(ahead_ms).ok().filter(|ms| *ms > 0).map(Duration::from_millis)
    }

    /// Waits until another look is worth it.
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

    /// Locks one item, if nobody else has it.
    async fn lock(&self, locks: &str, name: &ItemName) -> Result<Option<Place>> {
        let path = join(locks, &name.name);
        loop {
            // Curator has its client's address in there. Nobody reads it but us.
            let mark = self.client.random_uuid();
            match Place::claim_below(&self.client, &path, mark.as_bytes()).await {
                // Persistent, not a container: Curator's workers make it when they start, and if it goes
                // later they take no item any more.
                Err(error) if error.kind() == Some(ErrorKind::NoNode) => {
                    ensure_persistent(&self.client, locks).await?;
                }
                locked => return locked,
            }
        }
    }

    /// Takes one item, if it is there and nobody else has it.
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
            // Its work was done between our look and our lock.
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

/// The items that nobody works on.
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

/// Items that were handed out. End the work with [`Delivery::done`] or [`Delivery::requeue`]; dropping it
/// leaves the items in the queue for others, if they are locked.
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
    /// What was put in: one item, or several that were put together.
    pub fn items(&self) -> &[Bytes] {
        &self.items
    }

    /// The node they are in, or were in if the queue is one without locks.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The id, if they were put with one.
    pub fn id(&self) -> Option<&str> {
        self.name.id()
    }

    /// The lock: it says whether it was lost, has a fencing token, and can make writes fail when it is
    /// not held any more. `None` if the queue is one without locks.
    ///
    /// All locks of an item have the same name: should an operator delete one, and another worker lock
    /// the item, a write by [`Guard::fence`] takes place nevertheless. What [`Delivery::done_with`] writes
    /// takes place once in any case.
    pub fn guard(&self) -> Option<&Guard> {
        self.lock.as_ref()
    }

    /// Resolves when somebody else may work on it. Never, if the queue is one without locks.
    pub async fn lost(&self) -> Lost {
        match &self.lock {
            Some(guard) => guard.lost().await,
            None => std::future::pending().await,
        }
    }

    /// The work is done: the items leave the queue.
    #[doc(alias = "ack")]
    pub async fn done(self) -> Result<()> {
        self.done_with(|transaction| transaction).await
    }

    /// The work is done: the items leave the queue, and what the work wrote takes place in the same
    /// transaction. `write` adds to it, and is called for every try.
    ///
    /// A write that is refused is an error, after which the items are free for others.
    pub async fn done_with(self, write: impl Fn(Transaction) -> Transaction) -> Result<()> {
        self.end(write).await
    }

    /// The work was not done: the items go to the end of the queue, with the id, the priority or the
    /// time they had.
    #[doc(alias = "nack")]
    pub async fn requeue(self) -> Result<()> {
        let item = join(&self.queue.path, &self.name.base);
        let data = self.data.clone();
        let mode = CreateMode::PersistentSequential;
        self.end(|transaction| transaction.create(&item, &data, mode)).await
    }

    /// Moves what is no item out of the way.
    async fn set_aside(self) -> Result<()> {
        let path = join(&self.queue.malformed, &self.name.name);
        tracing::warn!(from = self.path, to = path, "a node in a queue is no item");
        create_containers(&self.queue.client, &path).await?;
        let data = self.data.clone();
        let mode = CreateMode::PersistentSequential;
        self.end(|transaction| transaction.create(&path, &data, mode)).await
    }

    /// Removes the items and writes something, once.
    async fn end(self, write: impl Fn(Transaction) -> Transaction) -> Result<()> {
        let client = &self.queue.client;
        let Some(lock) = &self.lock else {
            // They are not in the queue any more.
            return self.queue.receipts.commit(client, write).await;
        };
        let unsure = AtomicBool::new(false);
        let try_once = async || {
            // The lock is the receipt: by an earlier try of ours it went with the item, and what is there
            // under its name by now is another's, who has an old list.
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
                // Somebody else had the lock meanwhile, or an operator deleted the item.
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
