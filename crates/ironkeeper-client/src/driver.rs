//! The task that performs the I/O of a session.
//!
//! The cost of a pipelined read: the caller encodes it into the session's outgoing buffer under one
//! short lock (`shared.rs` describes which task writes the buffer). One socket read returns many
//! replies. The driver matches them under one lock, decodes them in place outside of it, and wakes
//! each waiting task once for all of its replies. There is no channel and no task besides the
//! driver.
//!
//! A slot's own lock is never taken under the session's lock. So the driver collects replies and
//! outputs under the session's lock, and delivers them after it has released the lock.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Sleep, timeout};

use crate::error::ErrorKind;
use crate::hosts::Host;
use crate::lock;
use crate::reply::Answer;
use crate::session::frames::{Frames, Next};
use crate::session::machine::{Failure, Output, Received};
use crate::shared::{Core, Shared, Token, report};
use crate::state::ConnectionState;
use crate::transport::{Opening, Transport};
use crate::watch::WatchHandle;

/// The time that a server has to reply to `isro`.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);

/// One action to perform outside of the lock, in order.
enum Step {
    Reply { token: Token, err: i32, start: usize, end: usize },
    Output(Output<Token, WatchHandle>),
}

pub(crate) struct Driver {
    shared: Arc<Shared>,
    transport: Arc<dyn Transport>,
    link: Link,
    frames: Frames,
    steps: Vec<Step>,
    /// The wakers of the tasks whose replies have just been delivered.
    wakers: Vec<Waker>,
    has_one_caller: bool,
    probe: Option<Probing>,
    timer: Pin<Box<Sleep>>,
}

enum Link {
    None,
    Opening(Opening),
    /// The connection is in the pipe.
    Open,
}

type Probing = Pin<Box<dyn Future<Output = (Host, Option<bool>)> + Send>>;

impl Driver {
    pub(crate) fn new(shared: Arc<Shared>, transport: Arc<dyn Transport>) -> Driver {
        Driver {
            shared,
            transport,
            link: Link::None,
            frames: Frames::new(),
            steps: Vec::new(),
            wakers: Vec::new(),
            has_one_caller: true,
            probe: None,
            timer: Box::pin(tokio::time::sleep(Duration::ZERO)),
        }
    }

