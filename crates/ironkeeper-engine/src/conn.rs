//! The protocol of one client connection: framing, order, serving of reads, submission of writes.
//!
//! The connection's I/O task calls [`Conn::receive`] with the bytes it has received; replies and
//! events appear in the outbox, which the task drains with [`Conn::take_output`]. This module does
//! no I/O. A connection is shared between its task and the engine; the shared state is under one
//! small lock, taken after the gate.

pub(crate) mod frames;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use hashbrown::HashMap;
use ironkeeper_proto::connect::{ConnectRequest, PASSWORD_LEN};
use ironkeeper_proto::four_letter::FourLetterWord;
use ironkeeper_proto::op::OpClass;
use ironkeeper_proto::reply;
use ironkeeper_proto::{ErrorCode, OpCode, Put, Reader, Request, SessionId, Xid, Zxid};
use thiserror::Error;

use crate::auth::{self, Identity};
use crate::database::{Database, Hasher, Serving};
use crate::expiry::SessionClock;
use crate::lane::{Lane, WaitingRead};
use crate::large_requests::{LargePermit, TooManyBytes};
use crate::outbox::{AtSocket, Outbox};
use crate::reads::Reads;
use crate::request_throttle::{RequestThrottle, Turn, TurnState};
use crate::stats::{ConnStats, FRAME_HEAD_BYTES};
use crate::sync::{Mutex, MutexGuard};
use crate::time::Now;
use crate::unsent::{Holding, Unsent, UnsentPart};
use crate::watch::{Modes, OldWatches};
use frames::{Frame, Frames, Kind, ReadOp, ReadRequest, next_frame};

/// The maximum number of requests served, and of reply bytes made, in one hold of the gate.
const SERVE_REQUESTS_MAX: usize = 32;
const SERVE_BYTES_MAX: usize = 64 << 10;
/// Above this many unsent bytes the server stops reading requests from the connection.
pub const OUTBOX_BYTES_SOFT: usize = 1 << 20;
/// Above this many unsent bytes a watch event closes the connection: the client does not read. The
/// same bound applies to a single reply to a multiRead and to the replies made in one hold.
pub const OUTBOX_BYTES_HARD: usize = 64 << 20;

/// The longest connect request. It has 45 bytes and a password of 16 bytes; a client without a
/// session gets no memory for more.
const CONNECT_BYTES_MAX: usize = 4 << 10;
/// The maximum work on the reads of one connection in one turn, and the part of it that is done in
/// one hold of the gate. See [`Reads::work`].
const TURN_WORK_MAX: usize = 4096;
const HOLD_WORK_MAX: usize = 1024;
/// A client whose socket has accepted no bytes for this long does not read.
const STALLED_MS: u64 = 1000;

/// The reason for closing a connection. For the log; the client sees a closed socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    #[error("the client closed its session")]
    SessionClosed,
    #[error("the session expired")]
    SessionExpired,
    #[error("the session was refused: unknown, expired or wrong password")]
    SessionRefused,
    #[error("the session moved to another connection")]
    SessionMoved,
    #[error("frame length {0} is outside of 0..={1}; raise jute.maxbuffer if that is wanted")]
    FrameLength(i64, usize),
    #[error("the connect request is malformed")]
    BadConnect,
    #[error("the client has seen zxid {0}, this server only {1}; it must try another server")]
    ClientAhead(Zxid, Zxid),
    #[error("the frame is too short for a request header")]
    NoHeader,
    #[error("the auth request is malformed")]
    BadAuth,
    #[error("unknown or internal operation {0}")]
    BadOperation(i32),
    #[error("authentication failed")]
    AuthFailed,
    #[error("authentication is enforced and the client has not authenticated")]
    NotAdmitted,
    #[error("too many bytes of large requests are in work; see largeRequestMaxBytes")]
    LargeRequests,
    #[error("sessions are opened faster than connection_throttle_tokens allows")]
    ConnectionThrottled,
    #[error(
        "a request waited for longer than its session lives; see request_throttle_max_requests"
    )]
    StaleRequest,
    #[error("the client does not read: {0} bytes are waiting")]
    SlowReader(usize),
    #[error("the reply to a multiRead would be longer than {0} bytes")]
    ReplyLength(usize),
    #[error("this server has no leader at the moment; the client must try another server")]
    NotServing,
    #[error("this server has no leader and serves only those who ask for read-only")]
    OnlyReads,
    #[error("this server's part in the ensemble has changed")]
    RoleChanged,
    #[error("the disk is full: no session can be opened until there is room")]
    DiskFull,
    #[error("it was asked for")]
    Asked,
    #[error("the server shuts down")]
    Shutdown,
}

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

