//! A connection's outgoing bytes: small replies copied in, large payloads shared.

use std::collections::VecDeque;

use bytes::Bytes;

/// Data at least this long is sent directly from the tree's memory instead of being copied while
/// the gate is locked.
pub const SHARE_BYTES_MIN: usize = 4096;

/// See [`Outbox::cut_long_tail`].
const LONG_TAIL_BYTES: usize = 256 << 10;

/// Shared bytes of one connection that are not counted in the sum over all connections. Usually the
/// tree holds them anyway, but replaced data is kept in memory only by its recipients, so this
/// amount is bounded.
const SHARED_BYTES_FREE: usize = 4 << 20;

/// Bytes that the driver took from an outbox and that the kernel has not accepted yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AtSocket {
    pub len: usize,
    /// The part of `len` that is shared with the tree.
    pub shared: usize,
}

/// The bytes for the client that wait to be sent, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Finished pieces that are sent before `tail`.
    pieces: VecDeque<Bytes>,
    pieces_len: usize,
    /// The number of bytes of the pieces that are shared with the tree.
    shared_len: usize,
    tail: Vec<u8>,
    events_len: usize,
}

impl Outbox {
    /// Returns the buffer for small replies. The length of a frame is patched in here, so a piece
    /// boundary must not be made inside a frame except by [`Outbox::share`].
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends a watch event. A long one is not copied: all recipients send the same bytes. It
    /// counts as copied nevertheless, because only these recipients keep it in memory.
    pub fn put_event(&mut self, frame: &Bytes) {
        if frame.len() < SHARE_BYTES_MIN {
            self.tail.extend_from_slice(frame);
        } else {
            self.put_piece(frame.clone());
        }
        self.events_len += frame.len();
    }

    /// Appends bytes without copying them; they count as copied.
    pub fn put_piece(&mut self, bytes: Bytes) {
        self.finish_tail();
        self.pieces_len += bytes.len();
        self.pieces.push_back(bytes);
    }

    /// Returns whether the outbox contains events and nothing else.
    pub fn has_only_events(&self) -> bool {
        self.events_len > 0 && self.events_len == self.len()
    }

    /// Turns a long tail into a piece. For a reply of many parts: a single buffer would be copied
    /// repeatedly while it grows.
    pub fn cut_long_tail(&mut self) {
        if self.tail.len() >= LONG_TAIL_BYTES {
            self.finish_tail();
        }
    }

    /// Turns the tail into a piece.
    fn finish_tail(&mut self) {
        if !self.tail.is_empty() {
            self.pieces_len += self.tail.len();
            self.pieces.push_back(Bytes::from(std::mem::take(&mut self.tail)));
        }
    }

    /// Appends bytes that are shared with the tree, without copying them.
    pub fn share(&mut self, bytes: Bytes) {
        self.shared_len += bytes.len();
        self.put_piece(bytes);
    }

    /// Appends the content of another outbox.
    pub fn append(&mut self, mut other: Outbox) {
        if other.len() < SHARE_BYTES_MIN {
            other.pieces.iter().for_each(|piece| self.tail.extend_from_slice(piece));
            self.tail.extend_from_slice(&other.tail);
        } else {
            self.finish_tail();
            self.pieces.append(&mut other.pieces);
            self.pieces_len += other.pieces_len;
            self.shared_len += other.shared_len;
            self.tail = other.tail;
        }
        self.events_len += other.events_len;
    }

    pub fn len(&self) -> usize {
        self.pieces_len + self.tail.len()
    }

    /// Returns the part of [`Outbox::len`] that takes memory of its own.
    pub fn copied_len(&self) -> usize {
        self.len() - self.shared_len
    }

    /// Returns the bytes that count in the sum over all connections, including the bytes
    /// `at_socket`.
    pub fn held_len(&self, at_socket: AtSocket) -> usize {
        let shared = self.shared_len + at_socket.shared;
        let copied = self.len() + at_socket.len - shared;
        copied + shared.saturating_sub(SHARED_BYTES_FREE)
    }

