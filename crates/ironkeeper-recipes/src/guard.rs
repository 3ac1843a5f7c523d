//! Guards of locks, leases and leaderships: the node that proves the ownership, the fencing token,
//! and the notification of a loss.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ironkeeper_client::{
    Client, ConnectionState, ErrorKind, Node, SessionId, States, Transaction, Version, Zxid,
};
use tokio::sync::broadcast;
use tokio::time::Instant;

use crate::error::{RecipeError, Result};
use crate::lock::LockEvent;
use crate::lost::Lost;
use crate::place::{Place, patient};

/// The data that a revocation request writes to the holder's node, as Curator's does.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// A held lock, lease or leadership. Release it with [`Guard::release`]; dropping it does the same
/// in the background.
///
/// A guard is held as long as its node exists and its session is open. A holder can detect the end
/// only after a delay. So work that must never be done by two holders at the same time should
///
/// - stop when [`Guard::lost`] resolves,
/// - pass [`Guard::fencing_token`] to the systems it writes to, which then reject tokens smaller
///   than the largest they have received,
/// - or write by [`Guard::fence`], so that the server rejects the write if the guard is lost.
///
/// While the connection is lost the guard is in doubt: [`Guard::is_valid`] returns `false`, and
/// [`Guard::lost`] stays pending until the session has ended, or until a read after the reconnect
/// finds that the node was deleted, unless the recipe treats a lost connection as a loss.
///
/// A plain change of holders costs one watch event, at the next contender. A holder that awaits
/// [`Guard::lost`] or [`Guard::revocation`] has a watch on its own node, which fires once more on
/// release.
#[must_use = "a guard that is dropped gives back what it holds"]
pub struct Guard {
    place: Place,
    token: Zxid,
    /// The connection states since the grant, if a lost connection counts as a loss.
    suspensions: Option<Mutex<Suspensions>>,
    /// The time at which the lease expires.
    deadline: Option<Instant>,
    known_lost: AtomicBool,
    events: Option<broadcast::Sender<LockEvent>>,
    /// The path and version of the lock-delay marker, which exists until the holder releases.
    marker: Option<(String, i32)>,
}

struct Suspensions {
    changes: States,
    seen: bool,
}

impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("path", &self.path())
            .field("fencing_token", &self.token)
            .field("is_valid", &self.is_valid())
            .finish()
    }
}

impl Guard {
    pub(crate) fn new(place: Place) -> Guard {
        Guard {
            token: place.czxid(),
            place,
            suspensions: None,
            deadline: None,
            known_lost: AtomicBool::new(false),
            events: None,
            marker: None,
        }
    }

    pub(crate) fn with_token(mut self, token: Zxid) -> Guard {
        self.token = token;
        self
    }

    pub(crate) fn losing_on_suspend(mut self, yes: bool) -> Guard {
        self.suspensions = yes.then(|| {
            let changes = self.client().states();
            // `changes` does not contain the present state.
            Mutex::new(Suspensions { changes, seen: !self.client().state().is_connected() })
        });
        self
    }

    pub(crate) fn until(mut self, deadline: Option<Instant>) -> Guard {
        self.deadline = deadline;
        self
    }

    pub(crate) fn telling(mut self, events: Option<broadcast::Sender<LockEvent>>) -> Guard {
        self.events = events;
        self
    }

    pub(crate) fn with_marker(mut self, marker: Option<(String, i32)>) -> Guard {
        self.marker = marker;
        self
    }

    /// Returns whether a loss was detected: by [`Guard::lost`], by [`Guard::check`], or by a lost
    /// connection that counts as a loss.
    pub(crate) fn is_known_lost(&self) -> bool {
        self.was_suspended() || self.known_lost.load(Ordering::Acquire)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// Returns the path of the node that represents the guard.
    pub fn path(&self) -> &str {
        self.place.path()
    }

    /// Returns the name of that node.
    pub fn node_name(&self) -> &str {
        self.place.name()
    }

    /// Returns the session that holds the guard.
    pub fn session_id(&self) -> SessionId {
        SessionId(self.place.stat().ephemeral_owner)
    }

    /// Returns the client of that session.
    pub fn client(&self) -> &Client {
        self.place.client()
    }

    /// Returns a number that increases with every grant: the zxid of the transaction that created
    /// the node. A receiver of work from several holders can reject work whose token is smaller
    /// than the largest it has received.
    #[doc(alias = "fence")]
    #[doc(alias = "czxid")]
    pub fn fencing_token(&self) -> Zxid {
        self.token
    }

    /// Returns whether the guard is held, as far as this process knows: the session is open, the
    /// client is connected and has recently received a packet, and no loss was detected. Makes no
    /// request. Returns `false` immediately after this process was suspended for so long that the
    /// session may have ended.
    #[doc(alias = "is_held")]
    #[doc(alias = "is_acquired")]
    #[doc(alias = "isAcquiredInThisProcess")]
    #[doc(alias = "isOwnedByCurrentThread")]
    pub fn is_valid(&self) -> bool {
        !self.was_suspended()
            && !self.known_lost.load(Ordering::Acquire)
            && self.place.client().is_in_touch()
            && self.place.is_of_this_session()
            && !self.place.is_void()
            && self.deadline.is_none_or(|deadline| Instant::now() < deadline)
    }

    /// Adds a check to a transaction, so that the server applies it only if the guard is still
    /// held. A stale holder's write fails with [`ErrorKind::NoNode`](ironkeeper_client::ErrorKind).
    ///
    /// The check tests the path of the node, which is unique to a guard in most recipes. Recipes
    /// whose holders share a path document that.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        transaction.check(self.path(), Version::Any)
    }

