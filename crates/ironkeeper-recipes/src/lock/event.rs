//! Listening to a lock: what happens to it in this process, and to the connection that it depends on.
//!
//! # On the tree
//! Nothing. The events come from the tasks that ask for the lock and hold it, and from the client.
//!
//! # Steps
//! 1. [`Mutex::events`](super::Mutex::events), [`ReadWriteLock::events`](super::ReadWriteLock::events),
//!    [`Semaphore::events`](super::Semaphore::events) or
//!    [`SemaphoreMutex::events`](super::SemaphoreMutex::events) subscribes: to all that happens by this
//!    handle, its clones and its guards from then on.
//! 2. [`LockEvents::next`] tells one thing after the other.
//!
//! # Guarantees
//! For each request: [`Queued`](LockEvent::Queued), then [`Waiting`](LockEvent::Waiting) for everybody who is
//! in the way, then [`Granted`](LockEvent::Granted), then [`Released`](LockEvent::Released) or
//! [`Lost`](LockEvent::Lost), in this order. Those of several requests are mixed, and told apart by the
//! path. Semaphores have two kinds of nodes, places in a line and leases; nobody in particular is in the way
//! of a lease, and `Waiting` is not told of it. A listener that does not come for them loses the oldest, and
//! is told how many ([`Missed`](LockEvent::Missed)); it never delays the lock. No requests and no watch events.
//!
//! # When things break
//! - Disconnected, connected again, session over: [`Connection`](LockEvent::Connection) says so. What is held
//!   is in doubt until it is connected again.
//! - A lost lock is told of by whoever awaits [`Guard::lost`](crate::Guard::lost); without that there is
//!   nobody who looks.
//! - A guard that is dropped gives its lock back in the background, and nothing is told of that.
//! - [`LockEvents::next`] may be dropped: nothing is missed.

use ironkeeper_client::{Client, ConnectionState, States, Zxid};
use tokio::sync::broadcast;

use crate::lost::Lost;

/// How many events wait for a listener that does not come; older ones are dropped.
pub(crate) const EVENTS_MAX: usize = 64;

/// Something happened to a lock, as seen by the process that asks for it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// It was asked for, and took its place in line.
    Queued {
        /// Our node.
        path: String,
    },
    /// Somebody is in the way.
    Waiting {
        /// Our node.
        path: String,
        /// The node we wait for.
        behind: String,
    },
    /// A deadlock was found that we are a part of, and somebody else is to give way. Told to locks with
    /// `heeding_deadlocks()`.
    Deadlocked {
        /// Our node.
        path: String,
        /// Who waits for whom.
        cycle: String,
    },
    /// It was granted.
    Granted {
        /// Our node.
        path: String,
        /// The fencing token of the guard.
        token: Zxid,
    },
    /// It was given back.
    Released {
        /// The node that is gone.
        path: String,
    },
    /// It was lost; told by whoever awaits [`Guard::lost`](crate::Guard::lost).
    Lost {
        /// The node.
        path: String,
        /// How.
        why: Lost,
    },
    /// The connection changed: what is held may be in doubt, or gone.
    Connection(ConnectionState),
    /// The listener was too slow, and so many events are missing here.
    Missed(u64),
}

/// The events of a lock and of its connection, from the moment of the subscription on.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::{LockEvent, Mutex};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mutex = Mutex::new(&client, "/locks/report");
///     let mut events = mutex.events();
///     let guard = mutex.lock().await?;
///     assert!(matches!(events.next().await, Some(LockEvent::Queued { .. })));
///     let Some(LockEvent::Granted { token, .. }) = events.next().await else { panic!() };
///     assert_eq!(token, guard.fencing_token());
///     guard.release().await?;
///     assert!(matches!(events.next().await, Some(LockEvent::Released { .. })));
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct LockEvents {
    events: broadcast::Receiver<LockEvent>,
    states: States,
    connection_is_over: bool,
}

impl LockEvents {
    pub(crate) fn new(client: &Client, events: broadcast::Receiver<LockEvent>) -> LockEvents {
        LockEvents { events, states: client.states(), connection_is_over: false }
    }

    /// The next event; `None` when the lock and all its guards are gone.
    pub async fn next(&mut self) -> Option<LockEvent> {
        loop {
            tokio::select! {
                biased;
                event = self.events.recv() => return match event {
                    Ok(event) => Some(event),
                    Err(broadcast::error::RecvError::Lagged(missed)) => {
                        Some(LockEvent::Missed(missed))
                    }
                    Err(broadcast::error::RecvError::Closed) => None,
                },
                state = self.states.next(), if !self.connection_is_over => match state {
                    Some(state) => return Some(LockEvent::Connection(state)),
                    None => self.connection_is_over = true,
                },
            }
        }
    }
}