/// A request for the engine.
#[derive(Debug)]
pub struct Submit {
    pub conn: Arc<Conn>,
    pub received_ms: u64,
    pub kind: SubmitKind,
}

#[derive(Debug)]
pub enum SubmitKind {
    OpenSession {
        timeout_ms: i32,
    },
    AttachSession {
        session: SessionId,
        password: [u8; PASSWORD_LEN],
        timeout_ms: i32,
    },
    /// A write or a sync: every request that is ordered among the transactions.
    Write {
        session: SessionId,
        xid: Xid,
        op: OpCode,
        body: Bytes,
        identity: Arc<Identity>,
        permit: Option<LargePermit>,
    },
    /// A request that is rejected without decoding it, in the order of requests.
    Refuse {
        session: SessionId,
        xid: Xid,
        op: OpCode,
        error: ErrorCode,
    },
    /// The socket is closed; the session continues.
    Disconnected {
        session: SessionId,
        /// The connection had been granted a slot of the request throttle and did not use it.
        has_slot: bool,
    },
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

/// The connections to wake after a batch, each at most once.
#[derive(Debug, Default)]
pub struct Wakes {
    conns: Vec<Arc<Conn>>,
}

impl Wakes {
    pub(crate) fn add(&mut self, conn: &Arc<Conn>, inner: &mut Inner) {
        // While a client does not read, its task does not drain the outbox, so `wake_pending` stays
        // set. Two changes must reach the task nevertheless: the end of the connection, and a
        // granted slot of the throttle, for which the task may have checked just before.
        let insist =
            matches!(inner.phase, Phase::Closing(_)) || inner.turn.state == TurnState::Granted;
        if !inner.wake_pending || insist {
            inner.wake_pending = true;
            self.conns.push(Arc::clone(conn));
        }
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Arc<Conn>> {
        self.conns.drain(..)
    }

    pub fn is_empty(&self) -> bool {
        self.conns.is_empty()
    }
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
    pub session: SessionId,
    pub timeout_ms: i32,
    /// Whether the connect request had its read-only byte: then the response has one too.
    pub sent_read_only: bool,
    /// Whether the client accepts a read-only server.
    pub allows_read_only: bool,
    clock: Option<Arc<SessionClock>>,
    pub watches: HashMap<Arc<str>, Modes, Hasher>,
    pub stats: ConnStats,
    pub turn: Turn,
    wake_pending: bool,
    /// The bytes that the driver has taken from the outbox and not sent yet.
    at_socket: AtSocket,
    /// When `at_socket` last changed.
    moved_ms: u64,
    unsent: UnsentPart,
}

impl Inner {
    /// Appends an event. Returns false if the client will not receive it.
    pub(crate) fn push_event(&mut self, frame: &Bytes, unsent: &Unsent) -> bool {
        use CloseReason::{RoleChanged, SlowReader};
        if matches!(self.phase, Phase::Gone | Phase::Closing(SlowReader(_) | RoleChanged)) {
            return false;
        }
        let waiting = self.outbox.copied_len();
        if waiting > OUTBOX_BYTES_HARD || (waiting > OUTBOX_BYTES_SOFT && unsent.is_over()) {
            self.cut_off();
            self.count_unsent(unsent);
            return false;
        }
        self.stats.packets_sent += 1;
        self.outbox.put_event(frame);
        self.count_unsent(unsent);
        true
    }

