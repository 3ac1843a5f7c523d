//! A connection's way out: from its outbox into its socket.
//!
//! The connection's task sends, as a rule: most of what there is to send is an answer, and whoever asked is likely to
//! be on the processor that the question came from. An event finds its client asleep, and mostly one that will act upon
//! it, the next holder of a lock for one. So the log thread, when it has applied the transaction, sends a lone event
//! right away instead of waking an I/O thread to do so.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use ironkeeper_engine::conn::{CloseReason, Conn};
use ironkeeper_engine::outbox::AtSocket;
use tokio::net::tcp::OwnedWriteHalf;

use crate::core::Core;

/// A connection's own buffer is given back above this size when it is empty.
const BUFFER_BYTES_KEPT: usize = 16 << 10;
/// Pieces handed to the kernel in one call.
const SLICES_MAX: usize = 16;
/// Bytes sent before other connections get their turn. A client that reads as fast as they are sent
/// would otherwise have a reply of any length without a pause.
const TURN_BYTES: usize = 1 << 20;
/// How often waiting reads are served up to the bound of one hold of the gate before other
/// connections get their turn.
const HOLDS_MAX: usize = 8;

/// Where what there is to send goes, in order, whoever sends it.
#[derive(Debug)]
pub struct Outlet {
    socket: Mutex<Socket>,
    /// The task waits until something has left or was answered, and has to be told.
    task_waits: AtomicBool,
    /// How often something has left.
    departures: AtomicU64,
}

#[derive(Debug)]
struct Socket {
    /// `None` when the task has done with it.
    writer: Option<OwnedWriteHalf>,
    /// Taken from the outbox, but not yet accepted by the kernel.
    unsent: VecDeque<Bytes>,
    /// An empty buffer to swap with the outbox's.
    spare: Vec<u8>,
    /// Of the unsent bytes: at most so many that lie in the tree.
    shared: usize,
    /// The connection's part of the bytes that wait for clients is not up to date.
    is_counted: bool,
}

/// How far a flush has come.
#[derive(Debug)]
pub struct Flushed {
    /// Why the connection is to end, if it is.
    pub close: Option<CloseReason>,
    /// Bytes are left: the kernel takes no more for now, or other connections have their turn.
    pub is_blocked: bool,
    /// More can be served or sent: to be called again after other connections had their turn.
    pub has_more: bool,
}

/// How far the unsent bytes have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    All,
    /// As many as the kernel takes for now.
    Blocked,
    /// As many as a turn has.
    Enough,
}

impl Outlet {
    pub fn new(writer: OwnedWriteHalf) -> Outlet {
        let socket = Socket {
            writer: Some(writer),
            unsent: VecDeque::new(),
            spare: Vec::new(),
            shared: 0,
            is_counted: false,
        };
        let (task_waits, departures) = (AtomicBool::new(false), AtomicU64::new(0));
        Outlet { socket: Mutex::new(socket), task_waits, departures }
    }

    fn lock(&self) -> MutexGuard<'_, Socket> {
        self.socket.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing leaves this way any more.
    pub fn close(&self) -> Option<OwnedWriteHalf> {
        self.lock().writer.take()
    }

    /// How often something has left: what has made room since the task last looked?
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Whether the task waits until something has left or was answered.
    pub fn set_waiting(&self, waits: bool) {
        self.task_waits.store(waits, Ordering::Release);
    }

    /// Serves reads that may be served now and sends what there is, as far as the kernel takes it. For the
    /// connection's task.
    pub fn flush(&self, conn: &Arc<Conn>, core: &Core) -> io::Result<Flushed> {
        let mut socket = self.lock();
        let flushed = self.flush_all(&mut socket, conn, core)?;
        if !flushed.is_blocked {
            socket.shared = 0;
        }
        if socket.is_counted || flushed.is_blocked {
            socket.is_counted = flushed.is_blocked;
            let len = socket.unsent.iter().map(Bytes::len).sum();
            socket.shared = socket.shared.min(len);
            let left = AtSocket { len, shared: socket.shared };
            conn.note_unsent(core.clock.now(), &core.db, left);
        }
        Ok(flushed)
    }

    fn flush_all(&self, socket: &mut Socket, conn: &Arc<Conn>, core: &Core) -> io::Result<Flushed> {
        let (mut holds, mut turn_bytes) = (0, 0);
        loop {
            let sent = self.send(socket, &mut turn_bytes)?;
            if sent != Sent::All {
                let (close, has_more) = (conn.close_reason(), sent == Sent::Enough);
                return Ok(Flushed { close, is_blocked: true, has_more });
            }
            // First, so that their answers go out with those of the writes before them: one call of the
            // kernel, and the client is woken once.
            while holds < HOLDS_MAX && conn.has_ready_reads() {
                // A hold that came to its bound may have been a long one.
                holds += usize::from(conn.serve_lane(core.clock.now(), &core.db));
            }
            let fetched = self.fetch(socket, conn)?;
            if fetched.close.is_some() {
                let sent = self.send(socket, &mut turn_bytes)?;
                let (is_blocked, has_more) = (sent != Sent::All, sent == Sent::Enough);
                return Ok(Flushed { close: fetched.close, is_blocked, has_more });
            }
            if !fetched.found {
                let has_more = conn.has_ready_reads();
                return Ok(Flushed { close: None, is_blocked: false, has_more });
            }
        }
    }

