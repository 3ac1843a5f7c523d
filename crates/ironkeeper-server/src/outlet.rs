//! The writer of a connection: from its outbox to its socket.
//!
//! Usually the connection's task sends: most output consists of replies, and the client likely runs
//! on the processor from which the request came. The client of an event is usually idle, and mostly
//! acts on the event, for example as the next holder of a lock. So after applying the transaction
//! the log thread sends a lone event directly instead of waking an I/O thread for it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Buf, Bytes};
use ironkeeper_engine::conn::{CloseReason, Conn};
use ironkeeper_engine::outbox::AtSocket;
use tokio::net::tcp::OwnedWriteHalf;

use crate::core::Core;

/// A connection's own empty buffer is freed above this size.
const BUFFER_BYTES_KEPT: usize = 16 << 10;
/// The maximum number of pieces passed to the kernel in one call.
const SLICES_MAX: usize = 16;
/// The maximum number of bytes sent in one turn. Otherwise a client that reads as fast as they are
/// sent would receive a reply of any length without a pause.
const TURN_BYTES: usize = 1 << 20;
/// How often waiting reads are served up to the bound of one hold of the gate in one turn.
const HOLDS_MAX: usize = 8;

/// The writer of a connection. It keeps the order of bytes, whichever thread sends them.
#[derive(Debug)]
pub struct Outlet {
    socket: Mutex<Socket>,
    /// Set while the task waits for a reply or for bytes to be sent, so that it must be woken.
    task_waits: AtomicBool,
    /// The number of successful writes to the socket.
    departures: AtomicU64,
}

#[derive(Debug)]
struct Socket {
    /// `None` when the task has closed it.
    writer: Option<OwnedWriteHalf>,
    /// Taken from the outbox, but not yet accepted by the kernel.
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
    /// Bytes are left: the kernel accepts no more for now, or the turn has ended.
    pub is_blocked: bool,
    /// More can be served or sent: call again after other connections have had their turn.
    pub has_more: bool,
}

/// The result of sending unsent bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sent {
    All,
    /// As many as the kernel accepts for now.
    Blocked,
    /// As many as a turn allows.
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

    /// Closes the writer: nothing is sent any more.
    pub fn close(&self) -> Option<OwnedWriteHalf> {
        self.lock().writer.take()
    }

    /// Returns the number of successful writes. A change means that room was made since the last
    /// check.
    pub fn departures(&self) -> u64 {
        self.departures.load(Ordering::Acquire)
    }

    /// Sets whether the task waits for a reply or for bytes to be sent.
    pub fn set_waiting(&self, waits: bool) {
        self.task_waits.store(waits, Ordering::Release);
    }

    /// Serves reads that can be served now and sends the outbox, as far as the kernel accepts it.
    /// For the connection's task.
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
            // Before sending, so that their replies are sent together with those of the writes
            // before them: one system call, and the client is woken once.
            while holds < HOLDS_MAX && conn.has_ready_reads() {
                // A hold that reached its bound may have been a long one.
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

    /// Sends events from another thread than the task's. Returns false if the task has to be woken,
    /// because there is other work or because the task is sending.
    pub fn send_events(&self, conn: &Conn) -> bool {
        let Ok(mut socket) = self.socket.try_lock() else { return false };
        let task_waits = self.task_waits.load(Ordering::Acquire);
        if task_waits || !socket.unsent.is_empty() || !conn.has_only_events() {
            return false;
        }
        // The task handles a broken connection.
        let fetched = self.fetch(&mut socket, conn);
        // The task subtracts bytes that were counted as unsent.
        fetched.is_ok_and(|fetched| fetched.close.is_none())
            && socket.unsent.is_empty()
            && !socket.is_counted
    }

    /// Takes the content of the outbox. Sends small replies directly from their buffer; puts the
    /// rest into `unsent`.
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

    /// Counts a successful write. Returns the bytes sent; 0 if the kernel accepts no more for now.
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

/// The content of the outbox.
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