    /// Synchronizes with the machine: reports written bytes, takes outgoing bytes, collects
    /// outputs. Returns whether the session has ended.
    fn attend(&mut self, cx: &Context<'_>) -> bool {
        let mut pipe = lock(&self.shared.pipe);
        let mut core = lock(&self.shared.core);
        report(&mut core, &mut pipe);
        self.shared.fill(&mut core, &mut pipe);
        while let Some(output) = core.machine.poll_output() {
            self.steps.push(Step::Output(output));
        }
        core.has_one_caller = self.has_one_caller;
        // A driver that waits until the transport accepts more bytes need not be woken for new
        // ones.
        if self.steps.is_empty() && pipe.is_written() {
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
                    let waker = token.answered(Answer { err, body }, &mut readable);
                    self.wake_later(waker);
                }
                Step::Output(output) => self.carry_out(output),
            }
        }
        self.steps = steps;
        self.wake_all();
        if !readable {
            lock(&self.shared.core).machine.handle_garbage(Instant::now().into_std());
        }
    }

    /// Collects the waker instead of waking at once: a task on another thread then finds all of its
    /// replies delivered and does not contend with the driver for locks.
    fn wake_later(&mut self, waker: Option<Waker>) {
        if let Some(waker) = waker
            && !self.wakers.last().is_some_and(|last| last.will_wake(&waker))
        {
            self.wakers.push(waker);
        }
    }

    fn wake_all(&mut self) {
        if !self.wakers.is_empty() {
            self.has_one_caller = self.wakers.len() == 1;
        }
        for waker in self.wakers.drain(..) {
            waker.wake();
        }
    }

    fn carry_out(&mut self, output: Output<Token, WatchHandle>) {
        match output {
            Output::Connect(host) => {
                tracing::debug!(addr = %host, "connecting");
                self.reset();
                let opening = self.transport.open(&host);
                self.link = Link::Opening(opening);
            }
            Output::Disconnect => self.reset(),
            Output::State(state) => {
                tracing::debug!(%state, "connection state changed");
                if !state.is_connected() {
                    self.probe = None;
                }
                self.shared.tell_state(state);
            }
            Output::Failed(token, failure) => token.failed(failure),
            Output::Authenticated(token) => {
                let waker = token.answered(Answer { err: 0, body: &[] }, &mut true);
                self.wake_later(waker);
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
        lock(&self.shared.pipe).close();
    }

    fn lost(&mut self, reason: &io::Error) {
        let mut pipe = lock(&self.shared.pipe);
        let mut core = lock(&self.shared.core);
        report(&mut core, &mut pipe);
        core.machine.set_trouble(reason);
        core.machine.handle_closed(Instant::now().into_std());
        drop(core);
        drop(pipe);
        self.reset();
    }

    /// Advances the link. Returns whether anything changed.
    fn poll_link(&mut self, cx: &mut Context<'_>) -> bool {
        match &mut self.link {
            Link::None => false,
            Link::Opening(opening) => match opening.as_mut().poll(cx) {
                Poll::Pending => false,
                Poll::Ready(Ok(connection)) => {
                    self.reset();
                    lock(&self.shared.pipe).open(connection);
                    self.link = Link::Open;
                    lock(&self.shared.core).machine.handle_opened(Instant::now().into_std());
                    true
                }
                Poll::Ready(Err(error)) => {
                    tracing::debug!(%error, "connection attempt failed");
                    self.lost(&error);
                    true
                }
            },
            Link::Open => self.poll_io(cx),
        }
    }

    fn poll_io(&mut self, cx: &mut Context<'_>) -> bool {
        let mut pipe = lock(&self.shared.pipe);
        let moved =
            pipe.write(cx).and_then(|written| Ok((written, pipe.read(cx, &mut self.frames)?)));
        match moved {
            Ok((written, false)) => written,
            Ok((_, true)) => {
                let mut core = lock(&self.shared.core);
                report(&mut core, &mut pipe);
                drop(pipe);
                take_frames(&mut core, &mut self.frames, &mut self.steps);
                true
            }
            Err(error) => {
                drop(pipe);
                self.lost(&error);
                true
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

    /// Polls the timer, which lags behind the machine's deadline: traffic mostly postpones the
    /// deadline, so the timer is reset only when it fires or after an event other than traffic.
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
                if !matches!(this.link, Link::Open) {
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
    /// Fails all pending replies: the runtime may be dropped before the session ends.
    fn drop(&mut self) {
        let mut pipe = lock(&self.shared.pipe);
        let mut core = lock(&self.shared.core);
        report(&mut core, &mut pipe);
        core.machine.abandon();
        let mut steps: Vec<Step> = self.steps.drain(..).collect();
        while let Some(output) = core.machine.poll_output() {
            steps.push(Step::Output(output));
        }
        core.sleeper = None;
        drop(core);
        pipe.close();
        drop(pipe);
        for step in steps {
            match step {
                Step::Reply { token, .. } => token.failed(Failure::Closed { sent: true }),
                Step::Output(Output::Connect(_) | Output::Probe(_)) => {}
                Step::Output(output) => self.carry_out(output),
            }
        }
        self.wake_all();
    }
}

/// Matches all complete frames under one lock.
fn take_frames(core: &mut Core, frames: &mut Frames, steps: &mut Vec<Step>) {
    let now = Instant::now().into_std();
    loop {
        match frames.next(core.machine.frame_bytes_max()) {
            Next::Incomplete => break,
            Next::Impossible(_) => {
                core.machine.handle_garbage(now);
                break;
            }
            Next::Oversize { len, xid } => {
                if !core.machine.handle_oversize(now, len, xid) {
                    break;
                }
                frames.skip_oversize(len);
            }
            Next::Frame { start, end } => {
                let frame = &frames.bytes()[start..end];
                match core.machine.handle_frame(now, frame) {
                    Received::Reply { token, err, body } => {
                        let start = end - body.len();
                        steps.push(Step::Reply { token, err, start, end });
                    }
                    Received::Nothing => {}
                }
            }
        }
        while let Some(output) = core.machine.poll_output() {
            steps.push(Step::Output(output));
        }
    }
}

/// Asks a server whether it accepts writes (`isro`).
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
