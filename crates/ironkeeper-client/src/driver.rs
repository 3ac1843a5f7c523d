//! The task that moves bytes for a session, and what it shares with the handles of the client.
//!
//! What a pipelined read costs: the caller encodes it into the session's outgoing buffer under one
//! short lock and wakes the driver only if it sleeps; the driver takes the buffer whole and writes it
//! in one call; one read brings many replies, which are matched under one lock and decoded in place
//! outside of it. No channel, no task hop besides the driver's own.
//!
//! Lock order: a slot's own lock may be held while the session's is taken, never the other way round.
//! So the driver collects what has to be told under the lock, and tells it without.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ironkeeper_proto::OpCode;
use ironkeeper_proto::jute::Put;
use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, Sleep, timeout};

use crate::error::ErrorKind;
use crate::hosts::Host;
use crate::lock;
use crate::reply::{Answer, Completion, Decode, Reply, RequestContext, Slot, nothing};
use crate::session::frames::{Frames, Next};
use crate::session::machine::{Failure, Machine, Output, Received, WatchRequest};
use crate::session::watches::{WatchKind, WatcherId};
use crate::state::{ConnectionState, Subscribers};
use crate::transport::{Connection, Opening, Transport};
use crate::watch::{WatchEnd, WatchHandle, WatchType};

pub(crate) type Token = Arc<dyn Completion>;

/// How long a server may take to say whether it takes writes.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// The session, as the handles and the driver see it.
pub(crate) struct Shared {
    pub(crate) core: Mutex<Core>,
    pub(crate) states: Mutex<Subscribers>,
    next_watcher: AtomicU64,
}

pub(crate) struct Core {
    pub(crate) machine: Machine<Token, WatchHandle>,
    /// The driver, when it sleeps although it could write.
    sleeper: Option<Waker>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

impl Shared {
    pub(crate) fn new(machine: Machine<Token, WatchHandle>) -> Arc<Shared> {
        Arc::new(Shared {
            core: Mutex::new(Core { machine, sleeper: None }),
            states: Mutex::new(Subscribers::new()),
            next_watcher: AtomicU64::new(1),
        })
    }

    pub(crate) fn watcher_id(&self) -> WatcherId {
        WatcherId(self.next_watcher.fetch_add(1, Ordering::Relaxed))
    }

    /// Does something with the machine, then sees to it that the driver looks at the consequences.
    pub(crate) fn with_machine<R>(
        &self,
        act: impl FnOnce(&mut Machine<Token, WatchHandle>) -> R,
    ) -> R {
        let mut core = lock(&self.core);
        let result = act(&mut core.machine);
        let sleeper = core.sleeper.take();
        drop(core);
        if let Some(sleeper) = sleeper {
            sleeper.wake();
        }
        result
    }

    /// Puts a request into the line.
    pub(crate) fn submit<T: Send + 'static>(
        &self,
        op: OpCode,
        context: RequestContext,
        watch: Option<(WatchEnd, WatchRequest<WatchHandle>)>,
        decode: Decode<T>,
        body: impl FnOnce(&mut Vec<u8>),
    ) -> Reply<T> {
        let (watch_end, watch_request) = watch.unzip();
        let slot = Slot::new(context, watch_end, decode);
        let submitted =
            self.with_machine(|machine| machine.submit(op, slot.clone(), watch_request, body));
        if let Err((token, failure)) = submitted {
            token.failed(failure);
        }
        Reply::waiting(slot)
    }

    pub(crate) fn remove_watches(&self, kind: WatchKind, path: &str) -> Reply<()> {
        let context = RequestContext { path: path.into(), ..RequestContext::default() };
        self.submit(OpCode::RemoveWatches, context, None, nothing, |out| {
            out.put_str(path);
            out.put_i32(kind.remove_code());
        })
    }

