//! The I/O threads: sockets, frames in, replies out.
//!
//! Each thread runs a single-threaded tokio runtime; a connection stays on its thread. A small
//! request costs two or three system calls, so this module minimises their number: one read
//! receives as many requests as there are, one write sends their replies, and the engine wakes a
//! thread once for all its connections.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ironkeeper_engine::conn::{CloseReason, Conn, Next, Submit};
use ironkeeper_engine::database::Hasher;
use ironkeeper_engine::{Input, Now};
use ironkeeper_proto::four_letter::FourLetterWord;
use tokio::io::{AsyncRead, AsyncWriteExt, Interest, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedReadHalf;
use tokio::sync::{Notify, mpsc};
use tokio::time::Sleep;

use crate::accept;
use crate::four_letter;
use crate::limits::Permit;
use crate::outlet::Outlet;
use crate::panics;
use crate::session_log::canonical;
use crate::shared::Shared;
use crate::unused_memory;

/// The maximum size of one read of a socket.
const READ_BYTES: usize = 64 << 10;
/// A connection's own empty buffers are freed above this size.
const BUFFER_BYTES_KEPT: usize = 16 << 10;
/// Above this size buffers are freed when they are nearly empty as well.
const LARGE_BUFFER_BYTES: usize = 256 << 10;
/// The maximum number of turns in which a connection that is being closed sends its last replies.
const LAST_TURNS_MAX: usize = 64;
/// The maximum time for sending a last reply.
const CLOSING_GRACE: Duration = Duration::from_secs(5);
/// The maximum number of four-letter words that the connections of a thread run at the same time.
const WORD_THREADS: usize = 2;

thread_local! {
    /// All connections of a thread read into one buffer, so idle ones need none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// A socket that is being passed to its thread.
#[derive(Debug)]
pub struct Accepted {
    pub stream: std::net::TcpStream,
    pub peer: SocketAddr,
    pub permit: Permit,
}

/// The interface of one I/O thread for the rest of the server.
#[derive(Clone, Debug)]
pub struct IoHandle {
    inner: Arc<IoInner>,
}

#[derive(Debug)]
struct IoInner {
    index: usize,
    ready: Mutex<Vec<Arc<Conn>>>,
    run_core: AtomicBool,
    notify: Notify,
    accepted: mpsc::UnboundedSender<Accepted>,
    connections: AtomicUsize,
    /// Notified when a connection with large buffers has ended.
    freed: Notify,
    /// The entries of the thread's connections, by slot.
    doors: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    doors: Vec<Option<Arc<Door>>>,
    free: Vec<usize>,
}

impl Slots {
    fn find(&self, conn: &Conn) -> Option<&Arc<Door>> {
        self.doors.get((conn.tag & 0xffff_ffff) as usize)?.as_ref()
    }
}

/// The signal and the writer of one connection.
#[derive(Debug)]
struct Door {
    signal: Signal,
    outlet: Outlet,
}

impl IoHandle {
    pub fn new(index: usize) -> (IoHandle, mpsc::UnboundedReceiver<Accepted>) {
        let (accepted, receiver) = mpsc::unbounded_channel();
        let inner = IoInner {
            index,
            ready: Mutex::default(),
            run_core: AtomicBool::new(false),
            notify: Notify::new(),
            accepted,
            connections: AtomicUsize::new(0),
            freed: Notify::new(),
            doors: Mutex::default(),
        };
        (IoHandle { inner: Arc::new(inner) }, receiver)
    }

    /// Returns the index of the thread in a connection's tag.
    pub fn thread_of(tag: u64) -> usize {
        (tag >> 32) as usize
    }

    /// Queues a connection that has work. Call [`IoHandle::wake`] afterwards.
    pub fn push_ready(&self, conn: Arc<Conn>) {
        self.inner.ready.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
    }

    pub fn wake(&self) {
        self.inner.notify.notify_one();
    }

    /// Sends a connection's events from the caller's thread, if they are its only output. Returns
    /// false if the connection has to be queued.
    pub fn send_events(&self, conn: &Conn) -> bool {
        let door = self.doors().find(conn).cloned();
        door.is_some_and(|door| door.outlet.send_events(conn))
    }

    fn doors(&self) -> MutexGuard<'_, Slots> {
        self.inner.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has this thread run the engine.
    pub fn run_core(&self) {
        self.inner.run_core.store(true, Ordering::Release);
        self.wake();
    }

    /// Starts to serve a new connection on this thread, which is the caller's.
    pub fn start(&self, stream: TcpStream, peer: SocketAddr, permit: Permit, shared: &Arc<Shared>) {
        self.inner.connections.fetch_add(1, Ordering::Relaxed);
        self.serve(stream, peer, permit, shared);
    }

    /// Passes a new socket from another thread.
    pub fn hand_over(&self, accepted: Accepted) {
        self.inner.connections.fetch_add(1, Ordering::Relaxed);
        // The receiver exists until shutdown; then the socket may be dropped.
        let _ = self.inner.accepted.send(accepted);
    }

    /// Returns the number of connections of the thread.
    pub fn load(&self) -> usize {
        self.inner.connections.load(Ordering::Relaxed)
    }

    fn serve(&self, stream: TcpStream, peer: SocketAddr, permit: Permit, shared: &Arc<Shared>) {
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!("the connection of {peer} could not be set up: {error}");
            self.inner.connections.fetch_sub(1, Ordering::Relaxed);
            return;
        }
        let connection = Connection::open(self, stream, peer, permit, shared);
        tokio::spawn(connection.run());
    }

    fn register(&self, outlet: Outlet) -> (u64, Arc<Door>) {
        let door = Arc::new(Door { signal: Signal::default(), outlet });
        let mut slots = self.doors();
        let slot = slots.free.pop().unwrap_or_else(|| {
            slots.doors.push(None);
            slots.doors.len() - 1
        });
        slots.doors[slot] = Some(Arc::clone(&door));
        (((self.inner.index as u64) << 32) | slot as u64, door)
    }

    fn unregister(&self, tag: u64) {
        let slot = (tag & 0xffff_ffff) as usize;
        let mut slots = self.doors();
        slots.doors[slot] = None;
        slots.free.push(slot);
        drop(slots);
        self.inner.connections.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The wake-up of one connection's task.
#[derive(Debug, Default)]
struct Signal {
    woken: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Signal {
    fn raise(&self) {
        if !self.woken.swap(true, Ordering::AcqRel) {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.woken.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            slot => *slot = Some(cx.waker().clone()),
        }
        drop(waker);
        if self.woken.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// Runs the main loop of the thread.
pub fn run(
    handle: &IoHandle,
    listener: std::net::TcpListener,
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
    shared: &Arc<Shared>,
) {
    // Dropped after the runtime, and so after its tasks.
    let _closing = Closing { handle, shared };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(WORD_THREADS)
        .on_thread_start({
            let shutdown = Arc::clone(&shared.core.shutdown);
            move || panics::stop_on_panic(&shutdown)
        })
        .build();
    let runtime = match runtime {
        Ok(runtime) => runtime,
        Err(error) => {
            return shared.core.shutdown.fail(format!("no runtime for an I/O thread: {error}"));
        }
    };
    runtime.block_on(async {
        tokio::spawn(dispatch(handle.clone(), Arc::clone(shared)));
        let inner = Arc::clone(&handle.inner);
        tokio::spawn(async move { unused_memory::release_when(&inner.freed).await });
        let accepting = tokio::spawn(accept::run(listener, handle.clone(), Arc::clone(shared)));
        let shutdown = Arc::clone(&shared.core.shutdown);
        let stopped = shutdown.begun();
        tokio::pin!(stopped);
        loop {
            let next = tokio::select! {
                next = accepted.recv() => next,
                () = &mut stopped => break,
            };
            let Some(Accepted { stream, peer, permit }) = next else { break };
            match TcpStream::from_std(stream) {
                Ok(stream) => handle.serve(stream, peer, permit, shared),
                Err(error) => {
                    tracing::debug!("the connection of {peer} could not be set up: {error}");
                    handle.inner.connections.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        accepting.abort();
        if shared.core.shutdown.is_halted() {
            return;
        }
        // Connections notice the shutdown themselves; the thread waits some time for their last
        // replies.
        let grace = tokio::time::Instant::now() + CLOSING_GRACE;
        while handle.load() > 0 && tokio::time::Instant::now() < grace {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// Closes all connections when the thread ends, even by a panic, so that no client takes the server
/// for a running one.
struct Closing<'a> {
    handle: &'a IoHandle,
    shared: &'a Shared,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // The entries of connections whose tasks did not finish.
        self.handle.doors().doors.clear();
        if let Some(member) = &self.shared.core.member {
            member.stop();
        }
    }
}

/// Passes wake-ups to connections. One such task per thread turns one remote wake-up, which costs a
/// system call, into many local ones, which do not.
async fn dispatch(handle: IoHandle, shared: Arc<Shared>) {
    let mut ready = Vec::new();
    loop {
        handle.inner.notify.notified().await;
        if handle.inner.run_core.swap(false, Ordering::AcqRel) {
            shared.core.run();
        }
        std::mem::swap(
            &mut *handle.inner.ready.lock().unwrap_or_else(PoisonError::into_inner),
            &mut ready,
        );
        let slots = handle.doors();
        for conn in ready.drain(..) {
            if let Some(door) = slots.find(&conn) {
                door.signal.raise();
            }
        }
    }
}

/// One client's socket and the state of its task.
struct Connection {
    reader: OwnedReadHalf,
    conn: Arc<Conn>,
    door: Arc<Door>,
    handle: IoHandle,
    shared: Arc<Shared>,
    /// Bytes that are received but incomplete or not processed yet.
    unread: Vec<u8>,
    submits: Vec<Submit>,
    /// A reply must be made, or replies must be sent, before more is read.
    waiting: bool,
    /// The value of `Outlet::departures` when `waiting` was last set.
    departures: u64,
    /// The kernel accepts no more bytes for now.
    is_blocked: bool,
    /// Requests or waiting reads are left that can be served after other connections have had their
    /// turn.
    must_yield: bool,
    /// Bytes read in this turn.
    turn_bytes: usize,
    /// The connection has had large buffers, which are freed when it ends.
    was_large: bool,
    /// The client has requested a session.
    asked: bool,
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
    Late,
    Stop,
}

/// The reason why a connection's task ends.
enum End {
    /// The client or the network closed the connection.
    Gone,
    Close(CloseReason),
}

impl From<io::Error> for End {
    fn from(_: io::Error) -> End {
        End::Gone
    }
}

impl Connection {
    fn open(
        handle: &IoHandle,
        stream: TcpStream,
        peer: SocketAddr,
        permit: Permit,
        shared: &Arc<Shared>,
    ) -> Connection {
        let (reader, writer) = stream.into_split();
        let (tag, door) = handle.register(Outlet::new(writer));
        let hasher = Hasher::with_seed(shared.core.db.config.tree.hash_seed);
        let conn = Conn::new(shared.next_conn_id(), tag, peer, shared.core.clock.now(), hasher);
        shared.connections.insert(Arc::clone(&conn));
        Connection {
            reader,
            conn,
            door,
            handle: handle.clone(),
            shared: Arc::clone(shared),
            unread: Vec::new(),
            submits: Vec::new(),
            waiting: false,
            departures: 0,
            is_blocked: false,
            must_yield: false,
            turn_bytes: 0,
            was_large: false,
            asked: false,
            deadline: Some(Box::pin(tokio::time::sleep(shared.sessionless_timeout))),
            _permit: permit,
        }
    }

    async fn run(mut self) {
        let end = self.serve().await;
        match &end {
            End::Gone | End::Close(CloseReason::SessionClosed) => {}
            End::Close(reason) => self.shared.cut_log.cut(&self.conn, *reason),
        }
        let mut watches = self.conn.disconnect(self.now(), &self.shared.core.db, &mut self.submits);
        self.submit();
        self.shared.connections.remove(self.conn.id);
        // Closing a socket with unread bytes resets it, and the last reply would be lost: so the
        // writer is shut down, which dropping it does. A client that has closed its session sends
        // nothing more.
        if let Some(writer) = self.door.outlet.close()
            && matches!(end, End::Close(CloseReason::SessionClosed))
        {
            writer.forget();
        }
        self.handle.unregister(self.conn.tag);
        let Connection { reader, unread, handle, shared, was_large, _permit: permit, .. } = self;
        // The client may reconnect before its old watches are removed.
        drop((reader, permit, unread));
        while watches.remove_some(&shared.core.db) {
            tokio::task::yield_now().await;
        }
        if was_large {
            handle.inner.freed.notify_one();
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
                    self.set_waiting(true);
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
                    return End::Gone;
                }
                Ok(Event::Received(len)) => self.on_bytes(len).await,
                Ok(Event::Woken) if self.is_abandoned() => {
                    let stats = &self.shared.core.db.stats;
                    stats.throttle.stale_requests_dropped.fetch_add(1, Ordering::Relaxed);
                    stats.connections_dropped.fetch_add(1, Ordering::Relaxed);
                    return End::Gone;
                }
                Ok(Event::Woken) if self.waiting => self.on_bytes(0).await,
                Ok(Event::Turn) => self.on_bytes(0).await,
                Ok(Event::Woken | Event::Writable) => Ok(()),
                Ok(Event::Late) => {
                    if !self.conn.has_session() {
                        let stats = &self.shared.core.db.stats;
                        stats.sessionless_expired.fetch_add(1, Ordering::Relaxed);
                        if self.asked {
                            self.shared.cut_log.late(&self.conn);
                        }
                    }
                    return End::Gone;
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
                // Replies made before the error are still sent, as far as the kernel accepts them
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
            if close.is_some() || !self.waiting || self.departures == self.door.outlet.departures()
            {
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
        if self.door.signal.poll(cx).is_ready() {
            return Poll::Ready(Ok(Event::Woken));
        }
        if self.is_blocked && self.reader.as_ref().poll_write_ready(cx)?.is_ready() {
            return Poll::Ready(Ok(Event::Writable));
        }
        if self.must_yield && !self.is_blocked {
            self.must_yield = false;
            return Poll::Ready(Ok(Event::Turn));
        }
        // While a client does not read its replies, its requests are not read.
        if !self.waiting && !self.is_blocked {
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
            return Poll::Ready(Ok(Event::Late));
        }
        Poll::Pending
    }

    /// Processes the bytes that were just read into the thread's buffer, after the bytes left
    /// before.
    async fn on_bytes(&mut self, len: usize) -> Result<(), End> {
        let now = self.now();
        self.departures = self.door.outlet.departures();
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
            Next::Read => self.set_waiting(false),
            Next::Wait => self.set_waiting(true),
            Next::Yield => {
                self.set_waiting(false);
                self.must_yield = true;
            }
            Next::FourLetter { word, argument } => {
                return Err(self.answer_word(word, argument).await);
            }
        }
        if self.deadline.is_some() {
            self.put_off_deadline();
        }
        Ok(())
    }

    fn set_waiting(&mut self, waiting: bool) {
        if self.waiting != waiting {
            self.waiting = waiting;
            self.door.outlet.set_waiting(waiting);
        }
    }

    /// Extends the deadline once the client has requested a session: the server may take at most
    /// the session timeout.
    fn put_off_deadline(&mut self) {
        if self.conn.has_session() {
            self.deadline = None;
            tracing::debug!(
                session = format_args!("0x{:x}", self.conn.session().0),
                client = %canonical(self.conn.peer),
                timeout_ms = self.conn.view().timeout_ms,
                "session opened",
            );
        } else if !self.asked
            && let Some(timeout_ms) = self.conn.opening_timeout_ms()
        {
            self.asked = true;
            let timeout = Duration::from_millis(timeout_ms);
            self.deadline = Some(Box::pin(tokio::time::sleep(timeout)));
        }
    }

    /// Returns whether a request waits for the request throttle although the client has
    /// disconnected, and such requests are to be dropped. Checks the readiness of the socket; reads
    /// no bytes.
    fn is_abandoned(&self) -> bool {
        let Some(throttle) = &self.shared.core.db.request_throttle else { return false };
        if !(throttle.config.drop_stale && throttle.config.stale_when_gone) {
            return false;
        }
        let ready = std::pin::pin!(self.reader.ready(Interest::READABLE));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        self.conn.is_in_line() && matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Replies to a four-letter word; nothing else is served on its connection.
    async fn answer_word(&mut self, word: FourLetterWord, argument: i64) -> End {
        let answer = four_letter::answer(&self.shared, &self.conn, word, argument).await;
        if let Some(mut writer) = self.door.outlet.close() {
            let sending = writer.write_all(answer.as_bytes());
            let _ = tokio::time::timeout(CLOSING_GRACE, sending).await;
        }
        End::Gone
    }

    /// Sends what the kernel accepts immediately.
    fn flush_last(&mut self) {
        for _ in 0..LAST_TURNS_MAX {
            self.must_yield = false;
            if self.flush().is_err() || !self.must_yield {
                break;
            }
        }
    }

    /// Sends the outbox. Returns the reason if the connection is to be closed after the bytes that
    /// the kernel has not accepted yet.
    fn flush(&mut self) -> Result<Option<CloseReason>, End> {
        let flushed = self.door.outlet.flush(&self.conn, &self.shared.core)?;
        self.is_blocked = flushed.is_blocked;
        self.was_large |= self.is_blocked;
        self.must_yield |= flushed.has_more;
        if self.is_blocked && self.shared.core.db.unsent.is_over() {
            self.shared.make_room();
        }
        Ok(flushed.close)
    }
}
