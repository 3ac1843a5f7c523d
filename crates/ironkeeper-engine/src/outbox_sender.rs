//! The sender of a client connection: from its outbox to its byte stream, and the wake-up of the
//! connection's task.
//!
//! Two threads send for one connection. Usually the connection's task does: most output consists of
//! replies, and the client likely runs on the processor from which the request came. The client of
//! a watch event is usually idle, and mostly acts on the event, for example as the next holder of a
//! lock. So the thread that applied the transaction sends a lone event directly
//! ([`OutboxSender::send_events`]) instead of waking the task for it. Both take bytes from the
//! outbox and pass them to the stream under the lock of `Sending`, so bytes are sent in the order
//! of the outbox.
//!
//! ```text
//!                       the stream has no room, or the turn has ended
//!             ┌───────────┐ ─────────────────────────────────► ┌───────────┐
//!  new ─────► │  drained  │                                    │  blocked  │
//!             └───────────┘ ◄───────────────────────────────── └───────────┘
//!               │   flush, send_events          flush: all is sent   │
//!               │                                                    │
//!               └──────────────► closed ◄────────────────────────────┘
//!                     close, by the task: no byte is sent any more
//! ```
//!
//! | state | `unsent` | sends | the task waits for a notification, or for |
//! | --- | --- | --- | --- |
//! | drained | empty | the task, or another thread unless the task is paused | bytes |
//! | blocked | not empty | the task | room in the stream |
//! | closed | not used | no thread | |
//!
//! Every output is sent without a further event, because one of these holds for the thread that
//! put it into the outbox and calls [`OutboxSender::send_events`]:
//! - it sends the output itself; or
//! - it gets `false` and calls [`OutboxSender::notify`], after which the task calls
//!   [`OutboxSender::flush`]. The task checks for a notification once more after it has stored its
//!   waker, so a notification in between is not lost.
//!
//! The task is **paused** while the requests that it has received cannot be served, because too
//! many replies are in flight, because the outbox is full, or because a turn of the request
//! throttle is awaited. A paused task is notified whenever the engine wakes its connection, for
//! output or not. Room in the outbox that another thread made just before the pause began comes
//! without a notification. So the task
//! 1. reads [`OutboxSender::writes`] before it passes the requests to [`Conn::receive`],
//! 2. calls [`OutboxSender::set_paused`],
//! 3. calls [`OutboxSender::flush`], and
//! 4. passes the requests to [`Conn::receive`] again if [`OutboxSender::writes`] has changed.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};

use crate::conn::{CloseReason, Conn};
use crate::database::Database;
use crate::outbox::AtSocket;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::time::Now;

/// An own empty buffer is freed above this size.
const BUFFER_BYTES_KEPT: usize = 16 << 10;
/// The maximum number of buffers passed to [`ByteSink::try_write_vectored`].
const SLICES_MAX: usize = 16;
/// The maximum number of bytes sent in one turn. Otherwise a client that reads as fast as they are
/// sent would receive a reply of any length without a pause.
const TURN_BYTES: usize = 1 << 20;
/// How often waiting reads are served up to the bound of one hold of the gate in one turn.
const HOLDS_MAX: usize = 8;

/// The sending half of a byte stream, as the driver implements it.
///
/// A call does not wait. It returns the number of bytes accepted, 0 if there is no room at present;
/// the next call passes the rest of the same bytes, perhaps followed by others.
pub trait ByteSink {
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize>;
    /// `slices` has at most 16 elements.
    fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize>;
}

/// The sender of one connection; see the documentation of the module.
#[derive(Debug)]
pub struct OutboxSender<S> {
    sending: Mutex<Sending<S>>,
    is_paused: AtomicBool,
    /// The number of writes that the stream has accepted bytes of.
    writes: AtomicU64,
    /// The task has to be polled: set by [`OutboxSender::notify`], cleared by the task.
    is_notified: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

#[derive(Debug)]
struct Sending<S> {
    /// `None` when the task has closed it.
    sink: Option<S>,
    /// Taken from the outbox, but not yet accepted by the stream.
    unsent: VecDeque<Bytes>,
    /// An empty buffer to swap with the buffer of the outbox.
    spare: Vec<u8>,
    /// An upper bound on the unsent bytes that are shared with the tree.
    shared: usize,
    /// The connection's share of the unsent bytes has to be updated.
    is_counted: bool,
}

/// The result of a flush.
#[derive(Debug)]
pub struct Flushed {
    /// The reason, if the connection is to be closed.
    pub close: Option<CloseReason>,
    /// Bytes are left: the stream accepts no more for now, or the turn has ended.
    pub is_blocked: bool,
    /// More can be served or sent: call again after other connections have had their turn.
    pub has_more: bool,
}

/// The result of sending unsent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    All,
    /// As many as the stream accepts for now.
    Blocked,
    /// As many as a turn allows.
    TurnEnded,
}