    /// Returns a transaction that the server applies only if the guard is still held. See
    /// [`Guard::fence`].
    pub fn transaction(&self) -> Transaction {
        self.fence(self.client().transaction())
    }

    /// Asks the server whether the guard is still held.
    pub async fn check(&self) -> Result<bool> {
        let client = self.place.client();
        let found = client.retry(&patient(), || client.exists(self.path())).await?;
        // Compare the czxid: another client may have created a node with the same name since.
        let held = found.is_some_and(|stat| {
            stat.czxid == self.place.czxid() && stat.ephemeral_owner == client.session_id().0
        });
        if !held {
            self.known_lost.store(true, Ordering::Release);
        }
        Ok(held)
    }

    /// Waits until the guard is lost: the session has ended, or another client has deleted the
    /// node.
    #[doc(alias = "on_lost")]
    #[doc(alias = "connection_lost")]
    pub async fn lost(&self) -> Lost {
        let lost = tokio::select! {
            // `biased`: if several reasons apply, return the final one.
            biased;
            lost = self.ended() => lost,
            () = self.suspended(), if self.suspensions.is_some() => Lost::Suspended,
            () = at(self.deadline) => Lost::Expired,
        };
        self.known_lost.store(true, Ordering::Release);
        if let Some(events) = &self.events {
            // `Err` means that there are no listeners.
            let _ = events.send(LockEvent::Lost { path: self.path().to_owned(), why: lost });
        }
        lost
    }

    async fn ended(&self) -> Lost {
        loop {
            if let Err(lost) = self.changed(|_| false).await {
                return lost;
            }
        }
    }

    /// Waits until the node satisfies a condition. Returns an error if the node does not exist or
    /// was replaced by another one.
    async fn changed(&self, condition: impl Fn(&Node) -> bool) -> Result<(), Lost> {
        let client = self.place.client();
        loop {
            match client.retry(&patient(), || client.get_and_watch(self.path())).await {
                Ok((node, _)) if node.stat.czxid != self.place.czxid() => {
                    return Err(Lost::NodeDeleted);
                }
                Ok((node, _)) if condition(&node) => return Ok(()),
                Ok((_, watch)) => {
                    // If the watch was removed, read the node again.
                    if watch.await.is_err_and(|error| error.is_session_over()) {
                        return Err(Lost::SessionEnded);
                    }
                }
                Err(error) if error.kind() == ErrorKind::NoNode => return Err(Lost::NodeDeleted),
                // Without permission to read its own node, the holder detects only the end of the
                // session.
                Err(error) if error.kind() == ErrorKind::NoAuth => {
                    let mut states = client.states();
                    while !client.state().is_final() && states.next().await.is_some() {}
                    return Err(Lost::SessionEnded);
                }
                Err(_) => return Err(Lost::SessionEnded),
            }
        }
    }

    /// Returns whether the connection was lost since the grant, if that counts as a loss.
    fn was_suspended(&self) -> bool {
        let Some(suspensions) = &self.suspensions else { return false };
        let mut suspensions = suspensions.lock().unwrap_or_else(PoisonError::into_inner);
        let Suspensions { changes, seen } = &mut *suspensions;
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(state)) = pin!(changes.next()).poll(&mut context) {
            *seen |= !state.is_connected();
        }
        *seen
    }

    async fn suspended(&self) {
        let mut states: States = self.place.client().states();
        if self.was_suspended() {
            return;
        }
        let mut state = Some(self.place.client().state());
        while let Some(now) = state {
            if !now.is_connected() && now != ConnectionState::Connecting {
                return;
            }
            state = states.next().await;
        }
    }

    /// Waits until another client asks the holder to release ([`crate::lock::revoke`], or Curator's
    /// `Revoker`). Returns an error if the guard is lost before that. The holder decides whether to
    /// comply.
    #[doc(alias = "makeRevocable")]
    pub async fn revocation(&self) -> Result<()> {
        self.changed(|node| node.data == REVOKE_MESSAGE)
            .await
            .map_err(|why| RecipeError::Lost { path: self.path().to_owned(), why })
    }

    /// Releases the guard. While the connection is lost, waits for the reconnect; when this returns
    /// `Ok`, the node is deleted. [`RecipeError::Lost`] means that the node had been deleted
    /// before: another holder may have held the lock meanwhile.
    #[doc(alias = "unlock")]
    pub async fn release(mut self) -> Result<()> {
        let path = self.path().to_owned();
        let lost = |why| RecipeError::Lost { path: path.clone(), why };
        if let Some((marker, version)) = self.marker.take() {
            let client = self.place.client();
            // With another version, the marker belongs to another holder. If the marker stays, the
            // next holder waits for the lock-delay once.
            let _ = client.retry(&patient(), || client.delete(&marker, version)).await;
        }
        let was_there = match self.place.withdraw().await {
            Ok(was_there) => was_there,
            Err(error) if error.is_session_over() => return Err(lost(Lost::SessionEnded)),
            Err(error) => return Err(error),
        };
        if !was_there {
            return Err(lost(Lost::NodeDeleted));
        }
        tell(self.events.as_ref(), LockEvent::Released { path });
        Ok(())
    }
}

pub(crate) fn tell(events: Option<&broadcast::Sender<LockEvent>>, event: LockEvent) {
    if let Some(events) = events {
        // `Err` means that there are no listeners.
        let _ = events.send(event);
    }
}

/// Returns the instant `time` from now, at most 30 years from now.
pub(crate) fn from_now(time: Duration) -> Instant {
    const AGE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(time.min(AGE)).unwrap_or(now)
}

/// Waits until `deadline`, or forever if it is `None`.
pub(crate) async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
