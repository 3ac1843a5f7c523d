//! A connection's outgoing bytes: small replies copied in, large payloads shared.

use std::collections::VecDeque;

use bytes::Bytes;

/// Data at least this long is sent from where it lies in the tree instead of being copied while
/// the gate is held.
pub const SHARE_BYTES_MIN: usize = 4096;

/// Bytes on their way to the client, in order.
#[derive(Debug, Default)]
pub struct Outbox {
    /// Finished pieces that go before `tail`.
    pieces: VecDeque<Bytes>,
    pieces_len: usize,
    /// Of the pieces: bytes that lie in the tree.
    shared_len: usize,
    tail: Vec<u8>,
    events_len: usize,
}

impl Outbox {
    /// Where small things are written. Frames are patched with their length in here, so a piece
    /// boundary must not be made inside a frame except by [`Outbox::share`].
    pub fn tail(&mut self) -> &mut Vec<u8> {
        &mut self.tail
    }

    /// Appends a watch event.
    pub fn put_event(&mut self, frame: &[u8]) {
        self.tail.extend_from_slice(frame);
        self.events_len += frame.len();
    }

    /// Whether there is something, and nothing but events.
    pub fn has_only_events(&self) -> bool {
        self.events_len > 0 && self.events_len == self.len()
    }

    /// Appends bytes without copying them.
    pub fn share(&mut self, bytes: Bytes) {
        if !self.tail.is_empty() {
            self.pieces_len += self.tail.len();
            self.pieces.push_back(Bytes::from(std::mem::take(&mut self.tail)));
        }
        self.pieces_len += bytes.len();
        self.shared_len += bytes.len();
        self.pieces.push_back(bytes);
    }

    pub fn len(&self) -> usize {
        self.pieces_len + self.tail.len()
    }

    /// The part of [`Outbox::len`] that takes memory of its own.
    pub fn copied_len(&self) -> usize {
        self.len() - self.shared_len
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hands everything to the writer. `spare` becomes the new, empty tail, so that one buffer
    /// serves a thousand small replies.
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
        outbox.put_event(b"event");
        outbox.put_event(b"event");
        assert!(outbox.has_only_events());
        outbox.tail().extend_from_slice(b"answer");
        assert!(!outbox.has_only_events());
        assert_eq!(sent(&mut outbox), b"eventeventanswer");
        outbox.tail().extend_from_slice(b"answer");
        outbox.put_event(b"event");
        assert!(!outbox.has_only_events());
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