/// The content of the outbox.
struct Fetched {
    found: bool,
    close: Option<CloseReason>,
}

impl<S: ByteSink> OutboxSender<S> {
    pub fn new(sink: S) -> OutboxSender<S> {
        let sending = Sending {
            sink: Some(sink),
            unsent: VecDeque::new(),
            spare: Vec::new(),
            shared: 0,
            is_counted: false,
        };
        OutboxSender {
            sending: Mutex::new(sending),
            is_paused: AtomicBool::new(false),
            writes: AtomicU64::new(0),
            is_notified: AtomicBool::new(false),
            waker: Mutex::new(None),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sending<S>> {
        self.sending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the sender and returns the stream: no byte of the outbox is sent any more.
    pub fn close(&self) -> Option<S> {
        self.lock().sink.take()
    }

    /// Returns the number of writes so far. A change means that room was made.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::Acquire)
    }

    /// Sets whether the task is paused, so that it has to be notified of all output.
    pub fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, Ordering::Release);
    }

    /// Wakes the task.
    pub fn notify(&self) {
        if !self.is_notified.swap(true, Ordering::AcqRel) {
            let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }

    /// Waits for [`OutboxSender::notify`]. For the connection's task.
    pub fn poll_notified(&self, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_notified.swap(false, Ordering::AcqRel) {
            return Poll::Ready(());
        }
        let mut waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner);
        match &mut *waker {
            Some(known) if known.will_wake(cx.waker()) => {}
            slot => *slot = Some(cx.waker().clone()),
        }
        drop(waker);
        match self.is_notified.swap(false, Ordering::AcqRel) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    }

    /// Serves reads that can be served now and sends the outbox, as far as the stream accepts it.
    /// For the connection's task; `now` reads the clock.
    pub fn flush(
        &self,
        conn: &Arc<Conn>,
        db: &Database,
        now: impl Fn() -> Now,
    ) -> io::Result<Flushed> {
        let mut sending = self.lock();
        let flushed = self.flush_all(&mut sending, conn, db, &now)?;
        if !flushed.is_blocked {
            sending.shared = 0;
        }
        if sending.is_counted || flushed.is_blocked {
            sending.is_counted = flushed.is_blocked;
            let len = sending.unsent.iter().map(Bytes::len).sum();
            sending.shared = sending.shared.min(len);
            let left = AtSocket { len, shared: sending.shared };
            conn.note_unsent(now(), db, left);
        }
        Ok(flushed)
    }

    fn flush_all(
        &self,
        sending: &mut Sending<S>,
        conn: &Arc<Conn>,
        db: &Database,
        now: impl Fn() -> Now,
    ) -> io::Result<Flushed> {
        let (mut holds, mut turn_bytes) = (0, 0);
        loop {
            let sent = self.send(sending, &mut turn_bytes)?;
            if sent != Sent::All {
                let (close, has_more) = (conn.close_reason(), sent == Sent::TurnEnded);
                return Ok(Flushed { close, is_blocked: true, has_more });
            }
            // Before sending, so that their replies are sent together with those of the writes
            // before them: one system call, and the client is woken once.
            while holds < HOLDS_MAX && conn.has_ready_reads() {
                // A hold that reached its bound may have been a long one.
                holds += usize::from(conn.serve_lane(now(), db));
            }
            let fetched = self.fetch(sending, conn)?;
            if fetched.close.is_some() {
                let sent = self.send(sending, &mut turn_bytes)?;
                let (is_blocked, has_more) = (sent != Sent::All, sent == Sent::TurnEnded);
                return Ok(Flushed { close: fetched.close, is_blocked, has_more });
            }
            if !fetched.found {
                let has_more = conn.has_ready_reads();
                return Ok(Flushed { close: None, is_blocked: false, has_more });
            }
        }
    }

    /// Sends the outbox from another thread than the task's, if it contains only watch events.
    /// Returns false if the task has to be notified, because there is other work, because it is
    /// sending or paused, or because the stream accepts no more.
    pub fn send_events(&self, conn: &Conn) -> bool {
        let Ok(mut sending) = self.sending.try_lock() else { return false };
        let is_paused = self.is_paused.load(Ordering::Acquire);
        if is_paused || !sending.unsent.is_empty() || !conn.has_only_events() {
            return false;
        }
        // The task handles a broken connection.
        let fetched = self.fetch(&mut sending, conn);
        // The task subtracts bytes that were counted as unsent.
        fetched.is_ok_and(|fetched| fetched.close.is_none())
            && sending.unsent.is_empty()
            && !sending.is_counted
    }