    /// Sends events from a thread that is not the task's. False if the task has to be woken, because there is more to
    /// do, or because it is at it.
    pub fn send_events(&self, conn: &Conn) -> bool {
        let Ok(mut socket) = self.socket.try_lock() else { return false };
        let task_waits = self.task_waits.load(Ordering::Acquire);
        if task_waits || !socket.unsent.is_empty() || !conn.has_only_events() {
            return false;
        }
        // A broken connection is the task's business.
        let fetched = self.fetch(&mut socket, conn);
        // Bytes that were counted as unsent are subtracted by the task.
        fetched.is_ok_and(|fetched| fetched.close.is_none())
            && socket.unsent.is_empty()
            && !socket.is_counted
    }

    /// Takes what is in the outbox. Small replies are sent straight from their buffer; the rest is left in `unsent`.
    fn fetch(&self, socket: &mut Socket, conn: &Conn) -> io::Result<Fetched> {
        let Socket { writer, unsent, spare, shared, is_counted } = socket;
        let mut outgoing = conn.take_output(spare);
        *is_counted |= outgoing.is_counted;
        *shared += outgoing.shared_len;
        let found = !outgoing.pieces.is_empty() || !spare.is_empty();
        let sent = match outgoing.pieces.is_empty() && !spare.is_empty() {
            true => self.departed(open(writer).and_then(|writer| writer.try_write(spare))),
            false => Ok(0),
        };
        unsent.append(&mut outgoing.pieces);
        if let Ok(sent) = sent
            && sent < spare.len()
        {
            // A long rest is not copied: its buffer is given away.
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

    fn send(&self, socket: &mut Socket, turn_bytes: &mut usize) -> io::Result<Sent> {
        let Socket { writer, unsent, .. } = socket;
        while !unsent.is_empty() {
            if *turn_bytes >= TURN_BYTES {
                return Ok(Sent::Enough);
            }
            let mut slices = [io::IoSlice::new(&[]); SLICES_MAX];
            let count = unsent.len().min(SLICES_MAX);
            for (slice, bytes) in slices.iter_mut().zip(&*unsent) {
                *slice = io::IoSlice::new(bytes);
            }
            let slices = &slices[..count];
            let written = open(writer).and_then(|writer| writer.try_write_vectored(slices));
            let mut sent = self.departed(written)?;
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

    /// How many bytes have left; none if the kernel takes no more for now.
    fn departed(&self, written: io::Result<usize>) -> io::Result<usize> {
        match written {
            Ok(sent) => {
                self.departures.fetch_add(1, Ordering::Release);
                Ok(sent)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(error) => Err(error),
        }
    }
}

fn open(writer: &Option<OwnedWriteHalf>) -> io::Result<&OwnedWriteHalf> {
    writer.as_ref().ok_or_else(|| io::ErrorKind::NotConnected.into())
}

/// What was in the outbox.
struct Fetched {
    found: bool,
    close: Option<CloseReason>,
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[tokio::test]
    async fn a_client_that_reads_fast_gets_a_long_reply_in_turns() {
        const PIECE_BYTES: usize = 64 << 10;
        const PIECES: usize = 128;
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = tokio::net::TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        let mut client = listener.accept().unwrap().0;
        let reader = std::thread::spawn(move || {
            let mut received = vec![0; PIECES * PIECE_BYTES];
            client.read_exact(&mut received).map(|()| received)
        });
        let outlet = Outlet::new(stream.into_split().1);
        let piece = |at| Bytes::from(vec![at as u8; PIECE_BYTES]);
        outlet.lock().unsent.extend((0..PIECES).map(piece));
        let mut turns = 0;
        loop {
            let mut turn_bytes = 0;
            let sent = outlet.send(&mut outlet.lock(), &mut turn_bytes).unwrap();
            assert!(turn_bytes < TURN_BYTES + SLICES_MAX * PIECE_BYTES, "{turn_bytes}");
            turns += 1;
            match sent {
                Sent::All => break,
                Sent::Enough => {}
                Sent::Blocked => {
                    let socket = outlet.lock().writer.take().unwrap();
                    socket.writable().await.unwrap();
                    outlet.lock().writer = Some(socket);
                }
            }
        }
        assert!(turns >= PIECES * PIECE_BYTES / (2 * TURN_BYTES), "{turns}");
        let received = reader.join().unwrap().unwrap();
        let expected: Vec<u8> = (0..PIECES).flat_map(piece).collect();
        assert!(received == expected, "bytes are missing or out of order");
    }
}
