//! The protocol of one client connection.
//!
//! ```text
//! frames      requests in the input        turnstile     admission of the next request
//! handshake   the first bytes              auth_request  proof of identities
//! serve       requests of an open session  submit        what the engine gets
//! output      replies and events           wakes         tasks that must run
//! view        what administrators see      close_reason  why a connection ends
//! ```
//!
//! The connection's I/O task calls [`Conn::receive`] with the bytes it has received; replies and
//! events appear in the outbox, which the task drains with [`Conn::take_output`]. This module does
//! no I/O. A connection is shared between its task and the engine; the shared state is under one
//! small lock, taken after the gate.

mod auth_request;
mod close_reason;
pub(crate) mod frames;
mod handshake;
mod output;
mod serve;
mod submit;
mod turnstile;
mod view;
mod wakes;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use hashbrown::HashMap;
use ironkeeper_proto::SessionId;
use ironkeeper_proto::four_letter::FourLetterWord;

use crate::auth::{Exchange, Identity};
use crate::database::{Database, Hasher};
use crate::expiry::SessionClock;
use crate::lane::Lane;
use crate::outbox::{AtSocket, Outbox};
use crate::stats::ConnStats;
use crate::sync::{Mutex, MutexGuard};
use crate::time::Now;
use crate::unsent::UnsentPart;
use crate::watch::{Modes, OldWatches};

pub use close_reason::CloseReason;
pub use output::Outgoing;
pub use submit::{Submit, SubmitKind};
pub use view::ConnView;
pub use wakes::Wakes;

use serve::{RunEnd, Turn};
use turnstile::{Slot, Turnstile};

/// Above this many unsent bytes the server stops reading requests from the connection.
pub const OUTBOX_BYTES_SOFT: usize = 1 << 20;
/// Above this many unsent bytes a watch event closes the connection: the client does not read. The
/// same bound applies to a single reply to a multiRead and to the replies made in one hold.
pub const OUTBOX_BYTES_HARD: usize = 64 << 20;

/// The state of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// No bytes have arrived yet: the first ones are a connect request or a four-letter word.
    Greeting,
    /// The engine opens or checks the session; the task reads no requests meanwhile.
    Opening,
    Open,
    /// A last reply is in flight; bytes received after it are ignored.
    Closing(CloseReason),
    Gone,
}

/// The result of [`Conn::receive`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The number of input bytes that are processed.
    pub consumed: usize,
    pub next: Next,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Call again when more bytes have arrived.
    Read,
    /// Call again with the rest after the connection was woken: too many of its requests are in
    /// progress.
    Wait,
    /// Call again with the rest after other connections have had their turn.
    Yield,
    /// A four-letter word: send its reply and close.
    FourLetter { word: FourLetterWord, argument: i64 },
}

/// A client connection; see the module documentation.
#[derive(Debug)]
pub struct Conn {
    pub id: u64,
    /// The driver's own number for the task of the connection.
    pub tag: u64,
    pub peer: SocketAddr,
    /// Set when the engine has dropped a request of this connection: it ignores all later ones.
    cut: AtomicBool,
    inner: Mutex<Inner>,
}

/// The state that the connection's task and the engine share.
#[derive(Debug)]
pub(crate) struct Inner {
    phase: Phase,
    pub lane: Lane,
    pub outbox: Outbox,
    pub identity: Arc<Identity>,
    /// The authentication in progress.
    exchange: Exchange,
    pub session: SessionId,
    pub timeout_ms: i32,
    /// Whether the connect request had its read-only byte: then the response has one too.
    pub sent_read_only: bool,
    /// Whether the client accepts a read-only server.
    pub allows_read_only: bool,
    clock: Option<Arc<SessionClock>>,
    pub watches: HashMap<Arc<str>, Modes, Hasher>,
    pub stats: ConnStats,
    pub turnstile: Turnstile,
    wake_pending: bool,
    /// The bytes that the driver has taken from the outbox and not sent yet.
    at_socket: AtSocket,
    /// When `at_socket` last changed.
    moved_ms: u64,
    unsent: UnsentPart,
}