    /// Updates the count of unsent bytes; must be called after the outbox has changed.
    #[inline]
    pub(crate) fn count_unsent(&mut self, unsent: &Unsent) {
        self.unsent.set(unsent, self.outbox.held_len(self.at_socket));
    }

    /// Returns whether the task must stop reading for now: the lane is full, or too many requests
    /// of all connections are in progress and one of them is a write of this connection, whose
    /// reply will wake the task.
    fn must_pause(&self, db: &Database) -> bool {
        self.lane.is_full()
            || (self.lane.writes() > 0 && db.outstanding.load(Relaxed) > db.config.outstanding_max)
    }

    /// Closes the connection of a client that does not read, and drops its outbox.
    pub(crate) fn cut_off(&mut self) {
        if !self.is_gone() {
            let waiting = self.outbox.len() + self.at_socket.len;
            self.phase = Phase::Closing(CloseReason::SlowReader(waiting));
            self.outbox = Outbox::default();
        }
    }

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

/// The bytes that the task has to send.
#[derive(Debug)]
pub struct Outgoing {
    /// Sent first.
    pub pieces: VecDeque<Bytes>,
    /// The number of bytes of the pieces that are shared with the tree.
    pub shared_len: usize,
    /// Set if the connection is closed after this output.
    pub close: Option<CloseReason>,
    /// The output is long enough to be counted: the task reports the result by
    /// [`Conn::note_unsent`].
    pub is_counted: bool,
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
                session: SessionId::NONE,
                timeout_ms: 0,
                sent_read_only: false,
                allows_read_only: false,
                clock: None,
                watches: HashMap::with_hasher(hasher),
                stats: ConnStats::new(now.wall_ms),
                turn: Turn::default(),
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
        let mut frames = Frames::new(input, db.config.frame_bytes_max);
        let mut work = 0;
        let next = loop {
            let phase = self.lock().phase;
            match phase {
                Phase::Greeting => match self.greet(now, db, frames.rest(), submits)? {
                    Some((used, next)) => {
                        frames.skip(used);
                        if next != Next::Read {
                            break next;
                        }
                    }
                    None => break Next::Read,
                },
                Phase::Opening => break Next::Wait,
                Phase::Open => match self.serve_run(now, db, &mut frames, &mut work, submits)? {
                    Run::More if work > TURN_WORK_MAX => break Next::Yield,
                    Run::More => {}
                    Run::Incomplete => break Next::Read,
                    Run::Full => break Next::Wait,
                },
                // Bytes that follow a last request are ignored.
                Phase::Closing(_) | Phase::Gone => {
                    return Ok(Received { consumed: input.len(), next: Next::Read });
                }
            }
        };
        Ok(Received { consumed: frames.consumed(), next })
    }

