//! One work queue over several nodes, so that none of them has too many children. Curator's
//! `QueueSharder`.
//!
//! # On the tree
//! ```text
//! /queues/clicks                            persistent
//!   queue-<uuid>                            persistent: a shard, which is a [`WorkQueue`]
//!     queue-0000000007
//!   queue-<uuid>
//! /queues/clicks.locks                      siblings of the queue; .takers, .receipts likewise
//!   queue-<uuid>
//!     queue-0000000007                      ephemeral: the lock of a worker
//! ```
//!
//! # Steps
//! 1. [`ShardedQueue::put`] uses the shards in rotation, except the full ones. If all are full, and
//!    their number is below the maximum, it adds a shard: one transaction creates it and writes to
//!    the queue's node, conditional on the version that was read, so that two producers do not both
//!    add a shard.
//! 2. [`ShardedQueue::next`] polls all shards, each time beginning with another one; if all are
//!    empty, it joins the wait queue of each shard, and watches for new shards.
//!
//! # Guarantees
//! As for the [`WorkQueue`], for every item. The order is kept within a shard only, and the
//! threshold is not a limit: at the maximum number of shards, the shards grow. A new item costs two
//! watch events however many consumers wait: one for the first waiter of its shard and one for the
//! next waiter; a new shard costs one event for each waiting consumer.
//!
//! # When things break
//! As for the work queue. Futures may be dropped: locks and wait nodes in all shards are deleted.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind};

use super::naming::PREFIX;
use super::work::{Delivery, WorkQueue};
use crate::error::{RecipeError, Result};
use crate::place::{beside, create_containers, join, patient};

/// Curator's defaults.
const THRESHOLD: usize = 10_000;
const SHARDS_MAX: usize = 10;

/// A work queue over several nodes.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::queue::ShardedQueue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let queue = ShardedQueue::new(&client, "/queues/clicks").with_threshold(1)?;
///     queue.put("one").await?;
///     queue.put("two").await?;
///     assert_eq!(queue.shards().await?.len(), 2);
///     queue.next().await?.done().await?;
///     queue.next().await?.done().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "QueueSharder")]
pub struct ShardedQueue {
    client: Client,
    path: String,
    threshold: usize,
    shards_max: usize,
    /// The index of the shard with which the next operation begins.
    turn: Arc<AtomicUsize>,
    /// The handles of the shards are reused, because they own receipts.
    known: Arc<std::sync::Mutex<std::collections::HashMap<String, WorkQueue>>>,
}

