//! One connection to another server, as all threads see it.
//!
//! The task in `link_task` reads from it. Every thread may send: it appends bytes to the outbox and
//! passes them to the stream immediately. The lock of a link is held only for that; a send that
//! does not wait takes microseconds, and the lock keeps the bytes in order.
//!
//! ```text
//!              put                 flush: all is sent
//!  drained ──────────► queued ──────────────────────────► drained
//!                        │ flush: no room, or a snapshot is next
//!                        ▼
//!                    task sends ─── all is sent ────────► drained
//! ```
//! From each state `end` leads to the close by the task; after that nothing is put or flushed. A
//! thread that puts bytes while the task sends does not notify it: the task sends until the outbox
//! is empty, and leaves this state under the lock.

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
const UNSENT_WITH_NON_MEMBERS_MAX: usize = 256 << 20;
/// A link with at most this many unsent bytes is not closed because of the sum.
const UNSENT_KEPT_BYTES: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct Link {
    id: LinkId,
    pub(super) port: Port,
    pub(super) peer: SocketAddr,
    /// The peer's server id, as far as it is known: the one we dialled, or the one it has sent.
    peer_id: OnceLock<ServerId>,
    /// The peer has sent its id, and is a non-member.
    is_non_member: AtomicBool,
    /// The peer's address is accepted for the server id that it has sent.
    is_at_member_address: AtomicBool,
    pub(super) writer: Writer,
    /// Notified when the task has to check `state`.
    pub(super) signal: Notify,
    state: Mutex<LinkState>,
}

/// The state shared between the link's task and other threads.
#[derive(Debug, Default)]
pub(super) struct LinkState {
    pub(super) outbox: Outbox,
    /// The task sends the rest of the outbox, when the kernel has room or a snapshot is sent.
    pub(super) task_sends: bool,
    /// The link is in the list of links to be flushed.
    queued: bool,
    /// The snapshot after the SNAP packet is requested.
    pub(super) receive_tree: bool,
    pub(super) end: Option<End>,
}

/// The reason why this server closes a link.
#[derive(Debug)]
pub(super) enum End {
    /// ZAB closed the link, and receives no more inputs of it.
    HungUp(Hangup),
    /// The peer leaves too many bytes unread.
    TooSlow,
    Broken(io::Error),
    /// Another connection needs its permit.
    Evicted,
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
        let state = Mutex::new(LinkState { outbox, ..LinkState::default() });
        let (is_non_member, is_at_member_address) =
            (AtomicBool::new(false), AtomicBool::new(false));
        let (peer_id, signal) = (OnceLock::new(), Notify::new());
        Link { id, port, peer, peer_id, is_non_member, is_at_member_address, writer, signal, state }
    }

    pub(super) fn peer_id(&self) -> Option<ServerId> {
        self.peer_id.get().copied()
    }

    pub(super) fn set_peer_id(&self, id: ServerId) {
        // The first id is kept.
        let _ = self.peer_id.set(id);
    }

    pub(super) fn set_non_member(&self) {
        self.is_non_member.store(true, Relaxed);
    }

    pub(super) fn set_at_member_address(&self) {
        self.is_at_member_address.store(true, Relaxed);
    }

    pub(super) fn is_at_member_address(&self) -> bool {
        self.is_at_member_address.load(Relaxed)
    }

    pub(super) fn id(&self) -> LinkId {
        self.id
    }

    pub(super) fn state(&self) -> MutexGuard<'_, LinkState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends to the outbox. Returns true if the link has to be added to the list for
    /// [`Link::flush`].
    pub(super) fn put(&self, unsent_bytes_max: usize, encode: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut state = self.state();
        if state.end.is_some() {
            return false;
        }
        state.outbox.put(encode);
        // If the sum over all links is too large, the links with a considerable share are closed.
        let total_max = match self.is_non_member.load(Relaxed) {
            true => UNSENT_WITH_NON_MEMBERS_MAX,
            false => UNSENT_TOTAL_MAX,
        };
        let exceeds_total = state.outbox.total_bytes() > total_max
            && state.outbox.unsent_bytes() > UNSENT_KEPT_BYTES;
        if state.outbox.unsent_bytes() > unsent_bytes_max || exceeds_total {
            state.end = Some(End::TooSlow);
            self.signal.notify_one();
            return false;
        }
        !state.task_sends && !std::mem::replace(&mut state.queued, true)
    }

    pub(super) fn put_packet(&self, packet: &Packet, unsent_bytes_max: usize) -> bool {
        self.put(unsent_bytes_max, |out| packet.encode(out))
    }

    pub(super) fn put_vote(&self, vote: &Notification, unsent_bytes_max: usize) -> bool {
        self.put(unsent_bytes_max, |out| encode_vote(vote, out))
    }

    pub(super) fn put_snapshot(&self, tree: OutgoingTree) {
        let mut state = self.state();
        if state.end.is_some() {
            // The lock is dropped before the snapshot, which is returned to its source.
            drop(state);
            return drop(tree);
        }
        state.outbox.put_snapshot(tree);
        drop(state);
        self.flush();
    }

    /// Passes the outbox to the stream, as far as the stream accepts it.
    pub(super) fn flush(&self) {
        let mut state = self.state();
        state.queued = false;
        if state.task_sends || state.end.is_some() {
            return;
        }
        if self.send(&mut state) != Some(Sent::All) {
            state.task_sends = true;
            self.signal.notify_one();
        }
    }

    /// Sends the outbox. Returns `None` if the connection is broken.
    pub(super) fn send(&self, state: &mut LinkState) -> Option<Sent> {
        match state.outbox.send(|slices| self.writer.try_write_vectored(slices)) {
            Ok(sent) => Some(sent),
            Err(error) => {
                state.end.get_or_insert(End::Broken(error));
                None
            }
        }
    }

    pub(super) fn receive_tree(&self) {
        self.state().receive_tree = true;
        self.signal.notify_one();
    }

    pub(super) fn hang_up(&self, reason: Hangup) {
        self.end(End::HungUp(reason));
    }

    pub(super) fn end(&self, end: End) {
        self.state().end = Some(end);
        self.signal.notify_one();
    }

    /// Closes the link at once, even if other threads still hold it.
    pub(super) fn close(&self) {
        // A snapshot that is returned to its source runs the engine, which may send on this link.
        let unsent = std::mem::take(&mut self.state().outbox);
        drop(unsent);
        self.writer.shutdown();
    }
}