    /// Ends all watches of these kinds on a node, here and on the server.
    pub(crate) fn remove_all_watches(
        &self,
        context: RequestContext,
        path: &str,
        kind: WatchType,
    ) -> Reply<()> {
        let slot = Slot::new(context, None, nothing);
        let submitted =
            self.with_machine(|machine| machine.remove_watches(kind.code(), path, slot.clone()));
        if let Err((token, failure)) = submitted {
            token.failed(failure);
        }
        Reply::waiting(slot)
    }

    pub(crate) fn unwatch(&self, kind: WatchKind, path: &str) {
        self.with_machine(|machine| machine.unwatch(kind, path));
    }

    pub(crate) fn close(&self, token: Option<Token>) {
        if let Some(token) = self.with_machine(|machine| machine.close(token)) {
            token.failed(Failure::Closed { sent: false });
        }
    }

    fn tell_state(&self, state: ConnectionState) {
        let mut wakers = Vec::new();
        lock(&self.states).tell(state, &mut wakers);
        for waker in wakers {
            waker.wake();
        }
    }
}

/// One thing to be done outside of the lock, in order.
enum Step {
    Reply { token: Token, err: i32, start: usize, end: usize },
    Output(Output<Token, WatchHandle>),
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    link: Link,
    frames: Frames,
    /// Being written, and how far that got.
    writing: Vec<u8>,
    written: usize,
    /// Written, but the machine does not know yet.
    unreported: usize,
    /// The transport may hold back something of what was written.
    unflushed: bool,
    steps: Vec<Step>,
    probe: Option<Probing>,
    timer: Pin<Box<Sleep>>,
}

enum Link {
    None,
    Opening(Opening),
    Open(Box<dyn Connection>),
}