    /// Processes the first frame, or a four-letter word in its place.
    fn greet(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        input: &[u8],
        submits: &mut Vec<Submit>,
    ) -> Result<Option<(usize, Next)>, CloseReason> {
        let Some(word) = input.first_chunk::<4>() else { return Ok(None) };
        if let Some(word) = FourLetterWord::from_bytes(word) {
            let argument = match word {
                FourLetterWord::Stmk => match input.get(4..12) {
                    None => return Ok(None),
                    Some(bytes) => Reader::new(bytes).i64().expect("eight bytes are there"),
                },
                _ => 0,
            };
            return Ok(Some((input.len(), Next::FourLetter { word, argument })));
        }
        let frame = next_frame(input, db.config.frame_bytes_max)?;
        if i32::from_be_bytes(*word) as usize > CONNECT_BYTES_MAX {
            return Err(CloseReason::BadConnect);
        }
        let Some(frame) = frame else { return Ok(None) };
        let request = ConnectRequest::decode(frame).map_err(|_| CloseReason::BadConnect)?;
        let is_new = request.session == SessionId::NONE;
        // A connection that waits for the request throttle has already passed the connection
        // throttle.
        let waits = self.lock().turn.state != TurnState::None;
        if !waits && !db.admits_session(now, !is_new) {
            db.stats.connections_rejected.fetch_add(1, Relaxed);
            return Err(CloseReason::ConnectionThrottled);
        }
        match db.serving() {
            Serving::No => return Err(CloseReason::NotServing),
            Serving::ReadOnly if request.read_only != Some(true) => {
                return Err(CloseReason::OnlyReads);
            }
            Serving::ReadOnly | Serving::Yes => {}
        }
        let reached = db.reached();
        if request.last_zxid_seen > reached {
            return Err(CloseReason::ClientAhead(request.last_zxid_seen, reached));
        }
        let timeout_ms = request
            .timeout_ms
            .clamp(db.config.session_timeout_min_ms, db.config.session_timeout_max_ms);
        let mut inner = self.lock();
        inner.timeout_ms = timeout_ms;
        if is_new && let Some(throttle) = &db.request_throttle {
            let op = OpCode::CreateSession;
            let demand = Demand { op, frame_len: frame.len(), waiting: input.len() };
            if self.take_turn(now, db, throttle, &mut inner, demand)? == TurnTaken::Wait {
                return Ok(Some((0, Next::Wait)));
            }
        }
        let kind = if is_new {
            SubmitKind::OpenSession { timeout_ms }
        } else {
            // A password of another length matches no session, and neither do zeros.
            let password = request.password.try_into().unwrap_or_default();
            SubmitKind::AttachSession { session: request.session, password, timeout_ms }
        };
        inner.phase = Phase::Opening;
        inner.sent_read_only = request.read_only.is_some();
        inner.allows_read_only = request.read_only == Some(true);
        inner.stats.packets_received += 1;
        inner.lane.push_write(Xid(0));
        drop(inner);
        db.stats.packets_received.fetch_add(1, Relaxed);
        db.stats.bytes_received.fetch_add((FRAME_HEAD_BYTES + frame.len()) as u64, Relaxed);
        db.stats.connect_requests.fetch_add(1, Relaxed);
        db.outstanding.fetch_add(1, Relaxed);
        submits.push(Submit { conn: Arc::clone(self), received_ms: now.mono_ms, kind });
        Ok(Some((4 + frame.len(), Next::Read)))
    }

