//! The I/O threads: sockets, frames in, replies out.
//!
//! Each thread runs a single-threaded tokio runtime and owns its connections for life. The cost of
//! a small request is two or three system calls, so everything here is about making fewer: one read
//! takes in as many requests as there are, their replies leave with one write, and the engine wakes
//! a thread once for all its connections.

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

/// One read of a socket takes in at most this much.
const READ_BYTES: usize = 64 << 10;
/// A connection's own buffers are given back above this size when they are empty.
const BUFFER_BYTES_KEPT: usize = 16 << 10;
/// Above this size they are also given back when they are nearly empty.
const LARGE_BUFFER_BYTES: usize = 256 << 10;
/// How many turns a connection that ends has for its last replies.
const LAST_TURNS_MAX: usize = 64;
/// How long a last reply may take to leave.
const CLOSING_GRACE: Duration = Duration::from_secs(5);
/// Four-letter words of a thread's connections that are answered at the same time.
const WORD_THREADS: usize = 2;

thread_local! {
    /// All connections of a thread read into one buffer, so idle ones hold none.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; READ_BYTES].into_boxed_slice());
}

/// A socket on its way to its thread.
#[derive(Debug)]
pub struct Accepted {
    pub stream: std::net::TcpStream,
    pub peer: SocketAddr,
    pub permit: Permit,
}

/// How the rest of the server reaches one I/O thread.
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
    /// A connection with large buffers has ended.
    freed: Notify,
    /// How the thread's connections are reached, by slot.
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

/// How one connection is reached.
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

    /// Which thread a connection's tag names.
    pub fn thread_of(tag: u64) -> usize {
        (tag >> 32) as usize
    }

    /// Queues a connection that has something to do. Follow with [`IoHandle::wake`].
    pub fn push_ready(&self, conn: Arc<Conn>) {
        self.inner.ready.lock().unwrap_or_else(PoisonError::into_inner).push(conn);
    }

    pub fn wake(&self) {
        self.inner.notify.notify_one();
    }

    /// Sends a connection's events from the caller's thread, if they are all there is. False if the connection has to be
    /// queued.
    pub fn send_events(&self, conn: &Conn) -> bool {
        let door = self.doors().find(conn).cloned();
        door.is_some_and(|door| door.outlet.send_events(conn))
    }

    fn doors(&self) -> MutexGuard<'_, Slots> {
        self.inner.doors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets this thread work for the engine.
    pub fn run_core(&self) {
        self.inner.run_core.store(true, Ordering::Release);
        self.wake();
    }

    /// Begins to serve a new connection on this thread, which is the caller's.
    pub fn start(&self, stream: TcpStream, peer: SocketAddr, permit: Permit, shared: &Arc<Shared>) {
        self.inner.connections.fetch_add(1, Ordering::Relaxed);
        self.serve(stream, peer, permit, shared);
    }

    /// Hands over a new socket from another thread.
    pub fn hand_over(&self, accepted: Accepted) {
        self.inner.connections.fetch_add(1, Ordering::Relaxed);
        // The receiver lives until shutdown, and then nobody misses the socket.
        let _ = self.inner.accepted.send(accepted);
    }

    /// How many connections the thread has.
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

/// Wakes one connection's task.
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

/// The thread's life.
pub fn run(
    handle: &IoHandle,
    listener: std::net::TcpListener,
    mut accepted: mpsc::UnboundedReceiver<Accepted>,
    shared: &Arc<Shared>,
) {
    // Dropped after the runtime, that is, after its tasks.
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
        // Connections see the shutdown themselves; give their last replies a moment.
        let grace = tokio::time::Instant::now() + CLOSING_GRACE;
        while handle.load() > 0 && tokio::time::Instant::now() < grace {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// At the thread's end, even by a panic, nothing is left open that others would take for a live
/// server.
struct Closing<'a> {
    handle: &'a IoHandle,
    shared: &'a Shared,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        // Those of connections whose tasks did not come to their end.
        self.handle.doors().doors.clear();
        if let Some(member) = &self.shared.core.member {
            member.stop();
        }
    }
}