impl ShardedQueue {
    /// Creates a handle of a queue on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> ShardedQueue {
        ShardedQueue {
            client: client.clone(),
            path: path.into(),
            threshold: THRESHOLD,
            shards_max: SHARDS_MAX,
            turn: Arc::default(),
            known: Arc::default(),
        }
    }

    /// Sets the number of items at which a shard is full. The default is 10,000.
    pub fn with_threshold(mut self, items: usize) -> Result<ShardedQueue> {
        if items == 0 {
            return Err(RecipeError::Misuse("shards that are full when empty".to_owned()));
        }
        self.threshold = items;
        Ok(self)
    }

    /// Sets the maximum number of shards. The default is 10.
    pub fn with_max_shards(mut self, shards: usize) -> Result<ShardedQueue> {
        if shards == 0 {
            return Err(RecipeError::Misuse("a sharded queue without shards".to_owned()));
        }
        self.shards_max = shards;
        Ok(self)
    }

    /// Returns the path of the queue.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the existing shards: each is a work queue.
    pub async fn shards(&self) -> Result<Vec<WorkQueue>> {
        let client = &self.client;
        let names = crate::reads::children_or_none(client, &self.path).await?;
        self.shards_of(&names)
    }

    /// Returns the number of nodes with items, in all shards.
    pub async fn len(&self) -> Result<usize> {
        let mut len = 0;
        for shard in self.shards().await? {
            len += shard.len().await?;
        }
        Ok(len)
    }

    /// Returns whether there are no items.
    pub async fn is_empty(&self) -> Result<bool> {
        Ok(self.len().await? == 0)
    }

    /// Puts an item in.
    pub async fn put(&self, item: impl Into<Bytes>) -> Result<()> {
        self.put_all([item.into()]).await
    }

    /// Puts several items into one node: one worker receives all of them.
    pub async fn put_all<I: Into<Bytes>>(&self, items: impl IntoIterator<Item = I>) -> Result<()> {
        let items: Vec<Bytes> = items.into_iter().map(Into::into).collect();
        self.shard_with_room().await?.put_all(items).await
    }

    /// Returns the next unlocked item of any shard. Waits for an item if there is none.
    pub async fn next(&self) -> Result<Delivery> {
        if let Some(delivery) = self.try_next().await? {
            return Ok(delivery);
        }
        let client = &self.client;
        loop {
            let (names, watch) =
                match client.retry(&patient(), || client.children_and_watch(&self.path)).await {
                    Ok((names, _, watch)) => (names, watch),
                    Err(error) if error.kind() == ErrorKind::NoNode => {
                        self.ensure().await?;
                        continue;
                    }
                    Err(error) => return Err(error.into()),
                };
            let shards = self.turned(self.shards_of(&names)?);
            tokio::select! {
                // An available delivery has priority: it is not dropped because of a new shard.
                biased;
                delivery = first_of(shards.iter().map(WorkQueue::next)) => return delivery,
                event = watch => { event?; }
            }
        }
    }

    /// Returns the next unlocked item of any shard, if there is one.
    pub async fn try_next(&self) -> Result<Option<Delivery>> {
        for shard in self.turned(self.shards().await?) {
            if let Some(delivery) = shard.try_next().await? {
                return Ok(Some(delivery));
            }
        }
        Ok(None)
    }

    fn shards_of(&self, names: &[String]) -> Result<Vec<WorkQueue>> {
        let mut names: Vec<&String> =
            names.iter().filter(|name| name.starts_with(PREFIX)).collect();
        names.sort();
        // Nothing under the lock can panic.
        let mut known = self.known.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        known.retain(|name, _| names.contains(&name));
        names
            .into_iter()
            .map(|name| match known.get(name) {
                Some(shard) => Ok(shard.clone()),
                None => {
                    // Not siblings of the shard: Curator treats every child of the queue as a
                    // shard.
                    let sides = |what: &str| Ok(join(&beside(&self.path, what)?, name));
                    let path = join(&self.path, name);
                    let shard = WorkQueue::with_sides(&self.client, path, sides)?;
                    known.insert(name.clone(), shard.clone());
                    Ok(shard)
                }
            })
            .collect()
    }

    /// Returns the same shards, beginning with another one each time.
    fn turned(&self, mut shards: Vec<WorkQueue>) -> Vec<WorkQueue> {
        if !shards.is_empty() {
            let turn = self.turn.fetch_add(1, Ordering::Relaxed);
            let length = shards.len();
            shards.rotate_left(turn % length);
        }
        shards
    }

    async fn shard_with_room(&self) -> Result<WorkQueue> {
        let client = &self.client;
        loop {
            let listed = client.retry(&patient(), || client.children_and_stat(&self.path)).await;
            let (names, stat) = match listed {
                Ok(listed) => listed,
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    self.ensure().await?;
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let shards = self.turned(self.shards_of(&names)?);
            let mut emptiest = None;
            for shard in &shards {
                let path = shard.path();
                let found = client.retry(&patient(), || client.exists(path)).await?;
                let count = found.and_then(|stat| usize::try_from(stat.num_children).ok());
                let count = count.unwrap_or(0);
                if count < self.threshold {
                    return Ok(shard.clone());
                }
                if emptiest.as_ref().is_none_or(|(least, _)| count < *least) {
                    emptiest = Some((count, shard));
                }
            }
            match emptiest {
                Some((_, shard)) if shards.len() >= self.shards_max => return Ok(shard.clone()),
                _ => self.add_shard(stat.version).await?,
            }
        }
    }

    /// Adds a shard, unless another producer adds one at the same time.
    async fn add_shard(&self, version: i32) -> Result<()> {
        let client = &self.client;
        let node = client.retry(&patient(), || client.get(&self.path)).await?;
        let shard = join(&self.path, &format!("{PREFIX}{}", client.random_uuid()));
        let added = client
            .retry(&patient(), || {
                client
                    .transaction()
                    .set(&self.path, &node.data, version)
                    .create(&shard, "", CreateMode::Persistent)
                    .commit()
            })
            .await;
        match added {
            // `BadVersion`: another producer added one, or we did and the reply was lost. The next
            // read shows it.
            Err(error) if error.kind() != ErrorKind::BadVersion => Err(error.into()),
            _ => Ok(()),
        }
    }

    async fn ensure(&self) -> Result<()> {
        let client = &self.client;
        create_containers(client, &self.path).await?;
        let mode = CreateMode::Persistent;
        match client.retry(&patient(), || client.create(&self.path, "", mode)).await {
            Err(error) if !matches!(error.kind(), ErrorKind::NodeExists | ErrorKind::NoNode) => {
                Err(error.into())
            }
            _ => Ok(()),
        }
    }
}

/// Returns the output of the first future that is ready, and drops the others.
async fn first_of<F: Future>(futures: impl Iterator<Item = F>) -> F::Output {
    let mut futures: Vec<Pin<Box<F>>> = futures.map(Box::pin).collect();
    poll_fn(move |cx| {
        for future in &mut futures {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(output);
            }
        }
        Poll::Pending
    })
    .await
}
