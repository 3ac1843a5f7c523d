//! A fair exclusive lock: one holder at a time, in the order of the requests. Curator's
//! `InterProcessMutex`.
//!
//! # On the tree
//! ```text
//! /locks/report                                container, removed when empty
//!   _c_<uuid>-lock-0000000007                  ephemeral: the holder
//!   _c_<uuid>-lock-0000000008                  ephemeral: waits for 7
//!   lock-delay                                 only with a lock-delay: until the holder releases
//! ```
//! With [`Mutex::with_kazoo_names`] the names are `_c_<uuid>-__lock__0000000007`, which kazoo's
//! `Lock` treats as contenders. All users of a path must use the same style: Curator and kazoo
//! ignore the nodes of each other. This lock returns an error if it finds nodes of the other style.
//!
//! # Steps
//! 1. Create an ephemeral sequential child with a protection id in its name.
//! 2. List the children. The contender with the smallest number holds the lock.
//! 3. Otherwise read and watch the predecessor only, the contender with the next smaller number,
//!    and continue with step 2 when it changes. Ironkeeper's servers add the oldest remaining
//!    child to the event ([`Client::get_and_watch_in_line`]): if that is the own node, the lock is
//!    granted without another list, and a change of holders costs the next holder no request.
//! 4. Release by deleting the node. If the next contender belongs to the same session, the lock is
//!    handed over to it while the deletion is in flight: tasks that share a client pass the lock on
//!    without waiting for the server.
//!
//! # Guarantees
//! One holder at a time among guards whose session is open; grants in the order of the sequence
//! numbers; fencing tokens that increase with every grant. One watch event per release, independent
//! of the number of waiters. Not re-entrant: a task that acquires the lock twice waits for itself;
//! see [`Reentrant`](super::Reentrant).
//!
//! # When things break
//! - Disconnected while waiting: the contender stays queued; the wait continues after the
//!   reconnect.
//! - Disconnected while holding: [`Guard::is_valid`] returns `false` until the reconnect; the lock
//!   stays held.
//! - Session ended: a wait returns an error, a guard is lost.
//! - Contender node deleted by another client while waiting: [`RecipeError::NodeGone`], or, after a
//!   handover, a guard that is lost from the beginning. While holding: the guard is lost.
//! - The future of [`Mutex::lock`] dropped: the contender node is deleted.
//!
//! # Lock-delay
//! With [`Mutex::with_lock_delay`] the lock is not granted for some time after a holder has ended
//! without a release, as in Chubby and Consul: requests that the holder sent to systems without
//! fencing tokens can arrive meanwhile.
//!
//! Steps: the contender with the smallest number creates the child `lock-delay` with the name of
//! its own node as data; on release the holder deletes it before its own node. If the contender
//! finds the marker of another holder, it waits for the delay and overwrites the marker with its
//! own name, with the version that it read.
//!
//! Guarantees: after a holder that has not released, the lock is free for at least the delay, by
//! the clock of the next holder and from the moment it finds the marker; no two clocks have to
//! agree. After a release there is no delay. The cost is two writes and a read per grant, and no
//! watch event.
//!
//! When things break: a dropped guard, an ended session and a deleted node all count as an end
//! without release. Contenders without a delay, including Curator's, ignore the marker. If a
//! release cannot delete the marker because the connection is lost for good, the next holder waits
//! for the delay once without need. If the future is dropped while it waits, the contender node is
//! deleted and the marker stays as it was.
//!
//! The lock-delay is for locks with one holder at a time: with several readers or leases, one
//! marker could not identify the holder that ended. [`MultiLock`](super::MultiLock) and the
//! elections guarantee exclusion by nodes only; where late writes do harm, fence them.

use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};

use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lock::event::LockEvents;
use crate::lock::request::{LockRequest, within};
use crate::lock::revocation::revoke;
use crate::place::{Place, join, patient};
use crate::queue_of_waiters::{Bases, Participant, Rule, participants};

pub(crate) const BASES: Bases = &["lock-"];
pub(crate) const KAZOO: Bases = &["__lock__"];

/// The child that represents a holder that has not released yet. It sorts behind all sequence
/// numbers, so Curator's contenders ignore it.
const MARKER: &str = "lock-delay";

/// A fair exclusive lock on a path.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
/// use ironkeeper_recipes::lock::Mutex;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let guard = Mutex::new(&client, "/locks/report").lock().await?;
///     tokio::select! {
///         () = build_report(guard.fencing_token().as_i64()) => {}
///         lost = guard.lost() => return Err(lost.into()), // another client may hold it now
///     }
///     // The server rejects this transaction if the lock is not held any more.
///     guard.transaction().create("/report", "done", CreateMode::Persistent).commit().await?;
///     guard.release().await?;
///     Ok(())
/// }
///
/// async fn build_report(token: i64) {
///     println!("update reports set token = {token} where token < {token}");
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "InterProcessMutex")]
#[doc(alias = "InterProcessLock")]
#[doc(alias = "Lock")]
#[doc(alias = "DistributedLock")]
pub struct Mutex {
    request: LockRequest,
    delay: Option<Duration>,
}

