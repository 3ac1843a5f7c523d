//! The simulated transport: the transport of the product's client on one side, a list of the
//! programs' actions on the other.

use std::collections::BTreeMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use ironkeeper_client::{Host, Opening, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::Notify;

use crate::server::Told;

/// An action of a program on one of its connections.
#[derive(Debug, PartialEq, Eq)]
pub enum Action {
    Dial { program: usize, to: usize },
    Send(Vec<u8>),
    HangUp,
}

/// The connections of all programs.
#[derive(Clone, Debug, Default)]
pub struct Wires {
    all: Arc<Mutex<All>>,
    acted: Arc<Notify>,
}

#[derive(Debug, Default)]
struct All {
    last: u64,
    lines: BTreeMap<u64, Line>,
    /// In order. The runner takes them whenever it advances the world, so they are bounded by what
    /// clients send in between.
    actions: Vec<(u64, Action)>,
    /// Program and boot number of processes that have ended.
    ended: Vec<(usize, u64)>,
}

#[derive(Debug)]
struct Line {
    boot: (usize, u64),
    is_open: bool,
    has_ended: bool,
    incoming: Vec<u8>,
    waker: Option<Waker>,
}

impl Line {
    fn wake(&mut self) {
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }
}

impl Wires {
    fn lock(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the transport for the client of a program, for one of its boots.
    pub fn transport(&self, program: usize, boot: u64) -> WireTransport {
        WireTransport { wires: self.clone(), program, boot }
    }

    /// Resolves when a program has performed an action.
    pub async fn acted(&self) {
        self.acted.notified().await;
    }

    /// Returns the actions since the last call.
    pub fn take_actions(&self) -> Vec<(u64, Action)> {
        std::mem::take(&mut self.lock().actions)
    }

    /// Delivers connection events from the network.
    pub fn tell(&self, news: Vec<(u64, Told)>) {
        let mut all = self.lock();
        for (number, told) in news {
            let Some(line) = all.lines.get_mut(&number) else { continue };
            match told {
                Told::Open => line.is_open = true,
                Told::Refused | Told::End => line.has_ended = true,
                Told::Bytes(bytes) => line.incoming.extend(bytes),
            }
            line.wake();
        }
    }

    /// Ends a program's process: its connections break, and later bytes of its client are dropped.
    pub fn end_process(&self, program: usize, boot: u64) {
        let mut all = self.lock();
        all.ended.push((program, boot));
        let All { lines, actions, .. } = &mut *all;
        for (number, line) in lines.iter_mut().filter(|(_, line)| line.boot == (program, boot)) {
            if !line.has_ended {
                line.has_ended = true;
                actions.push((*number, Action::HangUp));
                line.wake();
            }
        }
        self.acted.notify_one();
    }

    fn action(&self, all: &mut All, number: u64, action: Action) {
        all.actions.push((number, action));
        self.acted.notify_one();
    }
}

/// Transport to the servers of the simulated cluster, which are named `h1`, `h2` and so on.
#[derive(Debug)]
pub struct WireTransport {
    wires: Wires,
    program: usize,
    boot: u64,
}

impl Transport for WireTransport {
    fn open(&self, server: &Host) -> Opening {
        let id = server.name().strip_prefix('h').and_then(|id| id.parse::<usize>().ok());
        let to =
            id.and_then(|id| id.checked_sub(1)).expect("the connect string is of our own making");
        let boot = (self.program, self.boot);
        let mut all = self.wires.lock();
        all.last += 1;
        let number = all.last;
        let has_ended = all.ended.contains(&boot);
        let line = Line { boot, is_open: false, has_ended, incoming: Vec::new(), waker: None };
        all.lines.insert(number, line);
        if !has_ended {
            self.wires.action(&mut all, number, Action::Dial { program: self.program, to });
        }
        drop(all);
        let mut end = Some(WireEnd { wires: self.wires.clone(), number });
        Box::pin(std::future::poll_fn(move |context| {
            let Some(this) = &end else { return Poll::Pending };
            let mut all = this.wires.lock();
            let Some(line) = all.lines.get_mut(&this.number) else { return Poll::Pending };
            if line.has_ended {
                return Poll::Ready(Err(io::ErrorKind::ConnectionRefused.into()));
            }
            if !line.is_open {
                line.waker = Some(context.waker().clone());
                return Poll::Pending;
            }
            drop(all);
            Poll::Ready(Ok(Box::new(end.take().expect("it is there until it is handed out")) as _))
        }))
    }
}

/// A client's end of a connection. Dropping it closes the connection.
#[derive(Debug)]
struct WireEnd {
    wires: Wires,
    number: u64,
}

impl Drop for WireEnd {
    fn drop(&mut self) {
        let mut all = self.wires.lock();
        if all.lines.remove(&self.number).is_some_and(|line| !line.has_ended) {
            self.wires.action(&mut all, self.number, Action::HangUp);
        }
    }
}

impl AsyncRead for WireEnd {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut all = self.wires.lock();
        let Some(line) = all.lines.get_mut(&self.number) else { return Poll::Ready(Ok(())) };
        if !line.incoming.is_empty() {
            let count = line.incoming.len().min(buffer.remaining());
            buffer.put_slice(&line.incoming[..count]);
            line.incoming.drain(..count);
            return Poll::Ready(Ok(()));
        }
        if line.has_ended {
            return Poll::Ready(Ok(()));
        }
        line.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl AsyncWrite for WireEnd {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut all = self.wires.lock();
        if all.lines.get(&self.number).is_none_or(|line| line.has_ended) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.wires.action(&mut all, self.number, Action::Send(bytes.to_vec()));
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