    /// Processes frames as long as they are of one kind: reads under the gate, other requests
    /// without it.
    fn serve_run(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        frames: &mut Frames<'_>,
        work: &mut usize,
        submits: &mut Vec<Submit>,
    ) -> Result<Run, CloseReason> {
        let Some(first) = frames.peek()? else {
            if let Some(large) = &db.large_requests
                && frames.announced_len().is_some_and(|len| large.would_refuse(len))
            {
                return Err(refuse_large(db));
            }
            return Ok(Run::Incomplete);
        };
        // Lock order: the gate, then the connection. The gate is locked only if a read is to be
        // served.
        let state = first.kind.is_read().then(|| db.read());
        let mut reads = state.as_deref().map(|state| Reads::new(db, state, now));
        let mut inner = self.lock();
        if inner.must_pause(db) || inner.outbox.len() > OUTBOX_BYTES_SOFT {
            return Ok(Run::Full);
        }
        let consumed_before = frames.consumed();
        let mut served = 0;
        let run =
            self.serve_frames(now, db, frames, &mut inner, &mut reads, &mut served, work, submits);
        if run.is_ok() {
            if !first.kind.is_auth()
                && let Some(clock) = &inner.clock
            {
                clock.hear(now.mono_ms);
            }
            inner.count_unsent(&db.unsent);
            let consumed = frames.consumed() - consumed_before;
            inner.stats.packets_received += served as u64;
            db.stats.packets_received.fetch_add(served as u64, Relaxed);
            db.stats.bytes_received.fetch_add(consumed as u64, Relaxed);
        }
        drop(inner);
        *work += reads.map_or(0, Reads::finish);
        run
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one step of `serve_run`")]
    fn serve_frames(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        frames: &mut Frames<'_>,
        inner: &mut Inner,
        reads: &mut Option<Reads<'_>>,
        served: &mut usize,
        work: &mut usize,
        submits: &mut Vec<Submit>,
    ) -> Result<Run, CloseReason> {
        let outbox_before = inner.outbox.len();
        let mut first = None;
        loop {
            let Some(frame) = frames.peek()? else { return Ok(Run::Incomplete) };
            if !frame.kind.is_like(*first.get_or_insert(frame.kind))
                || *served == SERVE_REQUESTS_MAX
                || inner.outbox.len() - outbox_before > SERVE_BYTES_MAX
                || reads.as_ref().is_some_and(|reads| reads.work() > HOLD_WORK_MAX)
                || inner.must_pause(db)
            {
                return Ok(Run::More);
            }
            let permit = match &db.large_requests {
                None => None,
                Some(large) => match inner.turn.permit.take() {
                    None => large.admit(frame.len()).map_err(|TooManyBytes| refuse_large(db))?,
                    kept => kept,
                },
            };
            if let Some(throttle) = &db.request_throttle
                && let Some(op) = throttled_op(frame.kind)
            {
                let waiting = frames.rest().len();
                let demand = Demand { op, frame_len: frame.len(), waiting };
                match self.take_turn(now, db, throttle, inner, demand)? {
                    TurnTaken::Now => {}
                    TurnTaken::TooLate => {
                        frames.pass();
                        *served += 1;
                        self.submit_refusal(now, db, inner, frame.xid, op, submits);
                        continue;
                    }
                    TurnTaken::Wait => {
                        inner.turn.permit = permit;
                        return Ok(Run::Full);
                    }
                }
            }
            frames.pass();
            *served += 1;
            self.dispatch(now, db, reads, inner, &frame, permit, submits)?;
            if frame.kind.is_auth() {
                // A new identity copies all ids of the connection.
                *work += 1 + inner.identity.ids().len() / 4;
            }
            if inner.phase != Phase::Open {
                return Ok(Run::More);
            }
        }
    }

    /// Lets the next request pass if it needs no slot of the throttle, finds a free one or was
    /// granted one; otherwise queues the connection.
    fn take_turn(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        throttle: &RequestThrottle<Arc<Conn>>,
        inner: &mut Inner,
        demand: Demand,
    ) -> Result<TurnTaken, CloseReason> {
        let Demand { op, frame_len, waiting } = demand;
        let stats = &db.stats.throttle;
        let waited_ms = inner.turn.waited_ms(now.mono_ms);
        let late = throttle.config.stale_when_late
            && op != OpCode::CloseSession
            && waited_ms > u64::try_from(inner.timeout_ms).unwrap_or(0);
        if late && throttle.config.drop_stale {
            stats.stale_requests_dropped.fetch_add(1, Relaxed);
            return Err(CloseReason::StaleRequest);
        }
        let exempt = matches!(op, OpCode::Ping | OpCode::CloseSession | OpCode::CreateSession);
        let too_late =
            !exempt && throttle.config.refuse_after_ms.is_some_and(|limit| waited_ms > limit);
        let needs_slot =
            op == OpCode::CreateSession || matches!(op.class(), OpClass::Write | OpClass::Close);
        match inner.turn.state {
            TurnState::InLine => return Ok(TurnTaken::Wait),
            TurnState::Granted => {}
            // A rejected request only keeps its position in the order of replies.
            TurnState::None if too_late => throttle.enter_anyway(),
            TurnState::None if !needs_slot || throttle.enter(self) => {}
            TurnState::None => {
                inner.turn.wait(now.mono_ms, waiting);
                stats.requests_waited.fetch_add(1, Relaxed);
                return Ok(TurnTaken::Wait);
            }
        }
        inner.turn.pass(FRAME_HEAD_BYTES + frame_len);
        stats.queue_time.add(waited_ms);
        if late {
            stats.stale_requests.fetch_add(1, Relaxed);
        }
        if too_late {
            stats.requests_refused.fetch_add(1, Relaxed);
            return Ok(TurnTaken::TooLate);
        }
        Ok(TurnTaken::Now)
    }

    /// Submits a request for a reply with an error, after the replies to all earlier requests.
    fn submit_refusal(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        inner: &mut Inner,
        xid: Xid,
        op: OpCode,
        submits: &mut Vec<Submit>,
    ) {
        inner.lane.push_write(xid);
        db.outstanding.fetch_add(1, Relaxed);
        let error = ErrorCode::ThrottledOp;
        let kind = SubmitKind::Refuse { session: inner.session, xid, op, error };
        submits.push(Submit { conn: Arc::clone(self), received_ms: now.mono_ms, kind });
    }

    /// While the client waits for its session, returns how long the server may take to open it.
    pub fn opening_timeout_ms(&self) -> Option<u64> {
        let inner = self.lock();
        let asked = inner.phase == Phase::Opening || inner.turn.state != TurnState::None;
        let opening = asked && inner.session == SessionId::NONE;
        opening.then(|| u64::try_from(inner.timeout_ms).unwrap_or(0))
    }

    /// Returns whether the connection waits for the request throttle, or has been granted a slot
    /// that it has not used.
    pub fn is_in_line(&self) -> bool {
        self.lock().turn.state != TurnState::None
    }

    #[expect(clippy::too_many_arguments, reason = "the parts of one step of `serve_run`")]
    fn dispatch(
        self: &Arc<Conn>,
        now: Now,
        db: &Database,
        reads: &mut Option<Reads<'_>>,
        inner: &mut Inner,
        frame: &Frame<'_>,
        permit: Option<LargePermit>,
        submits: &mut Vec<Submit>,
    ) -> Result<(), CloseReason> {
        let Frame { xid, kind, body } = *frame;
        if !kind.is_auth() && !auth::is_admitted(&db.config.auth, &inner.identity) {
            let error = Some(ErrorCode::SessionClosedRequireSaslAuth);
            reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, error);
            inner.close_after_flush(CloseReason::NotAdmitted);
            return Ok(());
        }
        match kind {
            Kind::Read(op) => {
                let request = ReadRequest { xid, op, body };
                match reads {
                    Some(reads) if inner.lane.is_empty() => {
                        reads.serve(self, inner, request, now.mono_ms);
                    }
                    _ => inner.lane.push_read(WaitingRead::new(request, now.mono_ms, permit)),
                }
            }
            Kind::Write(op) => {
                inner.lane.push_write(xid);
                db.outstanding.fetch_add(1, Relaxed);
                submits.push(Submit {
                    conn: Arc::clone(self),
                    received_ms: now.mono_ms,
                    kind: SubmitKind::Write {
                        session: inner.session,
                        xid,
                        op,
                        body: Bytes::copy_from_slice(body),
                        identity: Arc::clone(&inner.identity),
                        permit,
                    },
                });
            }
            Kind::Auth(op) => authenticate(db, inner, xid, op, body)?,
        }
        Ok(())
    }

