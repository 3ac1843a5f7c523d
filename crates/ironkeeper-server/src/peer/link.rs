//! One connection to another server, as all threads see it.
//!
//! The task in `link_task` reads from it. Everybody may send: bytes are put into the outbox and
//! handed to the kernel on the spot. The lock of a link is held for that and for nothing else; a send
//! on a socket that does not block takes microseconds, and it keeps what is sent in order.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ironkeeper_proto::jute::Put;
use ironkeeper_proto::{Notification, Packet, ServerId};
use ironkeeper_zab::{Hangup, LinkId, Port};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;

use super::outbox::{Outbox, Sent};
use super::tree_out::OutgoingTree;

/// What may wait on all links together: six members that catch up at once, and then some.
const UNSENT_TOTAL_MAX: usize = 1 << 30;
/// Above this many bytes on all links together, those of servers that are no members go.
const UNSENT_WITH_STRANGERS_MAX: usize = 256 << 20;
/// A link on which no more waits is not to blame.
const UNSENT_FAIR_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Link {
    id: LinkId,
    pub(super) port: Port,
    pub(super) peer: SocketAddr,
    /// Who it is, as far as that is known: whom we dialled, or who it has said to be.
    peer_id: OnceLock<ServerId>,
    /// It has named itself, and is no member.
    is_stranger: AtomicBool,
    /// Its address is one from which the server that it names may come.
    is_at_home: AtomicBool,
    pub(super) writer: OwnedWriteHalf,
    /// Raised when the task has to look at `side`.
    pub(super) signal: Notify,
    side: Mutex<Side>,
}

/// What the link's task and the others tell each other.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) outbox: Outbox,
    /// The rest of the outbox is sent by the task, when the kernel has room or a tree is through.
    pub(super) task_sends: bool,
    /// In the list of links to be flushed.
    queued: bool,
    /// The tree behind the SNAP is wanted.
    pub(super) receive_tree: bool,
    pub(super) end: Option<End>,
}

/// Why a link ends from this side.
#[derive(Debug)]
pub(super) enum End {
    /// The machine wants it so, and hears nothing of it any more.
    HungUp(Hangup),
    /// The peer leaves too much unread.
    TooSlow,
    Broken(io::Error),
    /// Another connection needs its place.
    Crowded,
    /// A test wants the two apart.
    CutOff,
}

impl Link {
    /// `unsent_total` counts the bytes that wait on all links.
    pub(super) fn new(
        id: LinkId,
        port: Port,
        peer: SocketAddr,
        writer: OwnedWriteHalf,
        unsent_total: Arc<AtomicUsize>,
    ) -> Link {
        let outbox = Outbox::counted_in(unsent_total);
        let side = Mutex::new(Side { outbox, ..Side::default() });
        let (is_stranger, is_at_home) = (AtomicBool::new(false), AtomicBool::new(false));
        let (peer_id, signal) = (OnceLock::new(), Notify::new());
        Link { id, port, peer, peer_id, is_stranger, is_at_home, writer, signal, side }
    }

    pub(super) fn peer_id(&self) -> Option<ServerId> {
        self.peer_id.get().copied()
    }

    pub(super) fn set_peer_id(&self, id: ServerId) {
        // Who has said it once says nothing else later.
        let _ = self.peer_id.set(id);
    }

    pub(super) fn set_stranger(&self) {
        self.is_stranger.store(true, Relaxed);
    }

    pub(super) fn set_at_home(&self) {
        self.is_at_home.store(true, Relaxed);
    }

    pub(super) fn is_at_home(&self) -> bool {
        self.is_at_home.load(Relaxed)
    }

    pub(super) fn id(&self) -> LinkId {
        self.id
    }

    pub(super) fn side(&self) -> MutexGuard<'_, Side> {
        self.side.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts something into the outbox. True if the link has to be put on the list of those that need a
    /// [`Link::flush`].
    pub(super) fn put(&self, unsent_bytes_max: usize, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut side = self.side();
        if side.end.is_some() {
            return false;
        }
        side.outbox.put(encode);
        // With too much on all links together those go that have a part in it.
        let total_max = match self.is_stranger.load(Relaxed) {
            true => UNSENT_WITH_STRANGERS_MAX,
            false => UNSENT_TOTAL_MAX,
        };
        let is_crowded =
            side.outbox.total_bytes() > total_max && side.outbox.unsent_bytes() > UNSENT_FAIR_BYTES;
        if side.outbox.unsent_bytes() > unsent_bytes_max || is_crowded {
            side.end = Some(End::TooSlow);
            self.signal.notify_one();
            return false;
        }
        !side.task_sends && !std::mem::replace(&mut side.queued, true)
    }

    pub(super) fn put_packet(&self, packet: &Packet, unsent_bytes_max: usize) -> bool {
        self.put(unsent_bytes_max, |out| packet.encode(out))
    }

    pub(super) fn put_vote(&self, vote: &Notification, unsent_bytes_max: usize) -> bool {
        self.put(unsent_bytes_max, |out| encode_vote(vote, out))
    }

    pub(super) fn put_tree(&self, tree: OutgoingTree) {
        let mut side = self.side();
        if side.end.is_some() {
            // The lock goes first: the tree goes back to its source.
            drop(side);
            return drop(tree);
        }
        side.outbox.put_tree(tree);
        drop(side);
        self.flush();
    }

    /// Hands the outbox to the kernel, as far as it goes.
    pub(super) fn flush(&self) {
        let mut side = self.side();
        side.queued = false;
        if side.task_sends || side.end.is_some() {
            return;
        }
        if self.send(&mut side) != Some(Sent::All) {
            side.task_sends = true;
            self.signal.notify_one();
        }
    }

    /// `None` if the connection is broken.
    pub(super) fn send(&self, side: &mut Side) -> Option<Sent> {
        match side.outbox.send(|slices| self.writer.try_write_vectored(slices)) {
            Ok(sent) => Some(sent),
            Err(error) => {
                side.end.get_or_insert(End::Broken(error));
                None
            }
        }
    }

    pub(super) fn receive_tree(&self) {
        self.side().receive_tree = true;
        self.signal.notify_one();
    }

    pub(super) fn hang_up(&self, reason: Hangup) {
        self.end(End::HungUp(reason));
    }

    pub(super) fn end(&self, end: End) {
        self.side().end = Some(end);
        self.signal.notify_one();
    }

    /// The end, at once, whoever still holds on to the link.
    pub(super) fn close(&self) {
        // A tree that goes back to its source runs the engine, which may want to send on this link.
        let unsent = std::mem::take(&mut self.side().outbox);
        drop(unsent);
        // It may be closed already.
        let _ = socket2::SockRef::from(self.writer.as_ref()).shutdown(Shutdown::Both);
    }
}

/// A vote as it goes over the wire: its length, then itself.
pub fn encode_vote(vote: &Notification, out: &mut Vec<u8>) {
    let start = out.len();
    out.put_i32(0);
    vote.encode(out);
    // A configuration that is too long for a frame is too long for every reader.
    let len = i32::try_from(out.len() - start - 4).unwrap_or(i32::MAX);
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}
