//! A value that is changed by many at once, and no change is lost. Curator's `DistributedAtomicValue`.
//!
//! # On the tree
//! ```text
//! /counters/hits                               persistent: the value
//! /counters/hits-lock                          only with a promotion: the path of a fair mutex
//! /counters/hits-receipts                      only with receipts, container
//!   _c_<uuid>-receipt-0000000004               ephemeral: the last change that its owner has made
//! ```
//!
//! # Steps
//! 1. Read the value and its version; work out the new value.
//! 2. Write it on the condition that the version is still the same; if it is not, begin again.
//! 3. After so many tries in vain, take the lock, and go on under it. Everybody who loses comes to the
//!    same lock, so that they write one after another.
//!
//! # Guarantees
//! A change is applied to the latest value, or not at all; two changes never overwrite each other.
//! Without promotion somebody always gets on, but nobody in particular; with it, losers queue up in the
//! order of their coming. No watch events, except one per hand-over of the lock.
//!
//! # When things break
//! - The reply to a write is lost: the value is read again. Mostly that tells whether the write took
//!   place. Where it cannot (others have written since, or have written the very same bytes), the error
//!   is the lost connection, and its [`happened`](ironkeeper_client::Error::happened) says `Maybe`.
//! - With receipts ([`AtomicValue::with_receipts`]) it always can be told: the same transaction that
//!   writes the value leaves a mark in a node of ours. Then every change is made exactly once as long
//!   as the session lives.
//! - Session over: an error. Without a reply, nobody can say whether the last write took place.
//! - The future of a change dropped: the change takes place or does not, but never half.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Happened, Node, Version};
use tokio::sync::Mutex as AsyncMutex;
use tokio::time::Instant;

use crate::error::{RecipeError, Result};
use crate::lock::Mutex;
use crate::place::{Place, create_containers, patient};
use crate::shared::write::{Upon, Written, overwrite_or_create, refuse_wild_version, write_once};

/// Tries before the promotion to a lock, if nothing else was said.
const TRIES_BEFORE_LOCK: u32 = 8;

/// What a change cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtomicStats {
    /// Tries without the lock.
    pub optimistic_tries: u32,
    /// How long they took.
    pub optimistic_time: Duration,
    /// Tries under the lock.
    pub promoted_tries: u32,
    /// How long they took, with the wait for the lock.
    pub promoted_time: Duration,
}

/// What became of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a change that has a limit of tries may not have been applied"]
#[non_exhaustive]
pub struct Change<T> {
    /// Whether the change took place. Without a limit of tries it always does, except for a
    /// comparison that failed.
    pub applied: bool,
    /// The value before the change, or, if it was not applied, the last one that was seen. `None` if
    /// there was no node.
    pub before: Option<T>,
    /// The value after the change, if it was applied.
    pub after: Option<T>,
    /// What it cost.
    pub stats: AtomicStats,
}

impl<T> Change<T> {
    pub(crate) fn try_map<U>(self, mut f: impl FnMut(T) -> Result<U>) -> Result<Change<U>> {
        Ok(Change {
            applied: self.applied,
            before: self.before.map(&mut f).transpose()?,
            after: self.after.map(&mut f).transpose()?,
            stats: self.stats,
        })
    }
}

#[derive(Clone, Debug)]
struct Promotion {
    mutex: Mutex,
    patience: Duration,
}

/// A value on a path that is changed atomically.
///
/// ```
/// use std::time::Duration;
///
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::shared::AtomicValue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let names = AtomicValue::new(&client, "/names")
///         .with_tries(5)
///         .promoted_to("/names-lock", Duration::from_secs(10));
///     let change = names.update(|before| [before.unwrap_or_default(), b"anna,"].concat()).await?;
///     assert!(change.applied);
///     assert_eq!(change.after.unwrap(), "anna,");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "DistributedAtomicValue")]
pub struct AtomicValue {
    client: Client,
    path: String,
    tries_max: Option<u32>,
    promotion: Option<Promotion>,
    /// Taken for the length of one write: a receipt holds the mark of one change.
    receipt: Option<Arc<AsyncMutex<Option<Place>>>>,
}

