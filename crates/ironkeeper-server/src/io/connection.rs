//! The task of one client connection: reads its stream, passes the bytes to the protocol, sends the
//! output, and ends the connection.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use ironkeeper_engine::conn::{CloseReason, Conn, Next, Submit};
use ironkeeper_engine::database::Hasher;
use ironkeeper_engine::{Input, Now};
use ironkeeper_proto::four_letter::FourLetterWord;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Sleep;

use super::ConnSender;
use super::handle::IoHandle;
use crate::four_letter;
use crate::limits::Permit;
use crate::session_log::canonical;
use crate::shared::Shared;
use crate::wire::{Reader, Stream};

/// The maximum size of one read of a stream.
const READ_BYTES: usize = 64 << 10;
/// A connection's own empty buffers are freed above this size.
const BUFFER_BYTES_KEPT: usize = 16 << 10;
/// Above this size buffers are freed when they are nearly empty as well.
const LARGE_BUFFER_BYTES: usize = 256 << 10;
/// The maximum number of turns in which a connection that is being closed sends its last replies.
const LAST_TURNS_MAX: usize = 64;
/// The maximum time for sending a last reply.
pub(super) const CLOSING_GRACE: Duration = Duration::from_secs(5);

thread_local! {
    /// All connections of a thread read into one buffer, so idle ones need none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// One client's connection and the state of its task.
pub(super) struct Connection {
    reader: Reader,
    conn: Arc<Conn>,
    sender: Arc<ConnSender>,
    handle: IoHandle,
    shared: Arc<Shared>,
    /// Bytes that are received but incomplete or not processed yet.
    unread: Vec<u8>,
    submits: Vec<Submit>,
    /// A reply must be made, or replies must be sent, before more is read.
    is_paused: bool,
    /// The value of `OutboxSender::writes` before requests were last passed to the protocol.
    writes: u64,
    /// The stream accepts no more bytes for now.
    is_blocked: bool,
    /// Requests or waiting reads are left that can be served after other connections have had their
    /// turn.
    must_yield: bool,
    /// Bytes read in this turn.
    turn_bytes: usize,
    /// The connection has had large buffers, which are freed when it ends.
    was_large: bool,
    /// The client has requested a session.
    has_requested_session: bool,
    /// Until when the client must have sent its connect request, or the last reply must have been
    /// sent.
    deadline: Option<Pin<Box<Sleep>>>,
    _permit: Permit,
}

enum Event {
    Received(usize),
    Woken,
    Writable,
    /// Other connections have had their turn.
    Turn,
    DeadlineReached,
    Stop,
}

/// The reason why a connection's task ends.
enum End {
    /// The client or the network closed the connection.
    Lost,
    Close(CloseReason),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Lost
    }
}

impl Connection {
    pub(super) fn open(
        handle: &IoHandle,
        stream: Stream,
        permit: Permit,
        shared: &Arc<Shared>,
    ) -> Connection {
        let peer = stream.peer();
        let (reader, writer) = stream.split();
        let sender = Arc::new(ConnSender::new(writer));
        let tag = handle.register(Arc::clone(&sender));
        let hasher = Hasher::with_seed(shared.core.db.config.tree.hash_seed);
        let conn = Conn::new(shared.next_conn_id(), tag, peer, shared.core.clock.now(), hasher);
        shared.connections.insert(Arc::clone(&conn));
        Connection {
            reader,
            conn,
            sender,
            handle: handle.clone(),
            shared: Arc::clone(shared),
            unread: Vec::new(),
            submits: Vec::new(),
            is_paused: false,
            writes: 0,
            is_blocked: false,
            must_yield: false,
            turn_bytes: 0,
            was_large: false,
            has_requested_session: false,
            deadline: Some(Box::pin(tokio::time::sleep(shared.sessionless_timeout))),
            _permit: permit,
        }
    }

    pub(super) async fn run(mut self) {
        let end = self.serve().await;
        match &end {
            End::Lost | End::Close(CloseReason::SessionClosed) => {}
            End::Close(reason) => self.shared.connection_log.closed(&self.conn, *reason),
        }
        let mut watches = self.conn.disconnect(self.now(), &self.shared.core.db, &mut self.submits);
        self.submit();
        self.shared.connections.remove(self.conn.id);
        // Closing a socket with unread bytes resets it, and the last reply would be lost: so the
        // sending direction is ended first, by dropping the writer. A client that has closed its
        // session sends nothing more.
        if let Some(writer) = self.sender.close()
            && matches!(end, End::Close(CloseReason::SessionClosed))
        {
            writer.leave_open();
        }
        self.handle.unregister(self.conn.tag);
        let Connection { reader, unread, handle, shared, was_large, _permit: permit, .. } = self;
        // The client may reconnect before its old watches are removed.
        drop((reader, permit, unread));
        while watches.remove_some(&shared.core.db) {
            tokio::task::yield_now().await;
        }
        if was_large {
            handle.note_freed();
        }
    }

