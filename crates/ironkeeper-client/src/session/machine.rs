//! The session state machine: connect, re-attach, ping, replies in order, watches and credentials
//! after a reconnect, expiry, close.
//!
//! The contract, by prefix: `handle_*` methods are inputs, `poll_output` returns the outputs that
//! the driver performs, bare verbs are commands. The clock is an argument. [`Machine::submit`]
//! encodes a request into one outgoing buffer and appends it to the queue of pending requests; the
//! driver takes the whole buffer, so many requests are sent in one write.
//!
//! Replies are matched by position: a server replies to the requests of a session in order. A reply
//! with an unexpected xid shows a broken peer, and the machine drops the connection. Every
//! submitted request completes exactly once: with the reply, or with a [`Failure`] when the
//! connection or the session ends.
//!
//! Requests submitted without a connection wait for one. They fail when all servers have been tried
//! without success. When a connection breaks, all pending requests fail, sent or not: a later
//! request must not be applied if an earlier one was lost.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ironkeeper_proto::connect::{ConnectRequest, ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::reply::ReplyHeader;
use ironkeeper_proto::request::RequestHeader;
use ironkeeper_proto::watch_event::{EventType, WatcherEvent};
use ironkeeper_proto::{ErrorCode, OpCode, Reader, SessionId, Xid, Zxid};

use super::watches::{WatchKind, WatchTable, Watcher, WatcherId};
use crate::hosts::{Host, Walk};
use crate::random::Random;
use crate::state::ConnectionState;

/// The longest connect response that is accepted. Real responses have 36 or 37 bytes.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 1024;

/// The pause after the first round in which no server accepted; it doubles up to `BACKOFF_MAX`.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A rejected setWatches counts as this many failed rounds in the back-off.
const REFUSED_ROUNDS: u32 = 3;
/// The bound of a random delay, so that the clients of a failed server do not reconnect in the same
/// millisecond.
const SPREAD_MS: u64 = 50;
/// A client on a read-only server probes for a read-write server at this interval, doubling.
const PROBE_MIN: Duration = Duration::from_millis(100);
const PROBE_MAX: Duration = Duration::from_secs(60);
/// The bound for long session timeouts: middleboxes drop idle connections.
const PING_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// The settings of the user.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) session_timeout: Duration,
    /// The time for one server to accept and to reply to the handshake; `None` divides the session
    /// timeout by the number of servers.
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) read_only: bool,
    pub(crate) reply_bytes_max: usize,
    pub(crate) request_bytes_max: usize,
    /// The bound of unsent requests, and so of the memory of a client whose server is slow.
    pub(crate) waiting_bytes_max: usize,
}

/// Why a request ended without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// `sent`: all bytes of the request were written, so it may have been applied.
    ConnectionLoss {
        sent: bool,
    },
    SessionExpired {
        sent: bool,
    },
    AuthFailed {
        sent: bool,
    },
    Closed {
        sent: bool,
    },
    ReplyTooLarge {
        len: usize,
    },
    RequestTooLarge {
        len: usize,
    },
    Overloaded,
}

/// A watch event as received from the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    pub(crate) kind: EventType,
    pub(crate) path: String,
    pub(crate) zxid: Zxid,
    pub(crate) oldest_sibling: Option<Zxid>,
}

/// An action for the driver. Outputs are performed in order.
#[derive(Debug)]
pub(crate) enum Output<T, W> {
    /// Open a transport, then call `handle_opened` or `handle_closed`.
    Connect(Host),
    /// Drop the transport, or the attempt to open one, without calling `handle_closed`.
    Disconnect,
    State(ConnectionState),
    Failed(T, Failure),
    Event(RawEvent, Vec<W>),
    /// These watchers may have missed events.
    Gap(Vec<W>),
    /// These watchers receive no more events.
    Ended(Vec<W>),
    /// These watches were removed on request.
    Removed(Vec<W>),
    /// Ask this server whether it accepts writes (`isro`), then call `handle_probed`.
    Probe(Host),
    /// Credentials were accepted.
    Authenticated(T),
}

/// The result of handling one frame.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a, T> {
    /// The reply to a request.
    Reply { token: T, err: i32, body: &'a [u8] },
    /// No reply; the frame may have produced outputs.
    Nothing,
}

/// The watch that a request sets.
#[derive(Debug)]
pub(crate) struct WatchRequest<W> {
    pub(crate) kind: WatchKind,
    pub(crate) path: Box<str>,
    pub(crate) watcher: W,
}

#[derive(Debug)]
struct Pending<T, W> {
    xid: i32,
    /// The offset of the request's end in the stream of outgoing bytes.
    end: u64,
    what: What<T, W>,
}

