//! The connections of one I/O thread, found by the tag of a [`Conn`] without hashing.

use std::sync::Arc;

use ironkeeper_engine::conn::Conn;

use super::ConnSender;

/// The lower half of a tag is the slot, the upper half is the index of the thread.
const SLOT_BITS: u32 = 32;

/// The senders of a thread's connections. A slot is used again after its connection has ended.
#[derive(Debug, Default)]
pub(super) struct Slots {
    senders: Vec<Option<Arc<ConnSender>>>,
    free: Vec<usize>,
}

/// Returns the index of the thread in a tag.
pub(super) fn thread_of(tag: u64) -> usize {
    (tag >> SLOT_BITS) as usize
}

fn slot_of(tag: u64) -> usize {
    (tag & ((1 << SLOT_BITS) - 1)) as usize
}

impl Slots {
    pub(super) fn find(&self, conn: &Conn) -> Option<&Arc<ConnSender>> {
        self.senders.get(slot_of(conn.tag))?.as_ref()
    }

    /// Stores the sender of a new connection of this thread and returns the connection's tag.
    pub(super) fn insert(&mut self, thread: usize, sender: Arc<ConnSender>) -> u64 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.senders.push(None);
            self.senders.len() - 1
        });
        self.senders[slot] = Some(sender);
        ((thread as u64) << SLOT_BITS) | slot as u64
    }

    pub(super) fn remove(&mut self, tag: u64) {
        let slot = slot_of(tag);
        self.senders[slot] = None;
        self.free.push(slot);
    }

    /// Drops all senders, when the thread has ended.
    pub(super) fn clear(&mut self) {
        self.senders.clear();
    }
}