type Probing = Pin<Box<dyn Future<Output = (Host, Option<bool>)> + Send>>;

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, transport: Arc<dyn Transport>) -> Driver {
        Driver {
            shared,
            transport,
            link: Link::None,
            frames: Frames::new(),
            writing: Vec::new(),
            written: 0,
            unreported: 0,
            unflushed: false,
            steps: Vec::new(),
            probe: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
    }

    /// Looks after the machine: reports what was written, takes what may leave, collects what has to
    /// be told. Says whether the session is over.
    fn attend(&mut self, cx: &Context<'_>) -> bool {
        let mut core = lock(&self.shared.core);
        if self.unreported > 0 {
            core.machine.handle_written(Instant::now().into_std(), self.unreported);
            self.unreported = 0;
        }
        if self.written == self.writing.len() && matches!(self.link, Link::Open(_)) {
            self.writing.clear();
            self.written = 0;
            core.machine.take_outgoing(&mut self.writing);
        }
        while let Some(output) = core.machine.poll_output() {
            self.steps.push(Step::Output(output));
        }
        // A driver that waits for room in the transport needs no waking for more to write.
        if self.steps.is_empty() && self.writing.is_empty() {
            core.sleeper = Some(cx.waker().clone());
        }
        core.machine.is_over()
    }

    fn take_steps(&mut self) {
        let mut steps = std::mem::take(&mut self.steps);
        let mut readable = true;
        for step in steps.drain(..) {
            match step {
                Step::Reply { token, err, start, end } => {
                    let body = &self.frames.bytes()[start..end];
                    readable &= token.answered(Answer { err, body });
                }
                Step::Output(output) => self.carry_out(output),
            }
        }
        self.steps = steps;
        if !readable {
            lock(&self.shared.core).machine.handle_garbage(Instant::now().into_std());
        }
    }

    fn carry_out(&mut self, output: Output<Token, WatchHandle>) {
        match output {
            Output::Connect(host) => {
                tracing::debug!(%host, "connecting");
                self.reset();
                let opening = self.transport.open(&host);
                self.link = Link::Opening(opening);
            }
            Output::Disconnect => self.reset(),
            Output::State(state) => {
                tracing::debug!(%state, "connection state");
                if !state.is_connected() {
                    self.probe = None;
                }
                self.shared.tell_state(state);
            }
            Output::Failed(token, failure) => token.failed(failure),
            Output::Authenticated(token) => {
                token.answered(Answer { err: 0, body: &[] });
            }
            Output::Event(event, watchers) => {
                for watcher in watchers {
                    watcher.0.put_event(&event);
                }
            }
            Output::Gap(watchers) => {
                for watcher in watchers {
                    watcher.0.put_gap();
                }
            }
            Output::Ended(watchers) => {
                let why = match lock(&self.shared.states).current() {
                    ConnectionState::Closed => ErrorKind::Closed,
                    ConnectionState::AuthFailed => ErrorKind::AuthFailed,
                    _ => ErrorKind::SessionExpired,
                };
                for watcher in watchers {
                    watcher.0.end(why);
                }
            }
            Output::Removed(watchers) => {
                for watcher in watchers {
                    watcher.0.end(ErrorKind::NoWatcher);
                }
            }
            Output::Probe(host) => self.probe = Some(probe(&*self.transport, host)),
        }
    }

    fn reset(&mut self) {
        self.link = Link::None;
        self.frames.clear();
        self.writing.clear();
        (self.written, self.unreported, self.unflushed) = (0, 0, false);
    }

    fn lost(&mut self, reason: &io::Error) {
        let mut core = lock(&self.shared.core);
        let now = Instant::now().into_std();
        if self.unreported > 0 {
            core.machine.handle_written(now, self.unreported);
        }
        core.machine.set_trouble(reason);
        core.machine.handle_closed(now);
        drop(core);
        self.reset();
    }

    /// Moves the link on. Says whether anything changed.
    fn poll_link(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.link {
            Link::None => false,
            Link::Opening(opening) => match opening.as_mut().poll(cx) {
                Poll::Pending => false,
                Poll::Ready(Ok(connection)) => {
                    self.reset();
                    self.link = Link::Open(connection);
                    lock(&self.shared.core).machine.handle_opened(Instant::now().into_std());
                    true
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "could not connect");
                    self.lost(&error);
                    true
                }
            },
            Link::Open(_) => self.poll_io(cx),
        }
    }

    fn poll_io(&mut self, cx: &mut Context<'_>) -> bool {
        let Link::Open(connection) = &mut self.link else { return false };
        let mut connection = Pin::new(&mut **connection);
        let mut moved = false;
        while self.written < self.writing.len() {
            match connection.as_mut().poll_write(cx, &self.writing[self.written..]) {
                Poll::Pending => break,
                Poll::Ready(Ok(0)) => {
                    self.lost(&io::ErrorKind::WriteZero.into());
                    return true;
                }
                Poll::Ready(Ok(count)) => {
                    self.written += count;
                    self.unreported += count;
                    moved = true;
                    self.unflushed = true;
                }
                Poll::Ready(Err(error)) => {
                    self.lost(&error);
                    return true;
                }
            }
        }
        if self.unflushed
            && let Poll::Ready(flushed) = connection.as_mut().poll_flush(cx)
        {
            self.unflushed = false;
            if let Err(error) = flushed {
                self.lost(&error);
                return true;
            }
        }
        let mut buffer = ReadBuf::new(self.frames.space());
        match connection.as_mut().poll_read(cx, &mut buffer) {
            Poll::Pending => moved,
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                self.lost(&io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the server closed the connection",
                ));
                true
            }
            Poll::Ready(Ok(())) => {
                let count = buffer.filled().len();
                self.frames.filled(count);
                self.take_frames();
                true
            }
            Poll::Ready(Err(error)) => {
                self.lost(&error);
                true
            }
        }
    }

    /// Matches all frames that are there under one lock.
    fn take_frames(&mut self) {
        let now = Instant::now().into_std();
        let mut core = lock(&self.shared.core);
        let core = &mut *core;
        if self.unreported > 0 {
            core.machine.handle_written(now, self.unreported);
            self.unreported = 0;
        }
        loop {
            match self.frames.next(core.machine.frame_bytes_max()) {
                Next::Incomplete => break,
                Next::Impossible(_) => {
                    core.machine.handle_garbage(now);
                    break;
                }
                Next::Oversize { len, xid } => {
                    if !core.machine.handle_oversize(now, len, xid) {
                        break;
                    }
                    self.frames.skip_oversize(len);
                }
                Next::Frame { start, end } => {
                    let frame = &self.frames.bytes()[start..end];
                    match core.machine.handle_frame(now, frame) {
                        Received::Reply { token, err, body } => {
                            let start = end - body.len();
                            self.steps.push(Step::Reply { token, err, start, end });
                        }
                        Received::Nothing => {}
                    }
                }
            }
            while let Some(output) = core.machine.poll_output() {
                self.steps.push(Step::Output(output));
            }
        }
    }

    fn poll_probe(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(probe) = &mut self.probe else { return false };
        let Poll::Ready((host, takes_writes)) = probe.as_mut().poll(cx) else { return false };
        self.probe = None;
        let now = Instant::now().into_std();
        lock(&self.shared.core).machine.handle_probed(now, &host, takes_writes);
        true
    }

    /// The timer runs behind the machine's deadline, which mostly moves away: it is set anew only when
    /// it rings, or when something other than traffic happened.
    fn poll_timer(&mut self, cx: &mut Context<'_>) -> bool {
        if self.timer.as_mut().poll(cx).is_pending() {
            return false;
        }
        lock(&self.shared.core).machine.handle_timeout(Instant::now().into_std());
        self.set_timer();
        true
    }

    fn set_timer(&mut self) {
        let deadline = lock(&self.shared.core).machine.deadline();
        if let Some(deadline) = deadline {
            self.timer.as_mut().reset(Instant::from_std(deadline));
        }
    }
}