impl Inner {
    pub(crate) fn is_gone(&self) -> bool {
        matches!(self.phase, Phase::Gone)
    }

    /// Returns whether the client waits for its session.
    pub(crate) fn is_opening(&self) -> bool {
        self.phase == Phase::Opening
    }

    /// Returns whether requests are served: the session is open and no last reply has been made.
    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Closes the connection after its outbox is sent. The first reason counts.
    pub(crate) fn close_after_flush(&mut self, reason: CloseReason) {
        if !matches!(self.phase, Phase::Closing(_) | Phase::Gone) {
            self.phase = Phase::Closing(reason);
        }
    }

    /// Makes the session known to the connection: from now on the task reads requests.
    pub(crate) fn open(&mut self, session: SessionId, timeout_ms: i32, clock: Arc<SessionClock>) {
        if self.phase == Phase::Opening {
            self.phase = Phase::Open;
            self.session = session;
            self.timeout_ms = timeout_ms;
            self.clock = Some(clock);
        }
    }
}

impl Conn {
    pub fn new(id: u64, tag: u64, peer: SocketAddr, now: Now, hasher: Hasher) -> Arc<Conn> {
        Arc::new(Conn {
            id,
            tag,
            peer,
            cut: AtomicBool::new(false),
            inner: Mutex::new(Inner {
                phase: Phase::Greeting,
                lane: Lane::default(),
                outbox: Outbox::default(),
                identity: Identity::of_address(peer.ip()),
                exchange: Exchange::default(),
                session: SessionId::NONE,
                timeout_ms: 0,
                sent_read_only: false,
                allows_read_only: false,
                clock: None,
                watches: HashMap::with_hasher(hasher),
                stats: ConnStats::new(now.wall_ms),
                turnstile: Turnstile::default(),
                wake_pending: false,
                at_socket: AtSocket::default(),
                moved_ms: now.mono_ms,
                unsent: UnsentPart::default(),
            }),
        })
    }