    /// Serves reads at the front of the lane. Returns true if the bound of one hold of the gate was
    /// reached and more reads can be served immediately.
    pub fn serve_lane(self: &Arc<Conn>, now: Now, db: &Database) -> bool {
        let state = db.read();
        let mut reads = Reads::new(db, &state, now);
        let mut inner = self.lock();
        let before = inner.outbox.len();
        for _ in 0..SERVE_REQUESTS_MAX {
            if inner.phase != Phase::Open
                || inner.outbox.len() - before > SERVE_BYTES_MAX
                || reads.work() > HOLD_WORK_MAX
            {
                break;
            }
            if !reads.serve_next(self, &mut inner) {
                break;
            }
        }
        inner.count_unsent(&db.unsent);
        let has_more = inner.phase == Phase::Open && inner.lane.has_read_in_front();
        drop(inner);
        reads.finish();
        has_more
    }

    /// Returns whether reads at the front of the lane can be served and the outbox has room for the
    /// replies.
    pub fn has_ready_reads(&self) -> bool {
        let inner = self.lock();
        inner.phase == Phase::Open
            && inner.lane.has_read_in_front()
            && inner.outbox.len() < SERVE_BYTES_MAX
    }

    /// Returns whether watch events are the only work: nothing else is to be sent, no read waits to
    /// be served, and the connection stays open.
    pub fn has_only_events(&self) -> bool {
        let inner = self.lock();
        inner.phase == Phase::Open
            && inner.turn.state != TurnState::Granted
            && !inner.lane.has_read_in_front()
            && inner.outbox.has_only_events()
    }