impl Future for Driver {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let is_over = this.attend(cx);
            if !this.steps.is_empty() {
                let timers_move = this.steps.iter().any(|step| matches!(step, Step::Output(_)));
                this.take_steps();
                if timers_move {
                    this.set_timer();
                }
                continue;
            }
            if is_over {
                return Poll::Ready(());
            }
            let moved = this.poll_link(cx);
            if moved {
                if !matches!(this.link, Link::Open(_)) {
                    this.set_timer();
                }
                continue;
            }
            if this.poll_probe(cx) {
                this.set_timer();
                continue;
            }
            if this.poll_timer(cx) {
                continue;
            }
            return Poll::Pending;
        }
    }
}

impl Drop for Driver {
    /// The runtime may go away before the session does. Nobody shall wait for a reply that cannot come.
    fn drop(&mut self) {
        let mut core = lock(&self.shared.core);
        core.machine.abandon();
        let mut steps: Vec<Step> = self.steps.drain(..).collect();
        while let Some(output) = core.machine.poll_output() {
            steps.push(Step::Output(output));
        }
        drop(core);
        for step in steps {
            match step {
                Step::Reply { token, .. } => token.failed(Failure::Closed { sent: true }),
                Step::Output(Output::Connect(_) | Output::Probe(_)) => {}
                Step::Output(output) => self.carry_out(output),
            }
        }
    }
}

/// Asks a server whether it takes writes.
fn probe(transport: &dyn Transport, host: Host) -> Probing {
    let opening = transport.open(&host);
    Box::pin(async move {
        let question = async {
            let mut connection = opening.await?;
            connection.write_all(b"isro").await?;
            connection.flush().await?;
            let mut answer = [0; 2];
            connection.read_exact(&mut answer).await?;
            io::Result::Ok(&answer == b"rw")
        };
        let answer = timeout(PROBE_TIMEOUT, question).await;
        (host, answer.ok().and_then(Result::ok))
    })
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").finish_non_exhaustive()
    }
}
