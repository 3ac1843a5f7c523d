//! The session machine: connect, re-attach, ping, answers in order, watches and credentials after a
//! reconnect, expiry, close.
//!
//! The contract, by prefix: `handle_*` takes something that happened, `poll_output` hands out what has
//! to be done about it, bare verbs are commands. The clock is an argument. Requests are encoded into
//! one outgoing buffer at the moment of [`Machine::submit`], which is also when they take their place
//! in line; the driver takes the buffer as a whole, so that many requests leave in one write.
//!
//! Answers are matched by position, not by number: servers answer a session in order, and a number
//! that does not fit tells of a broken peer, which costs the connection. Every submitted request ends
//! exactly once: with the reply, or with a [`Failure`] when connection or session end.
//!
//! Requests made while there is no connection wait for one. They are failed when every server has been
//! tried in vain, and together with those in flight when a connection breaks: a later request must not
//! be carried out if an earlier one was lost.

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

/// The longest handshake answer worth looking at. Real ones have 36 or 37 bytes.
pub(crate) const HANDSHAKE_BYTES_MAX: usize = 1024;

/// The first pause after all servers have been tried in vain; it doubles up to the second.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
const BACKOFF_MAX: Duration = Duration::from_secs(5);
/// A server that refuses watches is left alone as if this many rounds had been in vain.
const REFUSED_ROUNDS: u32 = 3;
/// The clients of a server that went away do not come back in the same millisecond.
const SPREAD_MS: u64 = 50;
/// Read-only clients look for a full server this often, doubling.
const PROBE_MIN: Duration = Duration::from_millis(100);
const PROBE_MAX: Duration = Duration::from_secs(60);
/// However long the session timeout: middle boxes drop silent connections.
const PING_INTERVAL_MAX: Duration = Duration::from_secs(10);

/// What the user chose.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) session_timeout: Duration,
    /// How long one server may take to accept and to answer the handshake; `None` shares out the
    /// session timeout between the servers.
    pub(crate) attempt_timeout: Option<Duration>,
    pub(crate) read_only: bool,
    pub(crate) reply_bytes_max: usize,
    pub(crate) request_bytes_max: usize,
    /// Bounds what waits to be sent, and with it the memory of a client whose server is slow.
    pub(crate) waiting_bytes_max: usize,
}

/// Why a request ended without a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// `sent`: the last byte of it has left, so it may have been carried out.
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

/// A change in the tree, as the server tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RawEvent {
    pub(crate) kind: EventType,
    pub(crate) path: String,
    pub(crate) zxid: Zxid,
    pub(crate) oldest_sibling: Option<Zxid>,
}

/// What the driver has to do, in this order.
#[derive(Debug)]
pub(crate) enum Output<T, W> {
    /// Open a transport, then `handle_opened` or `handle_closed`.
    Connect(Host),
    /// Drop the transport, or the attempt to open one. Nothing is to be reported about it.
    Disconnect,
    State(ConnectionState),
    Failed(T, Failure),
    Event(RawEvent, Vec<W>),
    /// These may have missed events.
    Gap(Vec<W>),
    /// These will hear no more.
    Ended(Vec<W>),
    /// Somebody asked for the end of these watches.
    Removed(Vec<W>),
    /// Ask this server whether it takes writes (`isro`), then `handle_probed`.
    Probe(Host),
    /// Credentials were accepted.
    Authenticated(T),
}

/// What a frame was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Received<'a, T> {
    /// The reply to a request.
    Reply { token: T, err: i32, body: &'a [u8] },
    /// Look at the outputs.
    Nothing,
}

/// The watch that a request asks for along the way.
#[derive(Debug)]
pub(crate) struct WatchRequest<W> {
    pub(crate) kind: WatchKind,
    pub(crate) path: Box<str>,
    pub(crate) watcher: W,
}

#[derive(Debug)]
struct Pending<T, W> {
    xid: i32,
    /// Where the request ends in the stream of outgoing bytes.
    end: u64,
    what: What<T, W>,
}

#[derive(Debug)]
enum What<T, W> {
    Request {
        token: T,
        watch: Option<WatchRequest<W>>,
    },
    /// Takes all watches of a kind with it.
    Remove {
        token: T,
        code: i32,
        path: Box<str>,
    },
    /// Our own; `last` of the batch.
    SetWatches {
        last: bool,
    },
    /// Nobody waits for the answer.
    Forgotten,
    Close,
}

#[derive(Debug)]
enum Link {
    /// Before the first attempt, and between attempts.
    Waiting {
        until: Instant,
    },
    /// The driver opens a transport.
    Opening {
        host: Host,
        deadline: Instant,
    },
    /// The handshake is under way.
    Greeting {
        host: Host,
        deadline: Instant,
    },
    Up(Up),
    /// The end, and why.
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
    /// A question is out.
    asked: bool,
}