    /// Takes the bytes to send out of the outbox. `tail` must be empty; it returns the bytes to
    /// send after the pieces.
    pub fn take_output(&self, tail: &mut Vec<u8>) -> Outgoing {
        debug_assert!(tail.is_empty());
        let mut inner = self.lock();
        inner.wake_pending = false;
        let shared_len = inner.outbox.shared_len();
        let pieces = inner.outbox.take(tail);
        let close = match inner.phase {
            Phase::Closing(reason) => Some(reason),
            _ => None,
        };
        Outgoing { pieces, shared_len, close, is_counted: inner.unsent.is_counted() }
    }

    /// Records that the driver has sent all of the bytes it took except for `left`. Must be called
    /// if bytes are left, and if [`Outgoing::is_counted`] was set.
    pub fn note_unsent(&self, now: Now, db: &Database, left: AtSocket) {
        let mut inner = self.lock();
        if inner.is_gone() {
            return;
        }
        if inner.at_socket != left {
            inner.at_socket = left;
            inner.moved_ms = now.mono_ms;
        }
        inner.count_unsent(&db.unsent);
    }

    /// Returns the unsent bytes of this connection; `None` if they are too few to be counted.
    pub fn holding(&self, now: Now) -> Option<Holding> {
        let inner = self.lock();
        // Only bytes that the socket did not accept count: the others may be sent at any moment.
        let is_stalled =
            inner.at_socket.len > 0 && now.mono_ms.saturating_sub(inner.moved_ms) >= STALLED_MS;
        inner.unsent.is_counted().then(|| Holding { is_stalled, bytes: inner.unsent.counted() })
    }

    /// Closes the connection and drops the bytes that the client has not read. The caller must wake
    /// its task.
    pub fn cut_off(&self, db: &Database) {
        let mut inner = self.lock();
        inner.cut_off();
        inner.count_unsent(&db.unsent);
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
        let turn = std::mem::take(&mut inner.turn);
        if let Some(throttle) = &db.request_throttle
            && turn.state == TurnState::InLine
        {
            throttle.give_up(|waiting| Arc::ptr_eq(waiting, self));
        }
        let has_slot = turn.state == TurnState::Granted;
        if inner.session != SessionId::NONE || has_slot {
            let kind = SubmitKind::Disconnected { session: inner.session, has_slot };
            submits.push(Submit { conn: Arc::clone(self), received_ms: now.mono_ms, kind });
        }
        watches
    }

    /// Returns what the administrator sees of this connection.
    pub fn view(&self) -> ConnView {
        let inner = self.lock();
        ConnView {
            peer: self.peer,
            session: inner.session,
            timeout_ms: inner.timeout_ms,
            queued: inner.lane.len(),
            is_read: match inner.phase {
                // The packet was a four-letter word: no more bytes are read.
                Phase::Greeting => inner.stats.packets_received == 0,
                Phase::Opening | Phase::Open => !inner.lane.is_full(),
                Phase::Closing(_) | Phase::Gone => false,
            },
            unsent: !inner.outbox.is_empty(),
            stats: inner.stats.clone(),
        }
    }

    /// Returns the paths that this connection watches and that administrators see, in no order.
    pub fn listed_watches(&self) -> Vec<Arc<str>> {
        let inner = self.lock();
        let listed = inner.watches.iter().filter(|(_, modes)| modes.is_in_data_table());
        listed.map(|(path, _)| Arc::clone(path)).collect()
    }