/// Passes wake-ups on to connections. One of these per thread turns a remote wake-up, which costs
/// a system call, into many local ones, which do not.
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

/// One client's socket and what belongs to it alone.
struct Connection {
    reader: OwnedReadHalf,
    conn: Arc<Conn>,
    door: Arc<Door>,
    handle: IoHandle,
    shared: Arc<Shared>,
    /// Received, but not complete or not yet wanted.
    unread: Vec<u8>,
    submits: Vec<Submit>,
    /// The engine has to answer something, or replies have to leave, before more is read.
    waiting: bool,
    /// What had left when that was last decided.
    departures: u64,
    /// The kernel takes no more for now.
    is_blocked: bool,
    /// Requests or waiting reads are left that can be served as soon as other connections had
    /// their turn.
    must_yield: bool,
    /// Bytes read since other connections had their turn.
    turn_bytes: usize,
    /// It has had large buffers, which are free when it ends.
    was_large: bool,
    /// The client has asked for a session.
    asked: bool,
    /// Until when the client must have introduced itself, or the last reply must have left.
    deadline: Option<Pin<Box<Sleep>>>,
    _permit: Permit,
}

enum Event {
    Received(usize),
    Woken,
    Writable,
    /// Other connections had their turn.
    Turn,
    Late,
    Stop,
}

/// Why a connection's task ends.
enum End {
    /// The client went away, or the network did.
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
        // Closing a socket with unread bytes resets it, and the last reply would be lost: so the writer is shut down,
        // which dropping it does. A client that closed its session has nothing more to say.
        if let Some(writer) = self.door.outlet.close()
            && matches!(end, End::Close(CloseReason::SessionClosed))
        {
            writer.forget();
        }
        self.handle.unregister(self.conn.tag);
        let Connection { reader, unread, handle, shared, was_large, _permit: permit, .. } = self;
        // The client can be back before its old watches are gone.
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
                // These end at once: the client is gone, or must not hear more.
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
                // What was answered before the offence still leaves, if it leaves at once.
                self.flush_last();
                return end;
            }
        }
    }

    /// Sends what there is. Room made that way may let requests pass that had to wait for it.
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
            // The next round is as long as this one.
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
        // A client that does not take its replies gets no more requests read.
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

    /// Takes in what was just read into the thread's buffer, behind what was left before.
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
            // A refusal does not wait for the argument.
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

    /// Once the client has asked for a session, the time is the server's: at most as long as the
    /// session may be silent.
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

    /// Whether a request waits for the request throttle although the client has gone away, and such
    /// requests are to be dropped. The kernel's word is enough: no byte is read for it.
    fn is_abandoned(&self) -> bool {
        let Some(throttle) = &self.shared.core.db.request_throttle else { return false };
        if !(throttle.config.drop_stale && throttle.config.stale_when_gone) {
            return false;
        }
        let ready = std::pin::pin!(self.reader.ready(Interest::READABLE));
        let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
        self.conn.is_in_line() && matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
    }

    /// Answers a four-letter word, which is all that happens on its connection.
    async fn answer_word(&mut self, word: FourLetterWord, argument: i64) -> End {
        let answer = four_letter::answer(&self.shared, &self.conn, word, argument).await;
        if let Some(mut writer) = self.door.outlet.close() {
            let sending = writer.write_all(answer.as_bytes());
            let _ = tokio::time::timeout(CLOSING_GRACE, sending).await;
        }
        End::Gone
    }

    /// Sends what the kernel takes at once.
    fn flush_last(&mut self) {
        for _ in 0..LAST_TURNS_MAX {
            self.must_yield = false;
            if self.flush().is_err() || !self.must_yield {
                break;
            }
        }
    }

    /// Sends what there is. The reason, if the connection is to end after what the kernel has not taken yet.
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