    /// Closes the connection after its outbox is sent, and drops its other requests, including
    /// requests that reach the engine later. Called only by the engine.
    pub(crate) fn cut(self: &Arc<Conn>, reason: CloseReason, wakes: &mut Wakes) {
        self.cut.store(true, Relaxed);
        let mut inner = self.lock();
        inner.close_after_flush(reason);
        wakes.add(self, &mut inner);
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.cut.load(Relaxed)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Processes bytes from the socket: serves reads, adds writes to `submits`.
    ///
    /// Has no side effects except for the locks: the same code runs in the server and in the
    /// simulator.
    pub fn receive(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        input: &[u8],
        submits: &mut Vec<Submit>,
    ) -> Result<Received, CloseReason> {
        let mut turn = Turn::new(now, db, input, submits);
        let next = loop {
            let phase = self.lock().phase;
            match phase {
                Phase::Greeting => match self.greet(&mut turn)? {
                    Some(next) => break next,
                    None => continue,
                },
                Phase::Opening => break Next::Wait,
                Phase::Open => match self.serve_run(&mut turn)? {
                    RunEnd::More if turn.is_over() => break Next::Yield,
                    RunEnd::More => {}
                    RunEnd::Incomplete => break Next::Read,
                    RunEnd::Full => break Next::Wait,
                },
                // Bytes that follow a last request are ignored.
                Phase::Closing(_) | Phase::Gone => {
                    return Ok(Received { consumed: input.len(), next: Next::Read });
                }
            }
        };
        Ok(Received { consumed: turn.frames.consumed(), next })
    }

    /// While the client waits for its session, returns how long the server may take to open it.
    pub fn opening_timeout_ms(&self) -> Option<u64> {
        let inner = self.lock();
        let asked = inner.phase == Phase::Opening || inner.turnstile.is_waiting();
        let opening = asked && inner.session == SessionId::NONE;
        opening.then(|| u64::try_from(inner.timeout_ms).unwrap_or(0))
    }

    /// Returns whether the connection waits for the request throttle, or has been granted a slot
    /// that it has not used.
    pub fn is_in_line(&self) -> bool {
        self.lock().turnstile.is_waiting()
    }

    /// Closes the connection after its outbox is sent. The caller must wake its task.
    pub fn end(&self, reason: CloseReason) {
        self.lock().close_after_flush(reason);
    }

    /// Returns why the connection is being closed, if it is.
    pub fn close_reason(&self) -> Option<CloseReason> {
        match self.lock().phase {
            Phase::Closing(reason) => Some(reason),
            _ => None,
        }
    }

    /// Records that the socket is closed: the session continues, and the caller has to remove the
    /// watches. Notifies the engine through `submits`.
    pub fn disconnect(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        submits: &mut Vec<Submit>,
    ) -> OldWatches {
        let state = db.read();
        let mut inner = self.lock();
        let watches = state.watches.abandon(self, &mut inner);
        if inner.is_gone() {
            return watches;
        }
        inner.phase = Phase::Gone;
        inner.outbox = Outbox::default();
        inner.at_socket = AtSocket::default();
        inner.unsent.clear(&db.unsent);
        inner.lane = Lane::default();
        let slot = std::mem::take(&mut inner.turnstile).slot();
        if let Some(throttle) = &db.request_throttle
            && slot == Slot::Queued
        {
            throttle.give_up(|waiting| Arc::ptr_eq(waiting, self));
        }
        let has_slot = slot == Slot::Granted;
        if inner.session != SessionId::NONE || has_slot {
            let kind = SubmitKind::Disconnected { session: inner.session, has_slot };
            submits.push(Submit { conn: Arc::clone(self), received_ms: now.mono_ms, kind });
        }
        watches
    }

    pub fn session(&self) -> SessionId {
        self.lock().session
    }

    /// Returns whether the server has accepted the client's session.
    pub fn has_session(&self) -> bool {
        self.session() != SessionId::NONE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Engine;
    use crate::config::EngineConfig;
    use crate::recover::Recovered;

    pub(super) const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };

    pub(super) fn new_conn() -> Arc<Conn> {
        let peer = ([10, 0, 0, 1], 4000).into();
        Conn::new(1, 1, peer, NOW, Hasher::with_seed(7))
    }

    pub(super) fn database_with(config: EngineConfig) -> Arc<Database> {
        let recovered = Recovered::new(config.tree);
        Engine::new(config, recovered, 7, NOW).1
    }

    pub(super) fn database() -> Arc<Database> {
        database_with(EngineConfig::default())
    }

    /// Returns a connection with an open session.
    pub(super) fn open_conn() -> Arc<Conn> {
        let conn = new_conn();
        let mut inner = conn.lock();
        inner.phase = Phase::Opening;
        inner.open(SessionId(7), 4000, Arc::default());
        drop(inner);
        conn
    }

    #[test]
    fn the_first_reason_to_close_counts() {
        let conn = open_conn();
        conn.end(CloseReason::SessionClosed);
        conn.end(CloseReason::Shutdown);
        assert_eq!(conn.close_reason(), Some(CloseReason::SessionClosed));
    }

    #[test]
    fn a_disconnect_is_reported_once() {
        let (conn, db, mut submits) = (open_conn(), database(), Vec::new());
        for _ in 0..2 {
            let _ = conn.disconnect(NOW, &db, &mut submits);
        }
        let reported: Vec<_> = submits.iter().map(|submit| &submit.kind).collect();
        let [SubmitKind::Disconnected { session: SessionId(7), has_slot: false }] = reported[..]
        else {
            panic!("{reported:?}");
        };
        assert!(conn.lock().is_gone() && conn.close_reason().is_none());
    }

    #[test]
    fn a_closing_connection_ignores_bytes_and_a_late_session() {
        let (conn, db, mut submits) = (new_conn(), database(), Vec::new());
        conn.end(CloseReason::NotServing);
        conn.lock().open(SessionId(7), 4000, Arc::default());
        assert!(!conn.has_session());
        let received = conn.receive(NOW, &db, b"garbage", &mut submits);
        assert_eq!(received, Ok(Received { consumed: 7, next: Next::Read }));
        assert!(submits.is_empty());
    }
}
