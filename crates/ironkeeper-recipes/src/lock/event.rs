//! Events of a lock: its requests in this process, and the state of their connection.
//!
//! # On the tree
//! No nodes. The events come from the tasks that acquire and hold the lock, and from the client.
//!
//! # Steps
//! 1. [`Mutex::events`](super::Mutex::events),
//!    [`ReadWriteLock::events`](super::ReadWriteLock::events),
//!    [`Semaphore::events`](super::Semaphore::events) or
//!    [`SemaphoreMutex::events`](super::SemaphoreMutex::events) subscribes to all later events of
//!    this handle, its clones and its guards.
//! 2. [`LockEvents::next`] returns the events one by one.
//!
//! # Guarantees
//! For each request: [`Queued`](LockEvent::Queued), then [`Waiting`](LockEvent::Waiting) for each
//! predecessor, then [`Granted`](LockEvent::Granted), then [`Released`](LockEvent::Released) or
//! [`Lost`](LockEvent::Lost), in this order. Events of several requests are interleaved and
//! distinguished by the path. Semaphores have two kinds of nodes, queue nodes and leases; a lease
//! does not wait for one particular node, so there is no `Waiting` for it. A slow listener loses
//! the oldest events and receives their number ([`Missed`](LockEvent::Missed)); it never delays the
//! lock. Events cost no requests and no watch events.
//!
//! # When things break
//! - Disconnected, reconnected, session ended: [`Connection`](LockEvent::Connection). Guards are in
//!   doubt until the reconnect.
//! - Lock lost: [`Lost`](LockEvent::Lost) is sent by a task that awaits
//!   [`Guard::lost`](crate::Guard::lost); without such a task the loss is not detected.
//! - Guard dropped: the lock is released in the background, without an event.
//! - The future of [`LockEvents::next`] dropped: no event is lost.

use ironkeeper_client::{Client, ConnectionState, States, Zxid};
use tokio::sync::broadcast;

use crate::lost::Lost;

/// The maximum number of events buffered for a slow listener; older ones are dropped.
pub(crate) const EVENTS_MAX: usize = 64;

/// An event of a lock in this process.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LockEvent {
    /// A request created its node in the queue.
    Queued {
        /// The node of the request.
        path: String,
    },
    /// A request waits for its predecessor.
    Waiting {
        /// The node of the request.
        path: String,
        /// The node of the predecessor.
        behind: String,
    },
    /// A [`DeadlockDetector`](super::DeadlockDetector) announced a deadlock that includes this
    /// request, without making it the victim. Sent for locks with `heeding_deadlocks()`.
    Deadlocked {
        /// The node of the request.
        path: String,
        /// The waits of the cycle.
        cycle: String,
    },
    /// The lock was granted.
    Granted {
        /// The node of the request.
        path: String,
        /// The fencing token of the guard.
        token: Zxid,
    },
    /// The lock was released.
    Released {
        /// The deleted node.
        path: String,
    },
    /// The lock was lost; sent when [`Guard::lost`](crate::Guard::lost) returns.
    Lost {
        /// The node.
        path: String,
        /// The reason.
        why: Lost,
    },
    /// The state of the connection changed: guards may be in doubt or lost.
    Connection(ConnectionState),
    /// The listener was too slow, and this many events were dropped here.
    Missed(u64),
}

/// The events of a lock and of its connection since the subscription.
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

    /// Returns the next event, or `None` when the lock and all its guards are dropped.
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