#[derive(Debug)]
struct Credentials<T> {
    scheme: String,
    auth: Vec<u8>,
    /// Who waits for them to be accepted for the first time.
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
    /// As negotiated; as wished for before that.
    timeout: Duration,
    /// A session that only ever met read-only servers is worth nothing to the others.
    is_global: bool,
    was_connected: bool,
    /// Of replies. Events do not count: one transaction can cause several, and if the connection breaks between them,
    /// the watches that are set anew from here on have the server tell of the rest.
    last_zxid: Zxid,
    /// Of replies and events. No server that knows less is good for us: whoever acts upon an event must find what
    /// came before it.
    last_zxid_seen: Zxid,
    last_heard: Instant,
    /// Rounds through all servers since the last useful connection.
    rounds: u32,
    /// Why there is no connection; the latest reason.
    trouble: Option<String>,

    next_xid: i32,
    /// May leave now.
    out: Vec<u8>,
    /// Requests that wait for a connection, encoded.
    waiting: Vec<u8>,
    /// Everything that will be answered, in the order it leaves: `out` first, then `waiting`. Bounded
    /// by `waiting_bytes_max` for what has not left, by the server's own limits for what has.
    in_line: VecDeque<Pending<T, W>>,
    /// The last byte ever put into the stream of this connection, and the last one that left.
    stream_end: u64,
    stream_left: u64,

    credentials: Vec<Credentials<T>>,
    /// Which of them the server has not answered yet, in order of sending.
    auth_in_line: VecDeque<usize>,
    watches: WatchTable<W>,
    closing: bool,
    /// Who waits for the end.
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

    /// Takes up a session that another client object left behind.
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

    /// The server in use.
    pub(crate) fn server(&self) -> Option<&Host> {
        match &self.link {
            Link::Up(up) => Some(&up.host),
            _ => None,
        }
    }

    /// Why there is no connection, as far as that is known.
    pub(crate) fn trouble(&self) -> Option<&str> {
        self.trouble.as_deref()
    }

    /// The transport says why it is gone, or could not be opened.
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

    /// Whether the server owes an answer, so that the driver is going to hear from it.
    pub(crate) fn awaits_reply(&self) -> bool {
        matches!(self.link, Link::Up(_)) && !self.in_line.is_empty()
    }

    /// What may leave and has not been taken.
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

    /// Puts a request at the end of the line; `body` writes what follows its header. On `Err` the
    /// request did not take a place.
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

    /// Adds credentials, for this connection and all that follow. The token is answered when a server
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

    /// Forgets a watcher; what the server still tells of it is ignored.
    pub(crate) fn forget_watch(&mut self, kind: WatchKind, path: &str, id: WatcherId) -> bool {
        self.watches.remove(kind, path, id)
    }

    /// Whether somebody needs the server's watch of this kind and path, or has just asked for it.
    pub(crate) fn is_watched(&self, kind: WatchKind, path: &str) -> bool {
        self.watches.is_watched(kind, path)
            || self.asks_for(kind, path).any(|watch| watch.watcher.is_wanted())
    }

    /// The watches in line that the server will count as the same.
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

    /// Removes all watches of a node, here and on the server; `code` names the kinds as on the wire.
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