#[derive(Debug)]
enum What<T, W> {
    Request {
        token: T,
        watch: Option<WatchRequest<W>>,
    },
    /// `removeWatches`: its reply removes all watches of these kinds from the table.
    Remove {
        token: T,
        code: i32,
        path: Box<str>,
    },
    /// Sent by the machine itself; `last`: the last request of the batch.
    SetWatches {
        last: bool,
    },
    /// The reply is ignored.
    Forgotten,
    Close,
}

#[derive(Debug)]
enum Link {
    /// Before the first attempt, and between attempts.
    Waiting {
        until: Instant,
    },
    /// The driver is opening a transport.
    Opening {
        host: Host,
        deadline: Instant,
    },
    /// The connect request is sent or being sent.
    Greeting {
        host: Host,
        deadline: Instant,
    },
    Up(Up),
    /// The session has ended, with this final state.
    Over(ConnectionState),
}

#[derive(Debug)]
struct Up {
    host: Host,
    last_sent: Instant,
    read_only: bool,
    probe: Option<Probe>,
}

#[derive(Debug)]
struct Probe {
    next: Instant,
    interval: Duration,
    /// An `isro` request is in flight.
    asked: bool,
}

#[derive(Debug)]
struct Credentials<T> {
    scheme: String,
    auth: Vec<u8>,
    /// The caller that waits until the credentials are accepted for the first time.
    token: Option<T>,
}

#[derive(Debug)]
pub(crate) struct Machine<T, W> {
    settings: Settings,
    walk: Walk,
    random: Random,
    link: Link,

    session: SessionId,
    password: [u8; PASSWORD_LEN],
    /// The negotiated timeout; before the first connection, the requested one.
    timeout: Duration,
    /// Whether a read-write server has granted the session. Read-write servers do not know a
    /// session that only read-only servers have granted.
    is_global: bool,
    was_connected: bool,
    /// The largest zxid of replies. Events do not count: one transaction can cause several events,
    /// and if the connection breaks between them, `setWatches` relative to this zxid makes the
    /// server send the rest.
    last_zxid: Zxid,
    /// The largest zxid of replies and events. A server whose state is older is not acceptable: a
    /// task that acts on an event must be able to read everything that precedes it.
    last_zxid_seen: Zxid,
    last_heard: Instant,
    /// Rounds through all servers since the last connection that delivered a reply.
    rounds: u32,
    /// The latest reason why there is no connection.
    trouble: Option<String>,

    next_xid: i32,
    /// Bytes that may be sent now.
    out: Vec<u8>,
    /// Encoded requests that wait for a connection.
    waiting: Vec<u8>,
    /// All requests that will receive a reply, in the order of sending: `out` first, then
    /// `waiting`. Unsent requests are bounded by `waiting_bytes_max`, sent ones by the server's own
    /// limits.
    in_line: VecDeque<Pending<T, W>>,
    /// The number of bytes put into the stream of this connection, and the number written.
    stream_end: u64,
    stream_left: u64,

    credentials: Vec<Credentials<T>>,
    /// Indexes of the credentials that the server has not replied to, in the order of sending.
    auth_in_line: VecDeque<usize>,
    watches: WatchTable<W>,
    closing: bool,
    /// The callers that wait for the end of the session.
    closers: Vec<T>,
    outputs: VecDeque<Output<T, W>>,
}

impl<T, W: Watcher> Machine<T, W> {
    pub(crate) fn new(
        settings: Settings,
        servers: Vec<Host>,
        mut random: Random,
        now: Instant,
    ) -> Machine<T, W> {
        let walk = Walk::new(servers, &mut random);
        Machine {
            timeout: settings.session_timeout,
            settings,
            walk,
            random,
            link: Link::Waiting { until: now },
            session: SessionId::NONE,
            password: [0; PASSWORD_LEN],
            is_global: false,
            was_connected: false,
            last_zxid: Zxid::ZERO,
            last_zxid_seen: Zxid::ZERO,
            last_heard: now,
            rounds: 0,
            trouble: None,
            next_xid: 1,
            out: Vec::new(),
            waiting: Vec::new(),
            in_line: VecDeque::new(),
            stream_end: 0,
            stream_left: 0,
            credentials: Vec::new(),
            auth_in_line: VecDeque::new(),
            watches: WatchTable::new(),
            closing: false,
            closers: Vec::new(),
            outputs: VecDeque::new(),
        }
    }

    /// Resumes the session of another client object.
    pub(crate) fn resume(&mut self, session: SessionId, password: [u8; PASSWORD_LEN]) {
        self.session = session;
        self.password = password;
        self.is_global = session != SessionId::NONE;
    }