    /// Returns the part of [`Outbox::len`] that is shared with the tree.
    pub fn shared_len(&self) -> usize {
        self.shared_len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes and returns everything. `spare` becomes the new, empty tail, so that one buffer is
    /// reused for a thousand small replies.
    pub fn take(&mut self, spare: &mut Vec<u8>) -> VecDeque<Bytes> {
        self.pieces_len = 0;
        self.shared_len = 0;
        self.events_len = 0;
        std::mem::swap(&mut self.tail, spare);
        std::mem::take(&mut self.pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(outbox: &mut Outbox) -> Vec<u8> {
        let mut tail = Vec::new();
        let pieces = outbox.take(&mut tail);
        pieces.iter().flatten().copied().chain(tail).collect()
    }

    #[test]
    fn copied_and_shared_bytes_leave_in_the_order_they_came() {
        let mut outbox = Outbox::default();
        outbox.share(Bytes::from_static(b"a"));
        outbox.tail().extend_from_slice(b"b");
        outbox.tail().extend_from_slice(b"c");
        outbox.share(Bytes::from_static(b"dd"));
        outbox.share(Bytes::from_static(b"e"));
        outbox.tail().extend_from_slice(b"f");
        assert_eq!((outbox.len(), outbox.copied_len()), (7, 3));
        assert_eq!(sent(&mut outbox), b"abcddef");
        assert!(outbox.is_empty() && outbox.copied_len() == 0);
    }

    #[test]
    fn what_comes_after_a_fetch_leaves_with_the_next() {
        let mut outbox = Outbox::default();
        outbox.tail().extend_from_slice(b"first");
        assert_eq!(sent(&mut outbox), b"first");
        assert_eq!(sent(&mut outbox), b"");
        outbox.share(Bytes::from_static(b"second"));
        assert_eq!(sent(&mut outbox), b"second");
    }

    #[test]
    fn events_are_told_from_answers() {
        let mut outbox = Outbox::default();
        assert!(!outbox.has_only_events());
        let event = Bytes::from_static(b"event");
        outbox.put_event(&event);
        outbox.put_event(&event);
        assert!(outbox.has_only_events());
        outbox.tail().extend_from_slice(b"answer");
        assert!(!outbox.has_only_events());
        assert_eq!(sent(&mut outbox), b"eventeventanswer");
        outbox.tail().extend_from_slice(b"answer");
        outbox.put_event(&event);
        assert!(!outbox.has_only_events());
    }

    #[test]
    fn a_long_event_is_shared_by_its_recipients_and_counts_for_each() {
        let event = Bytes::from(vec![b'e'; SHARE_BYTES_MIN]);
        let mut outbox = Outbox::default();
        outbox.tail().extend_from_slice(b"answer");
        outbox.put_event(&event);
        outbox.put_event(&Bytes::from_static(b"short"));
        assert_eq!(outbox.copied_len(), 6 + SHARE_BYTES_MIN + 5);
        let pieces = outbox.take(&mut Vec::new());
        assert_eq!(pieces[1].as_ptr(), event.as_ptr());
    }

    #[test]
    fn a_long_tail_becomes_a_piece_without_a_copy() {
        let mut outbox = Outbox::default();
        outbox.tail().resize(LONG_TAIL_BYTES - 1, b'a');
        outbox.cut_long_tail();
        assert_eq!(outbox.tail().len(), LONG_TAIL_BYTES - 1);
        outbox.tail().push(b'a');
        let place = outbox.tail().as_ptr();
        outbox.cut_long_tail();
        outbox.tail().push(b'b');
        assert_eq!((outbox.len(), outbox.copied_len()), (LONG_TAIL_BYTES + 1, LONG_TAIL_BYTES + 1));
        let mut tail = Vec::new();
        let pieces = outbox.take(&mut tail);
        assert_eq!((pieces.len(), pieces[0].as_ptr(), &tail[..]), (1, place, &b"b"[..]));
    }

    #[test]
    fn an_appended_outbox_follows_what_was_there() {
        for size in [1, SHARE_BYTES_MIN] {
            let data = Bytes::from(vec![b'd'; size]);
            let (mut outbox, mut other) = (Outbox::default(), Outbox::default());
            outbox.tail().extend_from_slice(b"a");
            other.tail().extend_from_slice(b"b");
            other.share(data.clone());
            other.tail().extend_from_slice(b"c");
            outbox.append(other);
            outbox.tail().extend_from_slice(b"e");
            assert_eq!(outbox.len(), 4 + size);
            assert_eq!(sent(&mut outbox), [b"ab", &data[..], b"ce"].concat());
            assert!(outbox.is_empty());
        }
    }

    #[test]
    fn a_spare_buffer_keeps_its_room() {
        let mut outbox = Outbox::default();
        outbox.tail().extend_from_slice(b"reply");
        let mut spare = Vec::with_capacity(100);
        outbox.take(&mut spare);
        assert_eq!(spare, b"reply");
        assert!(outbox.is_empty() && outbox.tail().capacity() >= 100);
    }
}