    /// Counts the four-letter word that was received instead of a frame.
    pub fn note_word(&self, db: &Database) {
        self.lock().stats.packets_received += 1;
        db.stats.packets_received.fetch_add(1, Relaxed);
        db.stats.bytes_received.fetch_add(FRAME_HEAD_BYTES as u64, Relaxed);
    }

    pub fn reset_stats(&self) {
        self.lock().stats.reset();
    }

    pub fn session(&self) -> SessionId {
        self.lock().session
    }

    /// Returns the user names of the client for the log, without addresses and without secrets.
    pub fn user_names(&self) -> Vec<String> {
        const NAMES_MAX: usize = 4;
        const NAME_CHARS_MAX: usize = 64;
        let identity = Arc::clone(&self.lock().identity);
        let users = identity.ids().iter().filter(|auth| auth.scheme != "ip");
        let name = |id: &str| -> String {
            // Of a digest only the user: the rest is a hash of the password.
            id.split(':').next().unwrap_or_default().chars().take(NAME_CHARS_MAX).collect()
        };
        users.take(NAMES_MAX).map(|auth| format!("{}:{}", auth.scheme, name(&auth.id))).collect()
    }

    /// Returns whether the server has accepted the client's session.
    pub fn has_session(&self) -> bool {
        self.session() != SessionId::NONE
    }
}

/// A connection as `cons` shows it.
#[derive(Clone, Debug)]
pub struct ConnView {
    pub peer: SocketAddr,
    pub session: SessionId,
    pub timeout_ms: i32,
    pub queued: usize,
    /// Whether the server reads from the socket.
    pub is_read: bool,
    pub unsent: bool,
    pub stats: ConnStats,
}

/// The decision of the request throttle on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnTaken {
    Now,
    /// The request passes, but only to be rejected because it waited too long.
    TooLate,
    Wait,
}

enum Run {
    More,
    Incomplete,
    Full,
}

/// A request that asks the request throttle for its turn.
#[derive(Clone, Copy, Debug)]
struct Demand {
    op: OpCode,
    frame_len: usize,
    /// The bytes that wait, from this request on.
    waiting: usize,
}

/// Returns the operation if it goes through the request throttle. Authentication does not, and
/// neither do operations that clients may not send.
fn throttled_op(kind: Kind) -> Option<OpCode> {
    match kind {
        Kind::Read(ReadOp::Served(op)) | Kind::Write(op) => Some(op),
        Kind::Read(ReadOp::Rejected(_)) | Kind::Auth(_) => None,
    }
}

fn refuse_large(db: &Database) -> CloseReason {
    db.stats.large_requests_rejected.fetch_add(1, Relaxed);
    CloseReason::LargeRequests
}

fn authenticate(
    db: &Database,
    inner: &mut Inner,
    xid: Xid,
    op: OpCode,
    body: &[u8],
) -> Result<(), CloseReason> {
    let before = inner.outbox.len();
    let reader = Reader::with_limit(body, db.config.field_bytes_max);
    match Request::decode(op, reader).map_err(|_| CloseReason::BadAuth)? {
        // Without SASL configured the reply to every token is a null token, as in Apache ZooKeeper.
        Request::Sasl { token: Some(_) } => {
            let out = inner.outbox.tail();
            let start = reply::start_frame(out, xid, Zxid::ZERO);
            out.put_buf(None);
            reply::finish_frame(out, start);
        }
        Request::Auth { scheme, auth, .. } => {
            let scheme = scheme.as_deref().unwrap_or_default();
            match auth::authenticate(&db.config.auth, &inner.identity, scheme, auth) {
                Ok(identity) => {
                    inner.identity = identity;
                    reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, None);
                }
                Err(error) => {
                    db.stats.auth_failures.fetch_add(1, Relaxed);
                    reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, Some(error));
                    inner.close_after_flush(CloseReason::AuthFailed);
                }
            }
        }
        _ => return Err(CloseReason::BadAuth),
    }
    inner.stats.packets_sent += 1;
    db.stats.note_other_reply(inner.outbox.len() - before);
    Ok(())
}
