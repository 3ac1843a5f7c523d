//! A value that many clients change concurrently, without losing a change. Curator's
//! `DistributedAtomicValue`.
//!
//! # On the tree
//! ```text
//! /counters/hits                               persistent: the value
//! /counters/hits-lock                          only with a promotion: the path of a fair mutex
//! /counters/hits-receipts                      only with receipts, container
//!   _c_<uuid>-receipt-0000000004               ephemeral: the id of its owner's last change
//! ```
//!
//! # Steps
//! 1. Read the value and its version; compute the new value.
//! 2. Write it, conditional on the version; if the version has changed, start over.
//! 3. After a number of failed attempts, acquire the lock and continue under it. All clients with
//!    that many failures acquire the same lock, so that they write one after another.
//!
//! # Guarantees
//! A change is applied to the latest value, or not at all; two changes never overwrite each other.
//! Without promotion some client always makes progress, but no particular one; with promotion, the
//! failing clients are queued in order of arrival. No watch events, except one per transfer of the
//! lock.
//!
//! # When things break
//! - The reply to a write is lost: the write is repeated, and if its condition fails, the value is
//!   read. If the next version holds other data, another client was first, and the change starts
//!   over. Otherwise (a later version, or the same data, which another client may have written) it
//!   is unknown whether the write was applied: the error is the lost connection, and its
//!   [`happened`](ironkeeper_client::Error::happened) returns `Maybe`.
//! - With receipts ([`AtomicValue::with_receipts`]) it is always known: the transaction that writes
//!   the value also writes a unique id to an ephemeral node of this session. Then every change is
//!   made exactly once as long as the session is open.
//! - Session ended: an error. Without a reply it is unknown whether the last write was applied.
//! - The future of a change is dropped: the change is applied completely or not at all.

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

/// The default number of attempts before the promotion to a lock.
const TRIES_BEFORE_LOCK: u32 = 8;

/// The cost of a change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AtomicStats {
    /// Attempts without the lock.
    pub optimistic_tries: u32,
    /// Their duration.
    pub optimistic_time: Duration,
    /// Attempts under the lock.
    pub promoted_tries: u32,
    /// Their duration, including the wait for the lock.
    pub promoted_time: Duration,
}

/// The result of a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "a change that has a limit of tries may not have been applied"]
#[non_exhaustive]
pub struct Change<T> {
    /// Whether the change was applied. It is not if the limit of attempts is reached, if the wait
    /// for the lock times out, or if a comparison fails.
    pub applied: bool,
    /// The value before the change, or, if it was not applied, the last value that was read. `None`
    /// if there was no node.
    pub before: Option<T>,
    /// The value after the change, if it was applied.
    pub after: Option<T>,
    /// The cost of the change.
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
    /// Locked for the duration of one write: a receipt holds the id of one change.
    receipt: Option<Arc<AsyncMutex<Option<Place>>>>,
}

impl AtomicValue {
    /// Creates a handle for the value on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> AtomicValue {
        AtomicValue {
            client: client.clone(),
            path: path.into(),
            tries_max: None,
            promotion: None,
            receipt: None,
        }
    }

    /// Limits the attempts. After `tries` attempts the change is abandoned, or the lock is
    /// acquired; after as many attempts under the lock it is abandoned. Without a limit and without
    /// a lock, attempts continue until one succeeds.
    pub fn with_tries(mut self, tries: u32) -> AtomicValue {
        self.tries_max = Some(tries.max(1));
        self
    }

    /// Acquires the fair mutex on `lock_path` after too many failed attempts, and waits at most
    /// `patience` for it.
    pub fn promoted_to(mut self, lock_path: impl Into<String>, patience: Duration) -> AtomicValue {
        self.promotion = Some(Promotion { mutex: Mutex::new(&self.client, lock_path), patience });
        self
    }

    /// Writes a receipt with every change, which shows after a lost reply whether the change was
    /// applied. Costs one node per handle and one more operation in each write, but no more
    /// requests.
    pub fn with_receipts(mut self) -> AtomicValue {
        self.receipt = Some(Arc::default());
        self
    }

    /// Returns the path of the value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the present value; `None` if there is no node.
    pub async fn get(&self) -> Result<Option<Bytes>> {
        Ok(self.read().await?.map(|node| node.data))
    }

    /// Creates the node with a value if it does not exist. Returns whether it was created.
    pub async fn initialize(&self, value: impl AsRef<[u8]>) -> Result<bool> {
        Ok(matches!(self.write(value.as_ref(), Upon::Nothing).await?, Outcome::Applied))
    }

    /// Writes the value unconditionally and once: after a lost connection the write is repeated if
    /// it was not applied. Where other clients have written since, that is unknown, and the error
    /// is the lost connection; with [`AtomicValue::with_receipts`] it is always known.
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

    /// Writes `value` if the present value is `expected`. Makes one attempt, which fails if another
    /// client writes meanwhile. A missing node equals no value, not even an empty one.
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

    /// Replaces the value by the result of `f`, which may be called many times.
    pub async fn update<V: Into<Bytes>>(
        &self,
        mut f: impl FnMut(Option<&[u8]>) -> V,
    ) -> Result<Change<Bytes>> {
        self.try_update(|before| Ok(f(before).into())).await
    }

    /// Does the same as [`AtomicValue::update`], with an `f` that may return an error.
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
            // Clients with fewer failures write without the lock, so the write of its holder may
            // fail too.
            while !change.applied
                && self.tries_max.is_none_or(|max| change.stats.promoted_tries < max)
            {
                change.stats.promoted_tries = change.stats.promoted_tries.saturating_add(1);
                self.try_once(&mut f, &mut change).await?;
            }
            match guard.release().await {
                // The change depends on the version, not on the lock.
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
                // Another client deleted the receipt, which is the only record of whether an
                // earlier attempt was applied.
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
    /// Another client wrote first.
    Contended,
}