    /// Takes the content of the outbox. Sends small replies directly from their buffer; puts the
    /// rest into `unsent`.
    fn fetch(&self, sending: &mut Sending<S>, conn: &Conn) -> io::Result<Fetched> {
        let Sending { sink, unsent, spare, shared, is_counted } = sending;
        let mut outgoing = conn.take_output(spare);
        *is_counted |= outgoing.is_counted;
        *shared += outgoing.shared_len;
        let found = !outgoing.pieces.is_empty() || !spare.is_empty();
        let sent = match outgoing.pieces.is_empty() && !spare.is_empty() {
            true => self.counted(open(sink).and_then(|sink| sink.try_write(spare))),
            false => Ok(0),
        };
        unsent.append(&mut outgoing.pieces);
        if let Ok(sent) = sent
            && sent < spare.len()
        {
            // A long rest is not copied: its buffer is moved.
            match spare.len() - sent > BUFFER_BYTES_KEPT {
                true => unsent.push_back(Bytes::from(std::mem::take(spare)).slice(sent..)),
                false => unsent.push_back(Bytes::copy_from_slice(&spare[sent..])),
            }
        }
        spare.clear();
        if spare.capacity() > BUFFER_BYTES_KEPT {
            *spare = Vec::new();
        }
        sent.map(|_| Fetched { found, close: outgoing.close })
    }

    fn send(&self, sending: &mut Sending<S>, turn_bytes: &mut usize) -> io::Result<Sent> {
        let Sending { sink, unsent, .. } = sending;
        while !unsent.is_empty() {
            if *turn_bytes >= TURN_BYTES {
                return Ok(Sent::TurnEnded);
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let count = unsent.len().min(SLICES_MAX);
            for (slice, bytes) in slices.iter_mut().zip(&*unsent) {
                *slice = IoSlice::new(bytes);
            }
            let slices = &slices[..count];
            let written = open(sink).and_then(|sink| sink.try_write_vectored(slices));
            let mut sent = self.counted(written)?;
            if sent == 0 {
                return Ok(Sent::Blocked);
            }
            *turn_bytes += sent;
            while let Some(front) = unsent.front_mut() {
                let step = front.len().min(sent);
                front.advance(step);
                sent -= step;
                if !front.is_empty() {
                    break;
                }
                unsent.pop_front();
            }
        }
        Ok(Sent::All)
    }

    /// Counts a write of which the stream has accepted bytes.
    fn counted(&self, written: io::Result<usize>) -> io::Result<usize> {
        if matches!(written, Ok(1..)) {
            self.writes.fetch_add(1, Ordering::Release);
        }
        written
    }
}

fn open<S>(sink: &Option<S>) -> io::Result<&S> {
    sink.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use super::*;

    /// A stream whose peer reads as fast as it is sent to, except that it has room for `room` bytes
    /// in each call.
    struct FastPeer {
        room: usize,
        received: Mutex<Vec<u8>>,
    }

    impl ByteSink for FastPeer {
        fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
            self.try_write_vectored(&[IoSlice::new(bytes)])
        }

        fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
            assert!(slices.len() <= SLICES_MAX);
            let mut received = self.received.lock().unwrap();
            let before = received.len();
            for slice in slices {
                let count = slice.len().min(self.room - (received.len() - before));
                received.extend_from_slice(&slice[..count]);
            }
            Ok(received.len() - before)
        }
    }

    #[test]
    fn a_client_that_reads_fast_gets_a_long_reply_in_turns() {
        const PIECE_BYTES: usize = 64 << 10;
        const PIECES: usize = 128;
        for room in [PIECE_BYTES / 3, 3 * PIECE_BYTES, PIECES * PIECE_BYTES] {
            let sender = OutboxSender::new(FastPeer { room, received: Mutex::default() });
            let piece = |at| Bytes::from(vec![at as u8; PIECE_BYTES]);
            sender.lock().unsent.extend((0..PIECES).map(piece));
            let mut turns = 0;
            loop {
                let mut turn_bytes = 0;
                let sent = sender.send(&mut sender.lock(), &mut turn_bytes).unwrap();
                assert!(turn_bytes < TURN_BYTES + SLICES_MAX * PIECE_BYTES, "{turn_bytes}");
                turns += 1;
                match sent {
                    Sent::All => break,
                    Sent::TurnEnded => {}
                    Sent::Blocked => panic!("there is always room"),
                }
            }
            assert!(turns >= PIECES * PIECE_BYTES / (2 * TURN_BYTES), "{turns}");
            let received = sender.close().unwrap().received.into_inner().unwrap();
            assert_eq!(received.len(), PIECES * PIECE_BYTES);
            let chunks = received.chunks(PIECE_BYTES).enumerate();
            chunks.for_each(|(at, chunk)| assert!(chunk.iter().all(|byte| *byte == at as u8)));
        }
    }

    #[test]
    fn a_closed_sender_accepts_nothing() {
        let sender = OutboxSender::new(FastPeer { room: 10, received: Mutex::default() });
        sender.lock().unsent.push_back(Bytes::from_static(b"unsent"));
        let peer = sender.close().unwrap();
        assert!(sender.close().is_none());
        let error = sender.send(&mut sender.lock(), &mut 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotConnected);
        assert!(peer.received.into_inner().unwrap().is_empty());
    }
}