impl AtomicValue {
    /// A value on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> AtomicValue {
        AtomicValue {
            client: client.clone(),
            path: path.into(),
            tries_max: None,
            promotion: None,
            receipt: None,
        }
    }

    /// Gives up, or takes the lock, after so many tries, and gives up after as many under the lock.
    /// Without this and without a lock, tries go on until one succeeds.
    pub fn with_tries(mut self, tries: u32) -> AtomicValue {
        self.tries_max = Some(tries.max(1));
        self
    }

    /// Takes the fair mutex on `lock_path` when too many tries were in vain, and waits this long for
    /// it at most.
    pub fn promoted_to(mut self, lock_path: impl Into<String>, patience: Duration) -> AtomicValue {
        self.promotion = Some(Promotion { mutex: Mutex::new(&self.client, lock_path), patience });
        self
    }

    /// Leaves a receipt with every change, so that a lost reply never leaves a doubt. Costs one node
    /// per handle and one more operation in each write, but no more requests.
    pub fn with_receipts(mut self) -> AtomicValue {
        self.receipt = Some(Arc::default());
        self
    }

    /// The path of the value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The present value; `None` if there is no node.
    pub async fn get(&self) -> Result<Option<Bytes>> {
        Ok(self.read().await?.map(|node| node.data))
    }

    /// Creates the node with a value if it is not there. Says whether it did.
    pub async fn initialize(&self, value: impl AsRef<[u8]>) -> Result<bool> {
        Ok(matches!(self.write(value.as_ref(), Upon::Nothing).await?, Outcome::Applied))
    }

    /// Writes, whatever was there, and once: repeated after a lost connection if it was not carried out.
    /// Where others have written since, that cannot be told, and the error is the loss of the connection;
    /// with [`AtomicValue::with_receipts`] it always can.
    pub async fn set(&self, value: impl AsRef<[u8]>) -> Result<()> {
        let value = value.as_ref();
        if self.receipt.is_none() {
            return overwrite_or_create(&self.client, &self.path, value).await;
        }
        loop {
            let node = self.read().await?;
            let upon = node.map_or(Upon::Nothing, |node| Upon::stat(&node.stat));
            if let Outcome::Applied = self.write(value, upon).await? {
                return Ok(());
            }
        }
    }

    /// Writes `value` if the present one is `expected`. One try: whoever writes meanwhile wins. A
    /// node that is not there equals nothing.
    #[doc(alias = "compareAndSet")]
    #[doc(alias = "compare_and_swap")]
    #[doc(alias = "cas")]
    pub async fn compare_and_set(
        &self,
        expected: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<Change<Bytes>> {
        let started = Instant::now();
        let (expected, value) = (expected.as_ref(), value.as_ref());
        let node = self.read().await?;
        let outcome = match &node {
            Some(node) if node.data == expected => {
                self.write(value, Upon::stat(&node.stat)).await?
            }
            _ => Outcome::Contended,
        };
        let applied = matches!(outcome, Outcome::Applied);
        Ok(Change {
            applied,
            before: node.map(|node| node.data),
            after: applied.then(|| Bytes::copy_from_slice(value)),
            stats: AtomicStats {
                optimistic_tries: 1,
                optimistic_time: started.elapsed(),
                ..AtomicStats::default()
            },
        })
    }

    /// Replaces the value by one that depends on it. `f` may be called many times.
    pub async fn update<V: Into<Bytes>>(
        &self,
        mut f: impl FnMut(Option<&[u8]>) -> V,
    ) -> Result<Change<Bytes>> {
        self.try_update(|before| Ok(f(before).into())).await
    }

    /// As [`AtomicValue::update`], with an `f` that may refuse.
    pub async fn try_update(
        &self,
        mut f: impl FnMut(Option<&[u8]>) -> Result<Bytes>,
    ) -> Result<Change<Bytes>> {
        let mut change =
            Change { applied: false, before: None, after: None, stats: AtomicStats::default() };
        let limit = match (&self.promotion, self.tries_max) {
            (Some(_), None) => Some(TRIES_BEFORE_LOCK),
            (_, tries) => tries,
        };

        let started = Instant::now();
        while !change.applied && limit.is_none_or(|max| change.stats.optimistic_tries < max) {
            change.stats.optimistic_tries = change.stats.optimistic_tries.saturating_add(1);
            self.try_once(&mut f, &mut change).await?;
        }
        change.stats.optimistic_time = started.elapsed();

        let Some(promotion) = self.promotion.as_ref().filter(|_| !change.applied) else {
            return Ok(change);
        };
        let started = Instant::now();
        if let Some(guard) = promotion.mutex.lock_within(promotion.patience).await? {
            // Those who have not lost often enough yet write without the lock, so that even its
            // holder may lose.
            while !change.applied
                && self.tries_max.is_none_or(|max| change.stats.promoted_tries < max)
            {
                change.stats.promoted_tries = change.stats.promoted_tries.saturating_add(1);
                self.try_once(&mut f, &mut change).await?;
            }
            match guard.release().await {
                // The change stands by its version, not by the lock.
                Err(RecipeError::Lost { .. }) => {}
                other => other?,
            }
        }
        change.stats.promoted_time = started.elapsed();
        Ok(change)
    }

    async fn try_once(
        &self,
        f: &mut impl FnMut(Option<&[u8]>) -> Result<Bytes>,
        change: &mut Change<Bytes>,
    ) -> Result<()> {
        let node = self.read().await?;
        let upon = node.as_ref().map_or(Upon::Nothing, |node| Upon::stat(&node.stat));
        let before = node.map(|node| node.data);
        let after = f(before.as_deref())?;
        change.before = before;
        if let Outcome::Applied = self.write(&after, upon).await? {
            change.applied = true;
            change.after = Some(after);
        }
        Ok(())
    }

    async fn read(&self) -> Result<Option<Node>> {
        match self.client.retry(&patient(), || self.client.get(&self.path)).await {
            Ok(node) => Ok(Some(node)),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    async fn write(&self, value: &[u8], upon: Upon) -> Result<Outcome> {
        if let Some(receipt) = &self.receipt {
            return self.write_with_receipt(&mut *receipt.lock().await, value, upon).await;
        }
        Ok(match write_once(&self.client, &self.path, value, upon).await? {
            Written::Yes(_) => Outcome::Applied,
            Written::No => Outcome::Contended,
        })
    }

    async fn write_with_receipt(
        &self,
        receipt: &mut Option<Place>,
        value: &[u8],
        upon: Upon,
    ) -> Result<Outcome> {
        let (client, mark) = (&self.client, self.client.random_uuid());
        if let Upon::Version(version, _) = upon {
            refuse_wild_version(&self.path, version)?;
        }
        let mut in_doubt = false;
        loop {
            let place = match receipt.take() {
                Some(place) => receipt.insert(place),
                None => {
                    let parent = format!("{}-receipts", self.path);
                    let mode = CreateMode::EphemeralSequential;
                    receipt.insert(Place::take(client, &parent, "receipt-", b"", mode).await?)
                }
            };
            let transaction = match upon {
                Upon::Nothing => {
                    client.transaction().create(&self.path, value, CreateMode::Persistent)
                }
                Upon::Version(version, _) => client.transaction().set(&self.path, value, version),
            };
            let error = match transaction.set(place.path(), &mark, Version::Any).commit().await {
                Ok(_) => return Ok(Outcome::Applied),
                Err(error) => error,
            };
            match (error.kind(), error.failed_operation(), upon) {
                // Somebody deleted the receipt. Whether a try before this one took place was written
                // there and nowhere else.
                (ErrorKind::NoNode, Some(1), _) => {
                    *receipt = None;
                    if in_doubt {
                        return Err(error.into());
                    }
                }
                (ErrorKind::NoNode, _, Upon::Nothing) => {
                    create_containers(client, &self.path).await?;
                }
                (ErrorKind::NodeExists, _, Upon::Nothing)
                | (ErrorKind::BadVersion | ErrorKind::NoNode, _, Upon::Version(..)) => {
                    let ours = in_doubt
                        && client.retry(&patient(), || client.get(place.path())).await?.data
                            == mark;
                    return Ok(if ours { Outcome::Applied } else { Outcome::Contended });
                }
                _ if error.is_retriable() => {
                    in_doubt |= error.happened() == Happened::Maybe;
                    client.retry(&patient(), || client.sync(&self.path)).await?;
                }
                _ => return Err(error.into()),
            }
        }
    }
}

enum Outcome {
    Applied,
    /// Somebody else was first.
    Contended,
}