impl Mutex {
    /// Returns a lock on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Mutex {
        Mutex { request: LockRequest::new(client, path.into(), BASES), delay: None }
    }

    /// Sets the data of the contender nodes, which identifies their owner, such as a host or a
    /// task. [`Mutex::participants`] returns it.
    #[doc(alias = "getLockNodeBytes")]
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Mutex {
        self.request.data = data.into();
        self
    }

    /// Uses node names that kazoo's `Lock` understands. All users of the path must do so.
    pub fn with_kazoo_names(mut self) -> Mutex {
        self.request.bases = KAZOO;
        self
    }

    /// Treats a lost connection as the loss of the lock, as Curator's standard policy does.
    #[doc(alias = "StandardConnectionStateErrorPolicy")]
    #[doc(alias = "lose_on_disconnect")]
    pub fn losing_on_suspend(mut self) -> Mutex {
        self.request.loses_on_suspend = true;
        self
    }

    /// Ends the wait with an error when a deadlock is detected and this waiter is the victim. Costs
    /// a second watch while waiting. See [`DeadlockDetector`](super::DeadlockDetector).
    #[doc(alias = "deadlock_detection")]
    pub fn heeding_deadlocks(mut self) -> Mutex {
        self.request.heeds_deadlocks = true;
        self
    }

    /// Delays the next grant by `delay` after a holder has ended without a release, as Chubby and
    /// Consul do: requests that the holder sent can arrive meanwhile. A dropped guard counts as an
    /// end without release. All users of the lock should set a delay; it costs two more writes per
    /// grant. See [the page of this lock](self#lock-delay).
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::Client;
    /// use ironkeeper_recipes::lock::Mutex;
    /// use tokio::time::Instant;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let delay = Duration::from_millis(50);
    ///     let mutex = Mutex::new(&client, "/locks/report").with_lock_delay(delay);
    ///     drop(mutex.lock().await?); // gone without a release
    ///     let begun = Instant::now();
    ///     let guard = mutex.lock().await?;
    ///     assert!(begun.elapsed() >= delay);
    ///     guard.release().await?;
    ///     Ok(())
    /// }
    /// ```
    pub fn with_lock_delay(mut self, delay: Duration) -> Mutex {
        self.delay = Some(delay);
        self
    }

    /// Returns the path of the lock.
    pub fn path(&self) -> &str {
        &self.request.path
    }

    /// Returns the client that acquires the lock.
    pub fn client(&self) -> &Client {
        &self.request.client
    }

    /// Returns the request, for locks that are built on this one.
    pub(crate) fn request(&self) -> &LockRequest {
        &self.request
    }

    /// Subscribes to the events of this lock in this process, from now on.
    pub fn events(&self) -> LockEvents {
        self.request.events()
    }

    /// Waits for the lock.
    #[doc(alias = "acquire")]
    pub async fn lock(&self) -> Result<Guard> {
        let place = self.request.wait(self.request.bases[0], Rule::First).await?;
        self.grant(place).await
    }

    /// Waits for the lock for at most `patience`. On timeout the contender node is deleted, in the
    /// background if necessary, and the result is `None`.
    #[doc(alias = "try_lock_for")]
    #[doc(alias = "acquire_timeout")]
    #[doc(alias = "lock_timeout")]
    pub async fn lock_within(&self, patience: Duration) -> Result<Option<Guard>> {
        within(patience, self.lock()).await
    }

    /// Acquires the lock if there is no holder and no waiter.
    #[doc(alias = "try_acquire")]
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        match self.request.take_if_free(self.request.bases[0], Rule::First).await? {
            Some(place) => self.grant(place).await.map(Some),
            None => Ok(None),
        }
    }

    async fn grant(&self, place: Place) -> Result<Guard> {
        let marker = match self.delay {
            Some(delay) => Some(self.mark(&place, delay).await?),
            None => None,
        };
        Ok(self.request.grant(place).with_marker(marker))
    }

    /// Waits for the delay if another holder ended without a release, and writes the own marker.
    /// The delay starts when this client finds the other marker, by its own clock. Returns the path
    /// and the version of the marker.
    async fn mark(&self, place: &Place, delay: Duration) -> Result<(String, i32)> {
        let (client, marker) = (self.client(), join(self.path(), MARKER));
        let ours = place.name();
        // The marker is written only if the contender node still exists after the delay.
        let still_there = || client.transaction().check(place.path(), Version::Any);
        loop {
            let found = match client.retry(&patient(), || client.get(&marker)).await {
                Ok(node) => Some(node),
                Err(error) if error.kind() == ErrorKind::NoNode => None,
                Err(error) => return Err(error.into()),
            };
            let written = match found {
                // Written by an earlier try whose reply was lost.
                Some(node) if node.data == ours => {
                    client.retry(&patient(), || still_there().commit()).await.map_err(|error| {
                        match error.kind() {
                            ErrorKind::NoNode => {
                                RecipeError::NodeGone { path: place.path().to_owned() }
                            }
                            _ => error.into(),
                        }
                    })?;
                    return Ok((marker, node.stat.version));
                }
                Some(node) => {
                    tokio::time::sleep(delay).await;
                    let version = node.stat.version;
                    let set = still_there().set(&marker, ours, version).commit().await;
                    set.map(|_| version.wrapping_add(1))
                }
                None => {
                    let create = still_there().create(&marker, ours, CreateMode::Persistent);
                    create.commit().await.map(|_| 0)
                }
            };
            match written {
                Ok(version) => return Ok((marker, version)),
                // The outcome is unknown, or another client changed the marker: read it again.
                Err(error)
                    if error.is_retriable()
                        || matches!(
                            error.kind(),
                            ErrorKind::BadVersion | ErrorKind::NodeExists
                        ) => {}
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    if error.failed_operation() == Some(0) {
                        return Err(RecipeError::NodeGone { path: place.path().to_owned() });
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns the holder and all waiters, in the order of the queue.
    #[doc(alias = "getParticipantNodes")]
    #[doc(alias = "contenders")]
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(self.client(), self.path(), self.request.bases).await
    }

    /// Asks the holder to release the lock. Returns whether there was one.
    #[doc(alias = "Revoker")]
    pub async fn revoke_holder(&self) -> Result<bool> {
        match self.participants().await?.first() {
            Some(holder) => revoke(self.client(), &holder.path).await,
            None => Ok(false),
        }
    }
}
