//! What is held: a node that proves it, a token that orders it, and the news of its end.

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

/// What a revocation request puts into the node of the holder, as Curator's does.
pub(crate) const REVOKE_MESSAGE: &[u8] = b"__REVOKE__";

/// Something held. Give it back with [`Guard::release`]; dropping it does the same in the background.
///
/// A guard is held as long as its node is there and its session lives. Nobody can promise more than to
/// notice the end soon: work that must not be done by two at once should
///
/// - stop when [`Guard::lost`] resolves,
/// - hand [`Guard::fencing_token`] to whatever it writes to, which then refuses smaller tokens than the
///   largest it has seen,
/// - or write by [`Guard::fence`], so that the server itself refuses when the guard is gone.
///
/// While the connection is broken the guard is in doubt: [`Guard::is_valid`] says no, and
/// [`Guard::lost`] waits for what becomes of the session, unless the recipe was told to take a broken
/// connection for a loss.
///
/// A plain hand-over costs one watch event, at the next in line. Whoever awaits [`Guard::lost`] or
/// [`Guard::revocation`] has a watch on its own node, which fires once more when that is released.
#[must_use = "a guard that is dropped gives back what it holds"]
pub struct Guard {
    place: Place,
    token: Zxid,
    /// The changes of the connection since the grant, if a broken one is to be taken for a loss.
    suspensions: Option<Mutex<Suspensions>>,
    /// When the lease ends by itself.
    deadline: Option<Instant>,
    known_lost: AtomicBool,
    events: Option<broadcast::Sender<LockEvent>>,
    /// A node, and its version, that says that the holder has not released yet. See the lock-delay.
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
            // What came before is not among the changes.
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

    /// Whether somebody has found out that it is lost.
    pub(crate) fn is_known_lost(&self) -> bool {
        self.was_suspended() || self.known_lost.load(Ordering::Acquire)
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    /// The node that stands for what is held.
    pub fn path(&self) -> &str {
        self.place.path()
    }

    /// The name of that node.
    pub fn node_name(&self) -> &str {
        self.place.name()
    }

    /// The session that holds it.
    pub fn session_id(&self) -> SessionId {
        SessionId(self.place.stat().ephemeral_owner)
    }

    /// The client it is held by.
    pub fn client(&self) -> &Client {
        self.place.client()
    }

    /// A number that grows with every grant: the transaction that created the node. Whoever receives
    /// work of several holders can refuse what comes with a smaller token than the largest seen.
    #[doc(alias = "fence")]
    #[doc(alias = "czxid")]
    pub fn fencing_token(&self) -> Zxid {
        self.token
    }

    /// Whether, as far as this process knows, it is held: the session lives, the connection stands and has been
    /// heard of, and nothing else is known. Makes no request. It says no at once after this process has stood still for
    /// so long that the session may be over.
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

    /// Lets a transaction take place only if this is still held, by a check that the server itself
    /// makes. A stale holder's write fails with [`ErrorKind::NoNode`](ironkeeper_client::ErrorKind).
    ///
    /// The check is for the node by its name, which is unique to a guard in most recipes. Those whose
    /// holders use a common name say so.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        transaction.check(self.path(), Version::Any)
    }

    /// A transaction that takes place only if this is still held. See [`Guard::fence`].
    pub fn transaction(&self) -> Transaction {
        self.fence(self.client().transaction())
    }

    /// Asks the server whether it is held.
    pub async fn check(&self) -> Result<bool> {
        let client = self.place.client();
        let found = client.retry(&patient(), || client.exists(self.path())).await?;
        // By its creation: another may have made a node of the same name since.
        let held = found.is_some_and(|stat| {
            stat.czxid == self.place.czxid() && stat.ephemeral_owner == client.session_id().0
        });
        if !held {
            self.known_lost.store(true, Ordering::Release);
        }
        Ok(held)
    }

    /// Resolves when it is lost: when the session is over, or when somebody else has deleted the node.
    #[doc(alias = "on_lost")]
    #[doc(alias = "connection_lost")]
    pub async fn lost(&self) -> Lost {
        let lost = tokio::select! {
            // Of several reasons, the one that is final.
            biased;
            lost = self.ended() => lost,
            () = self.suspended(), if self.suspensions.is_some() => Lost::Suspended,
            () = at(self.deadline) => Lost::Expired,
        };
        self.known_lost.store(true, Ordering::Release);
        if let Some(events) = &self.events {
            // Nobody listens, then.
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

    /// Resolves when the node's data satisfies a condition; with an error when there is no node, or
    /// another one in its place.
    async fn changed(&self, condition: impl Fn(&Node) -> bool) -> Result<(), Lost> {
        let client = self.place.client();
        loop {
            match client.retry(&patient(), || client.get_and_watch(self.path())).await {
                Ok((node, _)) if node.stat.czxid != self.place.czxid() => {
                    return Err(Lost::NodeDeleted);
                }
                Ok((node, _)) if condition(&node) => return Ok(()),
                Ok((_, watch)) => {
                    // A watch that somebody removed tells nothing: it is looked again.
                    if watch.await.is_err_and(|error| error.is_session_over()) {
                        return Err(Lost::SessionEnded);
                    }
                }
                Err(error) if error.kind() == ErrorKind::NoNode => return Err(Lost::NodeDeleted),
                // Whoever may not read its own node learns of its end only with the session.
                Err(error) if error.kind() == ErrorKind::NoAuth => {
                    let mut states = client.states();
                    while !client.state().is_final() && states.next().await.is_some() {}
                    return Err(Lost::SessionEnded);
                }
                Err(_) => return Err(Lost::SessionEnded),
            }
        }
    }

    /// Whether the connection has broken since the grant, and that counts.
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

    /// Resolves when somebody asks the holder to give it back ([`crate::lock::revoke`], or Curator's
    /// `Revoker`); with an error when it is lost before that. Heeding it is up to the holder.
    #[doc(alias = "makeRevocable")]
    pub async fn revocation(&self) -> Result<()> {
        self.changed(|node| node.data == REVOKE_MESSAGE)
            .await
            .map_err(|why| RecipeError::Lost { path: self.path().to_owned(), why })
    }

    /// Gives it back. Broken connections are waited for; when this returns without an error, the node
    /// is gone. [`RecipeError::Lost`] says that it was gone before: somebody else may have held it
    /// meanwhile.
    #[doc(alias = "unlock")]
    pub async fn release(mut self) -> Result<()> {
        let path = self.path().to_owned();
        let lost = |why| RecipeError::Lost { path: path.clone(), why };
        if let Some((marker, version)) = self.marker.take() {
            let client = self.place.client();
            // Of another version or gone, it is not ours any more. A marker that stays costs the next
            // holder a delay, no more.
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
        // An error says that nobody listens.
        let _ = events.send(event);
    }
}

/// The moment after so long. What is too far away to be counted is an age away.
pub(crate) fn from_now(time: Duration) -> Instant {
    const AGE: Duration = Duration::from_secs(30 * 365 * 24 * 60 * 60);
    let now = Instant::now();
    now.checked_add(time.min(AGE)).unwrap_or(now)
}

/// Resolves at a moment, or never if there is none.
pub(crate) async fn at(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