    fn now(&self) -> Now {
        self.shared.core.clock.now()
    }

    fn submit(&mut self) {
        if !self.submits.is_empty() {
            let submits = self.submits.drain(..);
            self.shared.core.submit(submits.map(Input::Submit));
        }
    }

    async fn serve(&mut self) -> End {
        let shutdown = Arc::clone(&self.shared.core.shutdown);
        let stopped = shutdown.begun();
        tokio::pin!(stopped);
        loop {
            match self.advance().await {
                Ok(None) => {}
                // These end immediately: the client does not read, or must not receive more.
                Ok(Some(
                    reason @ (CloseReason::SessionExpired
                    | CloseReason::SessionMoved
                    | CloseReason::SlowReader(_)),
                )) => return End::Close(reason),
                Ok(Some(reason)) if !self.is_blocked => return End::Close(reason),
                Ok(Some(_)) => {
                    self.set_paused(true);
                    if self.deadline.is_none() {
                        self.deadline = Some(Box::pin(tokio::time::sleep(CLOSING_GRACE)));
                    }
                }
                Err(end) => return end,
            }
            if self.must_yield || self.turn_bytes >= READ_BYTES {
                self.turn_bytes = 0;
                tokio::task::yield_now().await;
            }
            let event = poll_fn(|cx| {
                if stopped.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(Ok(Event::Stop));
                }
                self.poll_event(cx)
            });
            let done = match event.await {
                Ok(Event::Received(0)) | Err(_) => {
                    let stats = &self.shared.core.db.stats;
                    stats.connections_dropped.fetch_add(1, Ordering::Relaxed);
                    return End::Lost;
                }
                Ok(Event::Received(len)) => self.on_bytes(len).await,
                Ok(Event::Woken) if self.is_abandoned() => {
                    let stats = &self.shared.core.db.stats;
                    stats.throttle.stale_requests_dropped.fetch_add(1, Ordering::Relaxed);
                    stats.connections_dropped.fetch_add(1, Ordering::Relaxed);
                    return End::Lost;
                }
                Ok(Event::Woken) if self.is_paused => self.on_bytes(0).await,
                Ok(Event::Turn) => self.on_bytes(0).await,
                Ok(Event::Woken | Event::Writable) => Ok(()),
                Ok(Event::DeadlineReached) => {
                    if !self.conn.has_session() {
                        let stats = &self.shared.core.db.stats;
                        stats.sessionless_expired.fetch_add(1, Ordering::Relaxed);
                        if self.has_requested_session {
                            self.shared.connection_log.without_session(&self.conn);
                        }
                    }
                    return End::Lost;
                }
                Ok(Event::Stop) => {
                    if !shutdown.is_halted() {
                        self.flush_last();
                    }
                    return End::Close(CloseReason::Shutdown);
                }
            };
            self.submit();
            if let Err(end) = done {
                // Replies made before the error are still sent, as far as the stream accepts them
                // immediately.
                self.flush_last();
                return end;
            }
        }
    }

    /// Sends the outbox. The room made by this may let waiting requests pass.
    async fn advance(&mut self) -> Result<Option<CloseReason>, End> {
        loop {
            let close = self.flush()?;
            if close.is_some() || !self.is_paused || self.writes == self.sender.writes() {
                return Ok(close);
            }
            let done = self.on_bytes(0).await;
            self.submit();
            done?;
            // The next iteration takes as long as this one.
            tokio::task::yield_now().await;
        }
    }

    fn poll_event(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Event>> {
        if self.sender.poll_notified(cx).is_ready() {
            return Poll::Ready(Ok(Event::Woken));
        }
        if self.is_blocked && self.reader.poll_writable(cx)?.is_ready() {
            return Poll::Ready(Ok(Event::Writable));
        }
        if self.must_yield && !self.is_blocked {
            self.must_yield = false;
            return Poll::Ready(Ok(Event::Turn));
        }
        // While a client does not read its replies, its requests are not read.
        if !self.is_paused && !self.is_blocked {
            let received = SCRATCH.with_borrow_mut(|scratch| {
                let mut buffer = ReadBuf::new(scratch);
                Pin::new(&mut self.reader)
                    .poll_read(cx, &mut buffer)
                    .map_ok(|()| buffer.filled().len())
            });
            if let Poll::Ready(received) = received {
                self.turn_bytes += *received.as_ref().unwrap_or(&0);
                return Poll::Ready(received.map(Event::Received));
            }
        }
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            return Poll::Ready(Ok(Event::DeadlineReached));
        }
        Poll::Pending
    }

    /// Processes the bytes that were just read into the thread's buffer, after the bytes left
    /// before.
    async fn on_bytes(&mut self, len: usize) -> Result<(), End> {
        let now = self.now();
        self.writes = self.sender.writes();
        let db = &self.shared.core.db;
        let received = SCRATCH.with_borrow(|scratch| {
            let fresh = &scratch[..len];
            if self.unread.is_empty() {
                let received = self.conn.receive(now, db, fresh, &mut self.submits)?;
                self.unread.extend_from_slice(&fresh[received.consumed..]);
                return Ok(received);
            }
            self.unread.extend_from_slice(fresh);
            let received = self.conn.receive(now, db, &self.unread, &mut self.submits)?;
            self.unread.drain(..received.consumed);
            Ok(received)
        });
        self.was_large |= self.unread.capacity() > LARGE_BUFFER_BYTES;
        if self.unread.is_empty() && self.unread.capacity() > BUFFER_BYTES_KEPT {
            self.unread = Vec::new();
        } else if self.unread.capacity() > LARGE_BUFFER_BYTES
            && self.unread.len() < self.unread.capacity() / 4
        {
            self.unread.shrink_to(BUFFER_BYTES_KEPT);
        }
        match received.map_err(End::Close)?.next {
            // A disabled word is rejected without waiting for its argument.
            Next::Read
                if self.unread == b"stmk"
                    && !four_letter::is_allowed(&self.shared, FourLetterWord::Stmk) =>
            {
                return Err(self.answer_word(FourLetterWord::Stmk, 0).await);
            }
            Next::Read => self.set_paused(false),
            Next::Wait => self.set_paused(true),
            Next::Yield => {
                self.set_paused(false);
                self.must_yield = true;
            }
            Next::FourLetter { word, argument } => {
                return Err(self.answer_word(word, argument).await);
            }
        }
        if self.deadline.is_some() {
            self.extend_deadline();
        }
        Ok(())
    }

    fn set_paused(&mut self, is_paused: bool) {
        if self.is_paused != is_paused {
            self.is_paused = is_paused;
            self.sender.set_paused(is_paused);
        }
    }

    /// Extends the deadline once the client has requested a session: the server may take at most
    /// the session timeout.
    fn extend_deadline(&mut self) {
        if self.conn.has_session() {
            self.deadline = None;
            tracing::debug!(
                session = %self.conn.session(),
                client = %canonical(self.conn.peer),
                timeout_ms = self.conn.view().timeout_ms,
                "session opened",
            );
        } else if !self.has_requested_session
            && let Some(timeout_ms) = self.conn.opening_timeout_ms()
        {
            self.has_requested_session = true;
            let timeout = Duration::from_millis(timeout_ms);
            self.deadline = Some(Box::pin(tokio::time::sleep(timeout)));
        }
    }

    /// Returns whether a request waits for the request throttle although the client has
    /// disconnected, and such requests are to be dropped. Reads no bytes.
    fn is_abandoned(&self) -> bool {
        let Some(throttle) = &self.shared.core.db.request_throttle else { return false };
        if !(throttle.config.drop_stale && throttle.config.stale_when_gone) {
            return false;
        }
        self.conn.is_in_line() && self.reader.is_ended_by_peer()
    }

    /// Replies to a four-letter word; nothing else is served on its connection.
    async fn answer_word(&mut self, word: FourLetterWord, argument: i64) -> End {
        let answer = four_letter::answer(&self.shared, &self.conn, word, argument).await;
        if let Some(writer) = self.sender.close() {
            let sending = writer.write_all(answer.as_bytes());
            let _ = tokio::time::timeout(CLOSING_GRACE, sending).await;
        }
        End::Lost
    }

    /// Sends what the stream accepts immediately.
    fn flush_last(&mut self) {
        for _ in 0..LAST_TURNS_MAX {
            self.must_yield = false;
            if self.flush().is_err() || !self.must_yield {
                break;
            }
        }
    }

    /// Sends the outbox. Returns the reason if the connection is to be closed after the bytes that
    /// the stream has not accepted yet.
    fn flush(&mut self) -> Result<Option<CloseReason>, End> {
        let core = &self.shared.core;
        let flushed = self.sender.flush(&self.conn, &core.db, || core.clock.now())?;
        self.is_blocked = flushed.is_blocked;
        self.was_large |= self.is_blocked;
        self.must_yield |= flushed.has_more;
        if self.is_blocked && self.shared.core.db.unsent.is_over() {
            self.shared.make_room();
        }
        Ok(flushed.close)
    }
}