    pub(crate) fn session(&self) -> (SessionId, [u8; PASSWORD_LEN]) {
        (self.session, self.password)
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn last_zxid(&self) -> Zxid {
        self.last_zxid
    }

    /// Returns the connected server.
    pub(crate) fn server(&self) -> Option<&Host> {
        match &self.link {
            Link::Up(up) => Some(&up.host),
            _ => None,
        }
    }

    /// Returns why there is no connection, as far as known.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// Records why the transport closed or could not be opened.
    pub(crate) fn set_trouble(&mut self, why: impl std::fmt::Display) {
        self.trouble = Some(match &self.link {
            Link::Opening { host, .. } | Link::Greeting { host, .. } => format!("{host}: {why}"),
            Link::Up(up) => format!("{}: {why}", up.host),
            _ => why.to_string(),
        });
    }

    pub(crate) fn watch_count(&self) -> usize {
        self.watches.len()
    }

    pub(crate) fn is_over(&self) -> bool {
        matches!(self.link, Link::Over(_))
    }

    /// Returns whether a reply of the server is pending, so that the driver will be woken by it.
    pub(crate) fn awaits_reply(&self) -> bool {
        matches!(self.link, Link::Up(_)) && !self.in_line.is_empty()
    }

    /// Returns the number of bytes that may be sent and have not been taken.
    pub(crate) fn outgoing_bytes(&self) -> usize {
        self.out.len()
    }

    pub(crate) fn has_output(&self) -> bool {
        !self.outputs.is_empty()
    }

    pub(crate) fn poll_output(&mut self) -> Option<Output<T, W>> {
        self.outputs.pop_front()
    }

    #[cfg(test)]
    pub(super) fn set_next_xid(&mut self, xid: i32) {
        self.next_xid = xid;
    }

    // Commands.

    /// Appends a request to the pending requests; `body` writes the bytes after the header. On
    /// `Err` the request was not appended.
    pub(crate) fn submit(
        &mut self,
        op: OpCode,
        token: T,
        watch: Option<WatchRequest<W>>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), (T, Failure)> {
        if let Some(failure) = self.refusal() {
            return Err((token, failure));
        }
        match self.encode(op, body) {
            Ok((xid, end)) => {
                self.in_line.push_back(Pending { xid, end, what: What::Request { token, watch } });
                Ok(())
            }
            Err(failure) => Err((token, failure)),
        }
    }

    /// Adds credentials, for this connection and all later ones. The token completes when a server
    /// has accepted them.
    pub(crate) fn authenticate(
        &mut self,
        scheme: &str,
        auth: &[u8],
        token: Option<T>,
    ) -> Result<(), (Option<T>, Failure)> {
        if let Some(failure) = self.refusal() {
            return Err((token, failure));
        }
        let len = RequestHeader::ENCODED_LEN + 12 + scheme.len() + auth.len();
        if len > self.settings.request_bytes_max {
            return Err((token, Failure::RequestTooLarge { len }));
        }
        self.credentials.push(Credentials {
            scheme: scheme.to_owned(),
            auth: auth.to_vec(),
            token,
        });
        if matches!(self.link, Link::Up(_)) {
            self.send_credentials(self.credentials.len() - 1);
        }
        Ok(())
    }

    /// Removes a watcher; further events of the server's watch are ignored.
    pub(crate) fn forget_watch(&mut self, kind: WatchKind, path: &str, id: WatcherId) -> bool {
        self.watches.remove(kind, path, id)
    }

    /// Returns whether a watcher needs the server's watch of this kind and path, or a pending
    /// request sets it.
    pub(crate) fn is_watched(&self, kind: WatchKind, path: &str) -> bool {
        self.watches.is_watched(kind, path)
            || self.asks_for(kind, path).any(|watch| watch.watcher.is_wanted())
    }

    /// Returns the pending watches that the server treats as the same watch.
    fn asks_for<'a>(
        &'a self,
        kind: WatchKind,
        path: &'a str,
    ) -> impl Iterator<Item = &'a WatchRequest<W>> {
        self.in_line.iter().filter_map(move |pending| match &pending.what {
            What::Request { watch: Some(watch), .. } => {
                (watch.kind.remove_code() == kind.remove_code() && &*watch.path == path)
                    .then_some(watch)
            }
            _ => None,
        })
    }

    /// Removes all watches of a node, in the table and on the server; `code` gives the kinds as on
    /// the wire.
    pub(crate) fn remove_watches(
        &mut self,
        code: i32,
        path: &str,
        token: T,
    ) -> Result<(), (T, Failure)> {
        if let Some(failure) = self.refusal() {
            return Err((token, failure));
        }
        let encoded = self.encode(OpCode::RemoveWatches, |out| {
            out.put_str(path);
            out.put_i32(code);
        });
        match encoded {
            Ok((xid, end)) => {
                let what = What::Remove { token, code, path: path.into() };
                self.in_line.push_back(Pending { xid, end, what });
                Ok(())
            }
            Err(failure) => Err((token, failure)),
        }
    }

    /// Asks the server to remove a watch and ignores the reply.
    pub(crate) fn unwatch(&mut self, kind: WatchKind, path: &str) {
        // Without a connection no server has the watch, unless a request for it waits to be sent.
        let is_known =
            matches!(self.link, Link::Up(_)) || self.asks_for(kind, path).next().is_some();
        if !is_known || self.refusal().is_some() {
            return;
        }
        let encoded = self.encode(OpCode::RemoveWatches, |out| {
            out.put_str(path);
            out.put_i32(kind.remove_code());
        });
        if let Ok((xid, end)) = encoded {
            self.in_line.push_back(Pending { xid, end, what: What::Forgotten });
        }
    }

    /// Closes the session after all pending requests. The token fails with `Closed` when the
    /// session has ended, for whatever reason. If the session has ended already, the token is
    /// returned: there may be no driver left to process outputs.
    pub(crate) fn close(&mut self, token: Option<T>) -> Option<T> {
        if self.is_over() {
            return token;
        }
        self.closers.extend(token);
        if self.closing {
            return None;
        }
        self.closing = true;
        if !matches!(self.link, Link::Up(_)) {
            // There is no server to notify; the session expires by its timeout.
            self.outputs.push_back(Output::Disconnect);
            self.become_over(ConnectionState::Closed);
            return None;
        }
        let xid = self.take_xid();
        let end =
            encode_frame(&mut self.out, &mut self.stream_end, xid, OpCode::CloseSession, |_| {});
        self.in_line.push_back(Pending { xid, end, what: What::Close });
        None
    }

    /// Ends the session at once, because the driver was dropped.
    pub(crate) fn abandon(&mut self) {
        if !self.is_over() {
            self.become_over(ConnectionState::Closed);
        }
    }

    /// Moves all outgoing bytes into `buffer`, which has to be empty.
    pub(crate) fn take_outgoing(&mut self, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.is_empty());
        std::mem::swap(&mut self.out, buffer);
    }

    // Inputs.

    /// Records that `count` bytes were written.
    pub(crate) fn handle_written(&mut self, now: Instant, count: usize) {
        self.stream_left += count as u64;
        if let Link::Up(up) = &mut self.link {
            up.last_sent = now;
        }
    }

    /// Sends the connect request: the transport of `Output::Connect` is open.
    pub(crate) fn handle_opened(&mut self, _now: Instant) {
        let Link::Opening { host, deadline } = &self.link else { return };
        self.link = Link::Greeting { host: host.clone(), deadline: *deadline };
        debug_assert!(self.out.is_empty());
        (self.stream_end, self.stream_left) = (0, 0);
        let timeout_ms = i32::try_from(self.settings.session_timeout.as_millis());
        let (session, password) = match self.is_global {
            true => (self.session, self.password),
            false => (SessionId::NONE, [0; PASSWORD_LEN]),
        };
        self.out.put_i32(0);
        ConnectRequest {
            protocol_version: 0,
            last_zxid_seen: self.last_zxid_seen,
            timeout_ms: timeout_ms.unwrap_or(i32::MAX),
            session,
            password: &password,
            read_only: Some(self.settings.read_only),
        }
        .encode(&mut self.out);
        let len = (self.out.len() - 4) as i32;
        self.out[..4].copy_from_slice(&len.to_be_bytes());
        self.stream_end = self.out.len() as u64;
    }

    /// Handles that the transport has closed or could not be opened.
    pub(crate) fn handle_closed(&mut self, now: Instant) {
        match self.link {
            Link::Over(_) | Link::Waiting { .. } => {}
            Link::Opening { .. } | Link::Greeting { .. } => self.attempt_failed(now),
            Link::Up(_) => self.connection_lost(now),
        }
    }

    /// Handles a server's reply to `isro`; `None` if the probe failed.
    pub(crate) fn handle_probed(&mut self, now: Instant, host: &Host, takes_writes: Option<bool>) {
        let Link::Up(Up { probe: Some(probe), .. }) = &mut self.link else { return };
        if !probe.asked {
            return;
        }
        if takes_writes == Some(true) {
            self.walk.prefer(host);
            self.outputs.push_back(Output::Disconnect);
            self.connection_lost(now);
            if !self.is_over() {
                self.link = Link::Waiting { until: now };
            }
        } else {
            probe.asked = false;
            probe.next = now + probe.interval;
            probe.interval = (probe.interval * 2).min(PROBE_MAX);
            self.walk.skip();
        }
    }

    /// Returns the length of the longest acceptable frame in this state.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        match self.link {
            Link::Up(_) => self.settings.reply_bytes_max,
            _ => HANDSHAKE_BYTES_MAX,
        }
    }

    /// Handles the start of a frame longer than `frame_bytes_max`. Returns whether the driver may
    /// skip it and continue: only if it is the reply to the oldest pending request, which then
    /// fails.
    pub(crate) fn handle_oversize(&mut self, now: Instant, len: usize, xid: i32) -> bool {
        let is_next = matches!(self.link, Link::Up(_))
            && self.in_line.front().is_some_and(|pending| pending.xid == xid);
        if !is_next {
            self.handle_garbage(now);
            return false;
        }
        if !self.hear(now) {
            return false;
        }
        let pending = self.in_line.pop_front();
        if let Some(Pending {
            what: What::Request { token, .. } | What::Remove { token, .. },
            ..
        }) = pending
        {
            self.outputs.push_back(Output::Failed(token, Failure::ReplyTooLarge { len }));
        }
        true
    }

    /// Drops the connection, because the peer violates the protocol.
    pub(crate) fn handle_garbage(&mut self, now: Instant) {
        self.drop_connection(now, "not the ZooKeeper protocol");
    }

    /// Handles a complete frame.
    pub(crate) fn handle_frame<'a>(&mut self, now: Instant, frame: &'a [u8]) -> Received<'a, T> {
        match &self.link {
            Link::Up(_) => self.on_reply(now, frame),
            Link::Greeting { .. } => {
                self.on_greeting(now, frame);
                Received::Nothing
            }
            _ => Received::Nothing,
        }
    }

    /// Returns the latest instant at which [`Machine::handle_timeout`] has to be called.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = match &self.link {
            Link::Waiting { until } => *until,
            Link::Opening { deadline, .. } | Link::Greeting { deadline, .. } => *deadline,
            Link::Up(up) => {
                let probe = up.probe.as_ref().filter(|probe| !probe.asked);
                let ping = up.last_sent + self.ping_interval();
                let silence = self.silence();
                probe.map_or(ping.min(silence), |probe| probe.next.min(ping).min(silence))
            }
            Link::Over(_) => return None,
        };
        Some(self.expiry().map_or(own, |expiry| expiry.min(own)))
    }

    /// Performs all actions that are due. Early and repeated calls are harmless.
    pub(crate) fn handle_timeout(&mut self, now: Instant) {
        if self.expiry().is_some_and(|expiry| now >= expiry) {
            self.outputs.push_back(Output::Disconnect);
            return self.become_over(ConnectionState::Lost);
        }
        match &self.link {
            Link::Waiting { until } if now >= *until => self.start_attempt(now),
            Link::Opening { deadline, .. } | Link::Greeting { deadline, .. }
                if now >= *deadline =>
            {
                self.set_trouble("no answer");
                self.outputs.push_back(Output::Disconnect);
                self.attempt_failed(now);
            }
            Link::Up(_) => self.on_connected_timer(now),
            _ => {}
        }
    }

    fn on_connected_timer(&mut self, now: Instant) {
        if now >= self.silence() {
            return self.drop_connection(now, SILENT);
        }
        let ping_interval = self.ping_interval();
        let Link::Up(up) = &mut self.link else { return };
        if now >= up.last_sent + ping_interval {
            // The ping is sent shortly; counting from here keeps one ping per interval even if the
            // transport is blocked.
            up.last_sent = now;
            encode_frame(&mut self.out, &mut self.stream_end, Xid::PING.0, OpCode::Ping, |_| {});
        }
        if let Some(probe) = &mut up.probe
            && !probe.asked
            && now >= probe.next
        {
            match self.walk.peek_other(&up.host) {
                Some(host) => {
                    probe.asked = true;
                    self.outputs.push_back(Output::Probe(host));
                }
                // The only server closes the connection by itself when it joins a quorum.
                None => up.probe = None,
            }
        }
    }

    /// Returns the deadline for the next packet of a connected server. The session is live until
    /// then, because the client sends a ping every third of the session timeout.
    fn silence(&self) -> Instant {
        self.last_heard + self.timeout * 2 / 3
    }

    /// Records a packet of a connected server. Returns false if the packet comes after the
    /// deadline: it may have been in the socket buffer for any time while this process was
    /// suspended. The session may have expired, and a task that is notified that it holds a lock
    /// would act while another session holds it.
    fn hear(&mut self, now: Instant) -> bool {
        if now >= self.silence() {
            self.drop_connection(now, SILENT);
            return false;
        }
        self.last_heard = now;
        true
    }

    /// Returns whether the session is live and the server accepts writes, as far as known without a
    /// request.
    pub(crate) fn is_in_touch(&self, now: Instant) -> bool {
        matches!(&self.link, Link::Up(up) if !up.read_only) && !self.closing && now < self.silence()
    }

    fn ping_interval(&self) -> Duration {
        (self.timeout / 3).min(PING_INTERVAL_MAX)
    }

    /// Returns when a disconnected client regards the session as expired: 4/3 of the timeout after
    /// the last packet, which is not before a server would expire it.
    fn expiry(&self) -> Option<Instant> {
        let apart = matches!(
            self.link,
            Link::Waiting { .. } | Link::Opening { .. } | Link::Greeting { .. }
        );
        (apart && self.was_connected && self.is_global)
            .then(|| self.last_heard + self.timeout * 4 / 3)
    }

    fn refusal(&self) -> Option<Failure> {
        match self.link {
            Link::Over(ConnectionState::Lost) => Some(Failure::SessionExpired { sent: false }),
            Link::Over(ConnectionState::AuthFailed) => Some(Failure::AuthFailed { sent: false }),
            Link::Over(_) => Some(Failure::Closed { sent: false }),
            _ if self.closing => Some(Failure::Closed { sent: false }),
            _ => None,
        }
    }

    // The queue of pending requests.

    fn take_xid(&mut self) -> i32 {
        let xid = self.next_xid;
        self.next_xid = if xid >= i32::MAX - 1 { 1 } else { xid + 1 };
        xid
    }

    fn encode(
        &mut self,
        op: OpCode,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(i32, u64), Failure> {
        let xid = self.take_xid();
        let is_up = matches!(self.link, Link::Up(_));
        let buffer = if is_up { &mut self.out } else { &mut self.waiting };
        let before = buffer.len();
        if before >= self.settings.waiting_bytes_max {
            return Err(Failure::Overloaded);
        }
        let mut end = self.stream_end;
        encode_frame(buffer, &mut end, xid, op, body);
        let len = buffer.len() - before - 4;
        if len > self.settings.request_bytes_max {
            buffer.truncate(before);
            return Err(Failure::RequestTooLarge { len });
        }
        if !is_up {
            // The offset in the stream is known only after a connection is made.
            return Ok((xid, WAITING));
        }
        self.stream_end = end;
        Ok((xid, end))
    }

    fn send_credentials(&mut self, at: usize) {
        let credentials = &self.credentials[at];
        encode_frame(&mut self.out, &mut self.stream_end, Xid::AUTH.0, OpCode::Auth, |out| {
            out.put_i32(0);
            out.put_str(&credentials.scheme);
            out.put_buf(Some(&credentials.auth));
        });
        self.auth_in_line.push_back(at);
    }

    /// Fails all pending requests.
    fn fail_line(&mut self, failure: impl Fn(bool) -> Failure) {
        for pending in self.in_line.drain(..) {
            let sent = pending.end != WAITING && pending.end <= self.stream_left;
            match pending.what {
                What::Request { token, .. } | What::Remove { token, .. } => {
                    self.outputs.push_back(Output::Failed(token, failure(sent)));
                }
                What::Close | What::SetWatches { .. } | What::Forgotten => {}
            }
        }
        self.out.clear();
        self.waiting.clear();
        self.auth_in_line.clear();
    }

    // Changes of the link.

    fn start_attempt(&mut self, now: Instant) {
        let host = self.walk.advance();
        let share = self.timeout / u32::try_from(self.walk.len()).unwrap_or(u32::MAX).max(1);
        let limit = self
            .settings
            .attempt_timeout
            .unwrap_or_else(|| share.clamp(Duration::from_millis(500), Duration::from_secs(10)));
        self.outputs.push_back(Output::Connect(host.clone()));
        self.link = Link::Opening { host, deadline: now + limit };
    }

    /// Tries the next server at once. After the last server of a round, fails the pending requests
    /// and waits for the back-off.
    fn attempt_failed(&mut self, now: Instant) {
        self.out.clear();
        if !self.walk.round_is_over() {
            self.link = Link::Waiting { until: now };
            return;
        }
        self.walk.start_round();
        self.fail_line(|_| Failure::ConnectionLoss { sent: false });
        let pause = BACKOFF_MIN.saturating_mul(1 << self.rounds.min(16)).min(BACKOFF_MAX);
        self.rounds = self.rounds.saturating_add(1);
        let half_ms = pause.as_millis() as u64 / 2;
        let pause = Duration::from_millis(half_ms + self.random.below(half_ms + 1));
        self.link = Link::Waiting { until: now + pause };
    }

    fn connection_lost(&mut self, now: Instant) {
        if self.closing {
            return self.become_over(ConnectionState::Closed);
        }
        self.fail_line(|sent| Failure::ConnectionLoss { sent });
        self.walk.start_round();
        // A connection that breaks before the first reply counts as a failed attempt.
        let pause = match self.rounds {
            0 => Duration::from_millis(self.random.below(SPREAD_MS + 1)),
            rounds => BACKOFF_MIN.saturating_mul(1 << rounds.min(16)).min(BACKOFF_MAX),
        };
        self.rounds = self.rounds.saturating_add(1);
        self.link = Link::Waiting { until: now + pause };
        self.outputs.push_back(Output::State(ConnectionState::Suspended));
    }

    fn drop_connection(&mut self, now: Instant, reason: &'static str) {
        tracing::warn!(session = %self.session, reason, "connection dropped");
        self.set_trouble(reason);
        self.outputs.push_back(Output::Disconnect);
        self.handle_closed(now);
    }

    fn become_over(&mut self, end: ConnectionState) {
        self.fail_line(|sent| match end {
            ConnectionState::Lost => Failure::SessionExpired { sent },
            // A server processes an auth packet at once, ahead of earlier requests, so these may
            // still be applied.
            ConnectionState::AuthFailed => Failure::AuthFailed { sent },
            _ => Failure::Closed { sent },
        });
        for credentials in &mut self.credentials {
            if let Some(token) = credentials.token.take() {
                let failure = match end {
                    ConnectionState::Lost => Failure::SessionExpired { sent: false },
                    ConnectionState::AuthFailed => Failure::AuthFailed { sent: false },
                    _ => Failure::Closed { sent: false },
                };
                self.outputs.push_back(Output::Failed(token, failure));
            }
        }
        self.link = Link::Over(end);
        self.outputs.push_back(Output::State(end));
        for token in std::mem::take(&mut self.closers) {
            self.outputs.push_back(Output::Failed(token, Failure::Closed { sent: true }));
        }
        let watchers = self.watches.drain();
        if !watchers.is_empty() {
            self.outputs.push_back(Output::Ended(watchers));
        }
    }

    fn become_up(&mut self, now: Instant, host: Host, read_only: bool) {
        self.walk.start_round();
        let probe = read_only.then(|| Probe {
            next: now + PROBE_MIN,
            interval: PROBE_MIN * 2,
            asked: false,
        });
        self.trouble = None;
        self.link = Link::Up(Up { host, last_sent: now, read_only, probe });
        // Order on the wire: credentials, watches, waiting requests. Watches follow the credentials
        // because the server checks the read permission of a watch.
        for at in 0..self.credentials.len() {
            self.send_credentials(at);
        }
        let requests = self.watches.set_watches(self.last_zxid);
        let count = requests.len();
        let mut line = VecDeque::with_capacity(count + self.in_line.len());
        for (at, (op, body)) in requests.into_iter().enumerate() {
            let xid = self.take_xid();
            let end = encode_frame(&mut self.out, &mut self.stream_end, xid, op, |out| {
                out.extend_from_slice(&body);
            });
            let what = What::SetWatches { last: at + 1 == count };
            line.push_back(Pending { xid, end, what });
        }
        let mut rest = self.waiting.as_slice();
        for mut pending in self.in_line.drain(..) {
            // Without a connection only requests of `encode` are pending, one frame each.
            let Some((head, _)) = rest.split_first_chunk::<4>() else { break };
            let size = 4 + u32::from_be_bytes(*head) as usize;
            self.stream_end += size as u64;
            pending.end = self.stream_end;
            rest = &rest[size..];
            line.push_back(pending);
        }
        self.in_line = line;
        self.out.append(&mut self.waiting);
        let state = match (read_only, self.was_connected) {
            (true, _) => ConnectionState::ReadOnly,
            (false, true) => ConnectionState::Reconnected,
            (false, false) => ConnectionState::Connected,
        };
        self.was_connected = true;
        self.outputs.push_back(Output::State(state));
    }

    // Packets of servers.

    fn on_greeting(&mut self, now: Instant, frame: &[u8]) {
        let Ok(response) = ConnectResponse::decode(frame) else {
            return self.drop_connection(now, "the answer to the handshake cannot be read");
        };
        let Link::Greeting { host, .. } = &self.link else { return };
        let host = host.clone();
        let read_only = response.read_only.unwrap_or(false);
        if response.timeout_ms <= 0 {
            self.outputs.push_back(Output::Disconnect);
            if self.is_global {
                return self.become_over(ConnectionState::Lost);
            }
            // A new session cannot have expired: this server rejects it.
            self.set_trouble("the server refuses a new session");
            return self.attempt_failed(now);
        }
        if self.is_global && response.session != self.session {
            // Another session in place of ours does not own our ephemeral nodes. Using it as if
            // nothing had happened would let two clients hold one lock.
            tracing::warn!(
                session = %self.session,
                other = %response.session,
                "server replied with another session"
            );
            self.outputs.push_back(Output::Disconnect);
            return self.become_over(ConnectionState::Lost);
        }
        self.session = response.session;
        self.password = response.password;
        self.is_global |= !read_only;
        let granted = Duration::from_millis(response.timeout_ms as u64);
        if granted.as_millis() != self.timeout.as_millis() {
            // The limits of a server are minSessionTimeout and maxSessionTimeout, 2 and 20 times
            // tickTime by default.
            let requested_ms = self.settings.session_timeout.as_millis();
            tracing::warn!(
                session = %self.session,
                requested_ms,
                timeout_ms = granted.as_millis(),
                "server granted another session timeout"
            );
        }
        self.timeout = granted;
        self.last_heard = now;
        self.become_up(now, host, read_only);
    }

    fn on_reply<'a>(&mut self, now: Instant, frame: &'a [u8]) -> Received<'a, T> {
        let mut reader = Reader::new(frame);
        let Ok(header) = ReplyHeader::decode(&mut reader) else {
            self.drop_connection(now, "a reply without a header");
            return Received::Nothing;
        };
        if !self.hear(now) {
            return Received::Nothing;
        }
        self.rounds = 0;
        match header.xid {
            Xid::NOTIFICATION => {
                self.on_notification(now, &header, &mut reader);
                return Received::Nothing;
            }
            Xid::PING => return Received::Nothing,
            Xid::AUTH => {
                self.on_auth_reply(now, header.err);
                return Received::Nothing;
            }
            _ => {}
        }
        let next = self.in_line.front().map(|pending| pending.xid);
        if next != Some(header.xid.0) {
            self.drop_connection(now, "a reply out of turn");
            return Received::Nothing;
        }
        if header.zxid > Zxid::ZERO {
            self.last_zxid = self.last_zxid.max(header.zxid);
            self.last_zxid_seen = self.last_zxid_seen.max(header.zxid);
        }
        let Some(pending) = self.in_line.pop_front() else { return Received::Nothing };
        match pending.what {
            What::Request { token, watch } => {
                if let Some(watch) = watch {
                    self.register(watch, header.err);
                }
                Received::Reply { token, err: header.err, body: reader.rest() }
            }
            What::Remove { token, code, path } => {
                let removed = match header.err {
                    0 => self.watches.take(code, &path),
                    _ => Vec::new(),
                };
                if !removed.is_empty() {
                    self.outputs.push_back(Output::Removed(removed));
                }
                Received::Reply { token, err: header.err, body: reader.rest() }
            }
            What::SetWatches { last } => {
                if header.err != 0 {
                    // Without the watches events would be lost silently. The next connection
                    // retries, after a pause, because the server may be overloaded.
                    self.rounds = REFUSED_ROUNDS;
                    self.drop_connection(now, "the server did not take the watches back");
                    return Received::Nothing;
                }
                let lasting = if last { self.watches.lasting() } else { Vec::new() };
                if !lasting.is_empty() {
                    self.outputs.push_back(Output::Gap(lasting));
                }
                Received::Nothing
            }
            What::Forgotten => Received::Nothing,
            What::Close => {
                self.outputs.push_back(Output::Disconnect);
                self.become_over(ConnectionState::Closed);
                Received::Nothing
            }
        }
    }

    fn register(&mut self, watch: WatchRequest<W>, err: i32) {
        let kind = match (watch.kind, err) {
            (kind, 0) => kind,
            // The server has set a watch for the creation of the node.
            (WatchKind::Exist, err) if err == ErrorCode::NoNode.code() => WatchKind::Exist,
            _ => return,
        };
        // `exists` found the node, so the server has set a data watch.
        let kind = if kind == WatchKind::Exist && err == 0 { WatchKind::Data } else { kind };
        if watch.watcher.is_wanted() {
            self.watches.add(kind, &watch.path, watch.watcher);
        }
    }

    fn on_notification(&mut self, now: Instant, header: &ReplyHeader, reader: &mut Reader<'_>) {
        let Ok(event) = WatcherEvent::decode(reader) else {
            return self.drop_connection(now, "a watch event that cannot be read");
        };
        let Some(kind) = EventType::from_code(event.kind) else {
            // Newer servers may send events that this client does not know.
            tracing::debug!(kind = event.kind, "watch event of unknown kind ignored");
            return;
        };
        // Servers before 3.9 do not send the zxid.
        if header.zxid > Zxid::ZERO {
            self.last_zxid_seen = self.last_zxid_seen.max(header.zxid);
        }
        let told = self.watches.fire(kind, &event.path);
        if !told.is_empty() {
            let event = RawEvent {
                kind,
                path: event.path,
                zxid: header.zxid,
                oldest_sibling: event.oldest_sibling,
            };
            self.outputs.push_back(Output::Event(event, told));
        }
    }

    fn on_auth_reply(&mut self, now: Instant, err: i32) {
        let Some(at) = self.auth_in_line.pop_front() else {
            return self.drop_connection(now, "a reply out of turn");
        };
        if err != 0 {
            self.outputs.push_back(Output::Disconnect);
            return self.become_over(ConnectionState::AuthFailed);
        }
        if let Some(token) = self.credentials[at].token.take() {
            self.outputs.push_back(Output::Authenticated(token));
        }
    }
}

const SILENT: &str = "the server has been silent for too long";

/// The `end` of requests that wait for a connection. No frame ends at offset 0 of a stream.
const WAITING: u64 = 0;

/// Appends a complete frame; `end` counts the bytes of the stream. Returns the new end.
fn encode_frame(
    out: &mut Vec<u8>,
    end: &mut u64,
    xid: i32,
    op: OpCode,
    body: impl FnOnce(&mut Vec<u8>),
) -> u64 {
    let start = out.len();
    out.put_i32(0);
    RequestHeader { xid: Xid(xid), op: op.code() }.encode(out);
    body(out);
    let len = u32::try_from(out.len() - start - 4).unwrap_or(u32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
    *end += (out.len() - start) as u64;
    *end
}
