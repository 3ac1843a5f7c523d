//! One connection to another server, as all threads see it.
//!
//! The task in `link_task` reads from it. Every thread may send: it appends bytes to the outbox and
//! passes them to the kernel immediately. The lock of a link is held only for that; a send on a
//! non-blocking socket takes microseconds, and the lock keeps the bytes in order.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use ironkeeper_node::encode_vote;
use ironkeeper_proto::{Notification, Packet, ServerId};
use ironkeeper_zab::{Hangup, LinkId, Port};
use tokio::sync::Notify;

use super::outbox::{Outbox, Sent};
use super::tree_out::OutgoingTree;
use crate::wire::Writer;

/// The maximum number of unsent bytes on all links together: enough for more than six members that
/// synchronize at the same time.
const UNSENT_TOTAL_MAX: usize = 1 << 30;
/// Above this many unsent bytes on all links together, links of non-members are closed.
const UNSENT_WITH_STRANGERS_MAX: usize = 256 << 20;
/// A link with at most this many unsent bytes is not closed because of the sum.
const UNSENT_FAIR_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Link {
    id: LinkId,
    pub(super) port: Port,
    pub(super) peer: SocketAddr,
    /// The peer's server id, as far as it is known: the one we dialled, or the one it has sent.
    peer_id: OnceLock<ServerId>,
    /// The peer has sent its id, and is a non-member.
    is_stranger: AtomicBool,
    /// The peer's address is accepted for the server id that it has sent.
    is_at_home: AtomicBool,
    pub(super) writer: Writer,
    /// Notified when the task has to check `side`.
    pub(super) signal: Notify,
    side: Mutex<Side>,
}

/// The state shared between the link's task and other threads.
#[derive(Debug, Default)]
pub(super) struct Side {
    pub(super) outbox: Outbox,
    /// The task sends the rest of the outbox, when the kernel has room or a snapshot is sent.
    pub(super) task_sends: bool,
    /// The link is in the list of links to be flushed.
    queued: bool,
    /// The snapshot after the SNAP packet is requested.
    pub(super) receive_tree: bool,
    pub(super) end: Option<End>,
}

/// The reason why this side closes a link.
#[derive(Debug)]
pub(super) enum End {
    /// ZAB closed the link, and receives no more inputs of it.
    HungUp(Hangup),
    /// The peer leaves too many bytes unread.
    TooSlow,
    Broken(io::Error),
    /// Another connection needs its permit.
    Crowded,
    /// A test separates the two servers.
    CutOff,
}

impl Link {
    /// Creates a link; `unsent_total` counts the unsent bytes of all links.
    pub(super) fn new(
        id: LinkId,
        port: Port,
        peer: SocketAddr,
        writer: Writer,
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
        // The first id is kept.
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

    /// Appends to the outbox. Returns true if the link has to be added to the list for
    /// [`Link::flush`].
    pub(super) fn put(&self, unsent_bytes_max: usize, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut side = self.side();
        if side.end.is_some() {
            return false;
        }
        side.outbox.put(encode);
        // If the sum over all links is too large, the links with a considerable share are closed.
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
            // The lock is dropped before the snapshot, which is returned to its source.
            drop(side);
            return drop(tree);
        }
        side.outbox.put_tree(tree);
        drop(side);
        self.flush();
    }

    /// Passes the outbox to the kernel, as far as the kernel accepts it.
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

    /// Sends the outbox. Returns `None` if the connection is broken.
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

    /// Closes the link at once, even if other threads still hold it.
    pub(super) fn close(&self) {
        // A snapshot that is returned to its source runs the engine, which may send on this link.
        let unsent = std::mem::take(&mut self.side().outbox);
        drop(unsent);
        self.writer.shutdown();
    }
}
