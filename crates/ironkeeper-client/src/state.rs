//! The connection state, and the stream of its changes.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use futures_core::Stream;

use crate::lock;

/// The state of a client's connection. The names and meanings are Curator's.
///
/// ```
/// use ironkeeper_client::ConnectionState;
/// assert!(ConnectionState::Reconnected.is_connected());
/// assert!(!ConnectionState::Suspended.is_connected());
/// assert!(ConnectionState::Lost.is_final());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[doc(alias = "KazooState")]
#[doc(alias = "KeeperState")]
pub enum ConnectionState {
    /// No server has accepted the session yet.
    Connecting,
    /// Connected for the first time.
    Connected,
    /// Connected to a server without a quorum, which only serves reads.
    ReadOnly,
    /// The connection broke. The session may be live or expired: until the next state, a client
    /// must not rely on its ephemeral nodes and locks.
    Suspended,
    /// Connected again, with the same session.
    Reconnected,
    /// The session has expired: the server has deleted its ephemeral nodes or will do so soon.
    /// Final.
    Lost,
    /// The user closed the client. Final.
    Closed,
    /// The server rejected the credentials. Final.
    AuthFailed,
}

impl ConnectionState {
    /// Returns whether the server executes requests, at least reads.
    ///
    /// ```
    /// use ironkeeper_client::ConnectionState;
    /// assert!(ConnectionState::ReadOnly.is_connected());
    /// assert!(!ConnectionState::Connecting.is_connected());
    /// ```
    pub fn is_connected(self) -> bool {
        use ConnectionState::*;
        matches!(self, Connected | ReadOnly | Reconnected)
    }

    /// Returns whether the server accepts writes as well. The data of a server without a quorum may
    /// be outdated.
    ///
    /// ```
    /// use ironkeeper_client::ConnectionState;
    /// assert!(ConnectionState::Reconnected.takes_writes());
    /// assert!(!ConnectionState::ReadOnly.takes_writes());
    /// ```
    pub fn takes_writes(self) -> bool {
        self.is_connected() && self != ConnectionState::ReadOnly
    }

    /// Returns whether this state is the last one.
    ///
    /// ```
    /// use ironkeeper_client::ConnectionState;
    /// assert!(ConnectionState::Closed.is_final());
    /// assert!(!ConnectionState::Suspended.is_final());
    /// ```
    pub fn is_final(self) -> bool {
        matches!(
            self,
            ConnectionState::Lost | ConnectionState::Closed | ConnectionState::AuthFailed
        )
    }
}

impl fmt::Display for ConnectionState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ConnectionState::Connecting => "connecting",
            ConnectionState::Connected => "connected",
            ConnectionState::ReadOnly => "connected read-only",
            ConnectionState::Suspended => "suspended",
            ConnectionState::Reconnected => "reconnected",
            ConnectionState::Lost => "lost",
            ConnectionState::Closed => "closed",
            ConnectionState::AuthFailed => "authentication failed",
        })
    }
}

/// The bound of changes that wait for a slow reader. The oldest are dropped first: a late reader
/// needs the current state.
const WAITING_MAX: usize = 256;

/// The stream of the changes of the connection state, from the subscription on. It ends after a
/// final state.
///
/// ```
/// use ironkeeper_client::{Client, ConnectionState};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut states = client.states();
///     client.close().await?;
///     assert_eq!(states.next().await, Some(ConnectionState::Closed));
///     assert_eq!(states.next().await, None);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "ConnectionStateListener")]
pub struct States {
    slot: Arc<Mutex<StatesSlot>>,
}

#[derive(Debug, Default)]
pub(crate) struct StatesSlot {
    waiting: VecDeque<ConnectionState>,
    ended: bool,
    waker: Option<Waker>,
}

impl StatesSlot {
    fn push(&mut self, state: ConnectionState) -> Option<Waker> {
        if self.waiting.len() == WAITING_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(state);
        self.ended |= state.is_final();
        self.waker.take()
    }
}

impl States {
    /// Returns the next change; `None` after the final state.
    ///
    /// ```
    /// use ironkeeper_client::Client;
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let mut states = client.states();
    ///     client.close().await?;
    ///     while let Some(state) = states.next().await {
    ///         println!("{state}");
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub async fn next(&mut self) -> Option<ConnectionState> {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<ConnectionState>> {
        let mut slot = lock(&self.slot);
        match slot.waiting.pop_front() {
            Some(state) => Poll::Ready(Some(state)),
            None if slot.ended => Poll::Ready(None),
            None => {
                slot.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }
}

impl Stream for States {
    type Item = ConnectionState;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<ConnectionState>> {
        self.get_mut().poll(cx)
    }
}

/// The list of subscribers, each of which receives every change.
#[derive(Debug)]
pub(crate) struct Subscribers {
    current: ConnectionState,
    slots: Vec<Arc<Mutex<StatesSlot>>>,
}

impl Subscribers {
    pub(crate) fn new() -> Subscribers {
        Subscribers { current: ConnectionState::Connecting, slots: Vec::new() }
    }

    pub(crate) fn current(&self) -> ConnectionState {
        self.current
    }

    pub(crate) fn subscribe(&mut self) -> States {
        let slot = Arc::new(Mutex::new(StatesSlot {
            ended: self.current.is_final(),
            ..StatesSlot::default()
        }));
        self.forget_dropped();
        self.slots.push(slot.clone());
        States { slot }
    }

    pub(crate) fn tell(&mut self, state: ConnectionState, wakers: &mut Vec<Waker>) {
        self.current = state;
        self.forget_dropped();
        wakers.extend(self.slots.iter().filter_map(|slot| lock(slot).push(state)));
    }

    fn forget_dropped(&mut self) {
        self.slots.retain(|slot| Arc::strong_count(slot) > 1);
    }
}
