//! A fair exclusive lock: one at a time, in the order of asking. Curator's `InterProcessMutex`.
//!
//! # On the tree
//! ```text
//! /locks/report                                container, removed when empty
//!   _c_<uuid>-lock-0000000007                  ephemeral: the holder
//!   _c_<uuid>-lock-0000000008                  ephemeral: waits for 7
//!   lock-delay                                 only with a lock-delay: the holder has not released yet
//! ```
//! With [`Mutex::with_kazoo_names`] the names are `_c_<uuid>-__lock__0000000007`, which kazoo's `Lock` takes for its
//! own. All users of a path have to agree on the style: those of Curator and of kazoo do not see each other, and a
//! lock of ours that finds names of the other style refuses the path.
//!
//! # Steps
//! 1. Create an ephemeral sequential child with a unique mark in its name.
//! 2. List the children. Whoever has the smallest number holds the lock.
//! 3. Else read and watch the next smaller one alone, and begin again at 2 when it changes. If it is gone and the
//!    server says that ours is the oldest node now, the lock is ours without another look: Ironkeeper's servers do so
//!    ([`Client::get_and_watch_in_line`]), and a hand-over costs the next holder no request.
//! 4. Release by deleting the node. If the next in line is of the same session, the lock is handed on to it while the
//!    deletion is under way: tasks of one program that share a client take turns without waiting for the server.
//!
//! # Guarantees
//! One holder at a time among guards whose session lives; grants in the order of the nodes' numbers;
//! fencing tokens grow with every grant. One watch event per release, however many wait. Not
//! re-entrant: a task that asks twice waits for itself;
//! see [`Reentrant`](super::Reentrant).
//!
//! # When things break
//! - Disconnected while waiting: the place in line stays; the wait goes on after the reconnect.
//! - Disconnected while holding: [`Guard::is_valid`] says no until the reconnect; the lock is held on.
//! - Session over: the wait ends with an error, the guard is lost.
//! - Our node deleted by somebody else while waiting: [`RecipeError::NodeGone`], or a guard that is lost from the
//!   beginning if the lock was handed on to us; while holding: lost.
//! - The future of [`Mutex::lock`] dropped: the place in line is given back.
//!
//! # Lock-delay
//! With [`Mutex::with_lock_delay`] the lock stays closed for a while when its holder goes without releasing
//! it, as Chubby's and Consul's do: what it had on its way to servers that know nothing of fencing tokens
//! can arrive meanwhile.
//!
//! Steps: whoever stands first creates the child `lock-delay` with the name of its own node as data, and
//! deletes it before its node when it releases. Whoever stands first and finds one of another holder
//! waits for the delay and writes its own name over it, from the version that it read.
//!
//! Guarantees: after a holder that has not released nobody holds the lock for the length of the delay,
//! counted by the clock of the next one from when it finds the marker; no two clocks have to agree. After
//! a release nobody waits. It costs two writes and a read per grant, and no watch event.
//!
//! When things break: a dropped guard, a session that is over and a deleted node all count as gone without
//! release. Contenders without a delay, Curator's among them, overlook the marker. If the reply to the
//! deletion of the marker is lost for good, the next holder waits once for nothing. A future that is
//! dropped while it waits gives its place back and leaves the marker as it was.
//!
//! It is for locks with one holder at a time: among readers, or holders of leases, one marker could not
//! say which of them has gone. [`MultiLock`](super::MultiLock) and the elections promise no more than to
//! exclude by nodes; where late writes do harm, fence them.

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

/// The child that stands for a holder that has not released yet. It sorts behind all numbers, which is
/// what lets Curator's contenders overlook it.
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
    /// A lock on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Mutex {
        Mutex { request: LockRequest::new(client, path.into(), BASES), delay: None }
    }

    /// What the nodes say about their owner: a host, a task. Others see it with
    /// [`Mutex::participants`].
    #[doc(alias = "getLockNodeBytes")]
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Mutex {
        self.request.data = data.into();
        self
    }

    /// Names that kazoo's `Lock` understands. All users of the path have to do so.
    pub fn with_kazoo_names(mut self) -> Mutex {
        self.request.bases = KAZOO;
        self
    }

    /// Takes a broken connection for a loss, as Curator's standard policy does.
    #[doc(alias = "StandardConnectionStateErrorPolicy")]
    #[doc(alias = "lose_on_disconnect")]
    pub fn losing_on_suspend(mut self) -> Mutex {
        self.request.loses_on_suspend = true;
        self
    }

    /// Lets the wait end when a deadlock is found and this waiter is chosen to give way. Costs a
    /// second watch while waiting. See [`DeadlockDetector`](super::DeadlockDetector).
    #[doc(alias = "deadlock_detection")]
    pub fn heeding_deadlocks(mut self) -> Mutex {
        self.request.heeds_deadlocks = true;
        self
    }

    /// Keeps the lock closed for this long when its holder goes without releasing it, as Chubby and
    /// Consul do: whatever the holder had on its way can arrive meanwhile. A dropped guard counts as
    /// gone without release. All who ask for the lock should ask with a delay; it costs two more
    /// writes per grant. See [the page of this lock](self#lock-delay).
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

    /// The path of the lock.
    pub fn path(&self) -> &str {
        &self.request.path
    }

    /// The client that asks for it.
    pub fn client(&self) -> &Client {
        &self.request.client
    }

    /// For locks that are built on this one.
    pub(crate) fn request(&self) -> &LockRequest {
        &self.request
    }

    /// What happens to this lock in this process from now on.
    pub fn events(&self) -> LockEvents {
        self.request.events()
    }

    /// Waits for the lock.
    #[doc(alias = "acquire")]
    pub async fn lock(&self) -> Result<Guard> {
        let place = self.request.wait(self.request.bases[0], Rule::First).await?;
        self.grant(place).await
    }

    /// Waits for the lock this long at most. `None` if it was not granted: the place in line has been
    /// given back.
    #[doc(alias = "try_lock_for")]
    #[doc(alias = "acquire_timeout")]
    #[doc(alias = "lock_timeout")]
    pub async fn lock_within(&self, patience: Duration) -> Result<Option<Guard>> {
        within(patience, self.lock()).await
    }

    /// Takes the lock if nobody holds it or waits for it.
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

    /// Waits until the delay of a holder that went without release is over, and puts up our own
    /// marker. The time is counted from when we see it, by our own clock: no two clocks have to agree.
    async fn mark(&self, place: &Place, delay: Duration) -> Result<(String, i32)> {
        let (client, marker) = (self.client(), join(self.path(), MARKER));
        let ours = place.name();
        // Whoever waited through a delay must still be there to profit from it.
        let still_there = || client.transaction().check(place.path(), Version::Any);
        loop {
            let found = match client.retry(&patient(), || client.get(&marker)).await {
                Ok(node) => Some(node),
                Err(error) if error.kind() == ErrorKind::NoNode => None,
                Err(error) => return Err(error.into()),
            };
            let written = match found {
                // An earlier try whose answer was lost.
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
                // Somebody who removes what is left over; look again.
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

    /// Everybody who holds or waits, in order.
    #[doc(alias = "getParticipantNodes")]
    #[doc(alias = "contenders")]
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(self.client(), self.path(), self.request.bases).await
    }

    /// Asks the holder to give the lock back. Says whether there was one.
    #[doc(alias = "Revoker")]
    pub async fn revoke_holder(&self) -> Result<bool> {
        match self.participants().await?.first() {
            Some(holder) => revoke(self.client(), &holder.path).await,
            None => Ok(false),
        }
    }
}