    /// Tells the server to forget a watch, without waiting for the answer.
    pub(crate) fn unwatch(&mut self, kind: WatchKind, path: &str) {
        // A server that is not connected knows of no watch, unless a request for one waits to be sent.
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

    /// Ends the session, after everything that is in line. The token fails with `Closed` when it is
    /// over, however it ended. It is given back if it is over already: then there may be no driver left
    /// to look at outputs.
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
            // Nobody to tell. The server ends the session when its time is over.
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

    /// Ends everything at once: there is no driver any more.
    pub(crate) fn abandon(&mut self) {
        if !self.is_over() {
            self.become_over(ConnectionState::Closed);
        }
    }

    /// Moves all that may leave into `buffer`, which has to be empty.
    pub(crate) fn take_outgoing(&mut self, buffer: &mut Vec<u8>) {
        debug_assert!(buffer.is_empty());
        std::mem::swap(&mut self.out, buffer);
    }

    // What happened.

    /// So many bytes left.
    pub(crate) fn handle_written(&mut self, now: Instant, count: usize) {
        self.stream_left += count as u64;
        if let Link::Up(up) = &mut self.link {
            up.last_sent = now;
        }
    }

    /// The transport asked for is open.
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

    /// The transport is gone, or could not be opened.
    pub(crate) fn handle_closed(&mut self, now: Instant) {
        match self.link {
            Link::Over(_) | Link::Waiting { .. } => {}
            Link::Opening { .. } | Link::Greeting { .. } => self.attempt_failed(now),
            Link::Up(_) => self.connection_lost(now),
        }
    }

    /// A server answered whether it takes writes; `None` if it could not be asked.
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

    /// The longest frame to accept at this point.
    pub(crate) fn frame_bytes_max(&self) -> usize {
        match self.link {
            Link::Up(_) => self.settings.reply_bytes_max,
            _ => HANDSHAKE_BYTES_MAX,
        }
    }

    /// A frame longer than that begins. Says whether the driver may pass over it and go on: only if it
    /// is the answer to the request whose turn it is, which then fails.
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

    /// The peer does not speak the protocol.
    pub(crate) fn handle_garbage(&mut self, now: Instant) {
        self.drop_connection(now, "not the ZooKeeper protocol");
    }

    /// A whole frame arrived.
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

    /// When [`Machine::handle_timeout`] has to be called at the latest.
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

    /// Does what is due. Early and repeated calls are harmless.
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
            // It leaves in a moment; counting from here keeps one ping per interval even if the
            // transport is stuck.
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
                // The only server: it drops us by itself when it has found its ensemble.
                None => up.probe = None,
            }
        }
    }

    /// From when on a connected server has been silent for too long. Up to then the session lives, since we ask for a
    /// sign of life every third of its timeout.
    fn silence(&self) -> Instant {
        self.last_heard + self.timeout * 2 / 3
    }

    /// Takes note of a word from a connected server. False if it has been there for who knows how long, since this process
    /// stood still: the session may be over, and whoever is told that it is its turn would act in the place of another.
    fn hear(&mut self, now: Instant) -> bool {
        if now >= self.silence() {
            self.drop_connection(now, SILENT);
            return false;
        }
        self.last_heard = now;
        true
    }

    /// Whether the session lives, and its writes are taken, as far as can be told without asking.
    pub(crate) fn is_in_touch(&self, now: Instant) -> bool {
        matches!(&self.link, Link::Up(up) if !up.read_only) && !self.closing && now < self.silence()
    }

    fn ping_interval(&self) -> Duration {
        (self.timeout / 3).min(PING_INTERVAL_MAX)
    }

    /// When the session has to be given up for lack of any word from a server: not before a server
    /// would have done so.
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

    // The line.

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
            // The place in the stream is known only once there is one.
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

    /// Fails everything in line.
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

    /// The next server at once; after the last one, those who wait are told, and a pause is made.
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
        // A connection that breaks before it brought a single answer is no better than none.
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
            // A server looks at credentials at once, ahead of requests that came before them.
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
        // On the wire: credentials, watches, then those who waited. Watches come behind credentials
        // because the server checks what their owner may read.
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
            // Only requests of `submit` are in line without a connection, one frame each.
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

    // What servers say.

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
            // A new session cannot have expired; this server does not want us.
            self.set_trouble("the server refuses a new session");
            return self.attempt_failed(now);
        }
        if self.is_global && response.session != self.session {
            // Another session in place of ours: our ephemeral nodes are not its own, and going on as
            // if nothing had happened would make two owners of one lock.
            tracing::warn!(ours = %self.session, theirs = %response.session, "session swapped");
            self.outputs.push_back(Output::Disconnect);
            return self.become_over(ConnectionState::Lost);
        }
        self.session = response.session;
        self.password = response.password;
        self.is_global |= !read_only;
        let granted = Duration::from_millis(response.timeout_ms as u64);
        if granted.as_millis() != self.timeout.as_millis() {
            let asked = self.settings.session_timeout;
            tracing::warn!(
                session = %self.session, ?asked, ?granted,
                "the server grants another session timeout than the client asked for; its limits \
                 are minSessionTimeout and maxSessionTimeout, 2 and 20 times tickTime by default"
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
                    // Events would be missed in silence. The next connection tries again, though not
                    // at once: the server may be overloaded.
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
            // The server watches for the node to appear.
            (WatchKind::Exist, err) if err == ErrorCode::NoNode.code() => WatchKind::Exist,
            _ => return,
        };
        // Asked for by exists: the node is there, so it is its data that is watched.
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
            // Newer servers may know events that we do not.
            tracing::debug!(kind = event.kind, "unknown kind of watch event");
            return;
        };
        // Servers before 3.9 do not tell it.
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

/// The `end` of requests that wait for a connection. No frame ends at the start of a stream.
const WAITING: u64 = 0;

/// Appends a whole frame; `end` counts the bytes of the stream. Returns the new end.
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
