//! The sending side of a connection: replies and events on their way to the client.

use std::collections::VecDeque;

use bytes::Bytes;

use super::turnstile::Slot;
use super::{CloseReason, Conn, Inner, OUTBOX_BYTES_HARD, OUTBOX_BYTES_SOFT, Phase};
use crate::database::Database;
use crate::outbox::{AtSocket, Outbox};
use crate::time::Now;
use crate::unsent::{Holding, Unsent};

/// A client whose socket has accepted no bytes for this long does not read.
const STALLED_MS: u64 = 1000;

/// The bytes that the task has to send.
#[derive(Debug)]
pub struct Outgoing {
    /// Sent first.
    pub pieces: VecDeque<Bytes>,
    /// The number of bytes of the pieces that are shared with the tree.
    pub shared_len: usize,
    /// Set if the connection is closed after this output.
    pub close: Option<CloseReason>,
    /// The output is long enough to be counted: the task reports the result by
    /// [`Conn::note_unsent`].
    pub is_counted: bool,
}

impl Conn {
    /// Returns whether watch events are the only work: nothing else is to be sent, no read waits to
    /// be served, and the connection stays open.
    pub fn has_only_events(&self) -> bool {
        let inner = self.lock();
        inner.phase == Phase::Open
            && inner.turnstile.slot() != Slot::Granted
            && !inner.lane.has_read_in_front()
            && inner.outbox.has_only_events()
    }

    /// Takes the bytes to send out of the outbox. `tail` must be empty; it returns the bytes to
    /// send after the pieces.
    pub fn take_output(&self, tail: &mut Vec<u8>) -> Outgoing {
        debug_assert!(tail.is_empty());
        let mut inner = self.lock();
        inner.wake_pending = false;
        let shared_len = inner.outbox.shared_len();
        let pieces = inner.outbox.take(tail);
        let close = match inner.phase {
            Phase::Closing(reason) => Some(reason),
            _ => None,
        };
        Outgoing { pieces, shared_len, close, is_counted: inner.unsent.is_counted() }
    }

    /// Records that the driver has sent all of the bytes it took except for `left`. Must be called
    /// if bytes are left, and if [`Outgoing::is_counted`] was set.
    pub fn note_unsent(&self, now: Now, db: &Database, left: AtSocket) {
        let mut inner = self.lock();
        if inner.is_gone() {
            return;
        }
        if inner.at_socket != left {
            inner.at_socket = left;
            inner.moved_ms = now.mono_ms;
        }
        inner.count_unsent(&db.unsent);
    }

    /// Returns the unsent bytes of this connection; `None` if they are too few to be counted.
    pub fn holding(&self, now: Now) -> Option<Holding> {
        let inner = self.lock();
        // Only bytes that the socket did not accept count: the others may be sent at any moment.
        let is_stalled =
            inner.at_socket.len > 0 && now.mono_ms.saturating_sub(inner.moved_ms) >= STALLED_MS;
        inner.unsent.is_counted().then(|| Holding { is_stalled, bytes: inner.unsent.counted() })
    }

    /// Closes the connection and drops the bytes that the client has not read. The caller must wake
    /// its task.
    pub fn cut_off(&self, db: &Database) {
        let mut inner = self.lock();
        inner.cut_off();
        inner.count_unsent(&db.unsent);
    }
}

impl Inner {
    /// Appends an event. Returns false if the client will not receive it.
    pub(crate) fn push_event(&mut self, frame: &Bytes, unsent: &Unsent) -> bool {
        use CloseReason::{RoleChanged, SlowReader};
        if matches!(self.phase, Phase::Gone | Phase::Closing(SlowReader(_) | RoleChanged)) {
            return false;
        }
        let waiting = self.outbox.copied_len();
        if waiting > OUTBOX_BYTES_HARD || (waiting > OUTBOX_BYTES_SOFT && unsent.is_over()) {
            self.cut_off();
            self.count_unsent(unsent);
            return false;
        }
        self.stats.packets_sent += 1;
        self.outbox.put_event(frame);
        self.count_unsent(unsent);
        true
    }

    /// Updates the count of unsent bytes; must be called after the outbox has changed.
    #[inline]
    pub(crate) fn count_unsent(&mut self, unsent: &Unsent) {
        self.unsent.set(unsent, self.outbox.held_len(self.at_socket));
    }

    /// Closes the connection of a client that does not read, and drops its outbox.
    pub(crate) fn cut_off(&mut self) {
        if !self.is_gone() {
            let waiting = self.outbox.len() + self.at_socket.len;
            self.phase = Phase::Closing(CloseReason::SlowReader(waiting));
            self.outbox = Outbox::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conn::tests::{NOW, database, new_conn};

    #[test]
    fn an_event_for_a_client_that_does_not_read_closes_its_connection() {
        let (conn, db) = (new_conn(), database());
        let mut inner = conn.lock();
        let event = Bytes::from(vec![b'e'; 40 << 20]);
        assert!(inner.push_event(&event, &db.unsent) && inner.push_event(&event, &db.unsent));
        assert!(!inner.push_event(&event, &db.unsent));
        drop(inner);
        assert_eq!(conn.close_reason(), Some(CloseReason::SlowReader(80 << 20)));
        assert!(conn.take_output(&mut Vec::new()).pieces.is_empty());
        assert_eq!(db.unsent.bytes(), 0);
    }

    #[test]
    fn a_client_is_stalled_when_its_socket_has_accepted_nothing_for_a_second() {
        let (conn, db) = (new_conn(), database());
        let later = |ms| Now { mono_ms: NOW.mono_ms + ms, ..NOW };
        assert_eq!(conn.holding(NOW), None);
        let left = AtSocket { len: 1 << 20, shared: 0 };
        conn.note_unsent(NOW, &db, left);
        let holding = |is_stalled| Some(Holding { is_stalled, bytes: 1 << 20 });
        assert_eq!(conn.holding(later(STALLED_MS - 1)), holding(false));
        conn.note_unsent(later(STALLED_MS - 1), &db, left);
        assert_eq!(conn.holding(later(STALLED_MS)), holding(true));
        conn.note_unsent(later(STALLED_MS), &db, AtSocket::default());
        assert_eq!((conn.holding(later(STALLED_MS)), db.unsent.bytes()), (None, 0));
    }
}
