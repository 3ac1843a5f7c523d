//! The bytes to be sent on a link, in order: encoded packets, and sometimes a snapshot.
//!
//! The thread that appends bytes passes them to the stream, mostly the thread that holds the
//! combining lock. So a proposal is sent without waking another thread. The link's own task sends a
//! snapshot in slices; bytes appended after the snapshot wait for it.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use super::tree_out::OutgoingTree;

/// A piece of this size is full; the next bytes begin a new one.
const PIECE_BYTES: usize = 64 << 10;
/// The maximum number of pieces passed to the stream in one call.
const SLICES_MAX: usize = 16;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    pieces: VecDeque<Piece>,
    /// The number of bytes of the first piece that are sent.
    first_sent: usize,
    unsent_bytes: usize,
    /// The unsent bytes on all links together.
    total: Arc<AtomicUsize>,
    /// An empty buffer for reuse.
    spare: Vec<u8>,
}

#[derive(Debug)]
enum Piece {
    Bytes(Vec<u8>),
    /// `None` while the link's task is sending it.
    Snapshot(Option<OutgoingTree>),
}

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing is left.
    All,
    /// The stream accepts no more for now.
    Blocked,
    /// A snapshot is next, which the link's task sends.
    Snapshot,
}

impl Drop for Outbox {
    fn drop(&mut self) {
        self.total.fetch_sub(self.unsent_bytes, Relaxed);
    }
}

impl Outbox {
    /// Creates an outbox whose bytes are counted in `total`.
    pub(super) fn counted_in(total: Arc<AtomicUsize>) -> Outbox {
        let (pieces, spare) = (VecDeque::new(), Vec::new());
        Outbox { pieces, first_sent: 0, unsent_bytes: 0, total, spare }
    }

    /// Returns the unsent bytes on all links together.
    pub(super) fn total_bytes(&self) -> usize {
        self.total.load(Relaxed)
    }

    /// Appends the output of `encode`.
    pub(super) fn put(&mut self, encode: impl FnOnce(&mut Vec<u8>)) {
        let room =
            matches!(self.pieces.back(), Some(Piece::Bytes(last)) if last.len() < PIECE_BYTES);
        if !room {
            self.pieces.push_back(Piece::Bytes(std::mem::take(&mut self.spare)));
        }
        if let Some(Piece::Bytes(last)) = self.pieces.back_mut() {
            let before = last.len();
            encode(last);
            self.unsent_bytes += last.len() - before;
            self.total.fetch_add(last.len() - before, Relaxed);
        }
    }

    pub(super) fn put_snapshot(&mut self, tree: OutgoingTree) {
        self.pieces.push_back(Piece::Snapshot(Some(tree)));
    }

    /// Returns the unsent bytes, without snapshots.
    pub(super) fn unsent_bytes(&self) -> usize {
        self.unsent_bytes
    }

    /// Passes as many bytes as possible to `write`, which returns the number of bytes accepted, 0
    /// if there is no room at present.
    pub(super) fn send(
        &mut self,
        mut write: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) -> io::Result<Sent> {
        loop {
            match self.pieces.front() {
                None => return Ok(Sent::All),
                Some(Piece::Snapshot(_)) => return Ok(Sent::Snapshot),
                Some(Piece::Bytes(_)) => {}
            }
            let mut slices = [IoSlice::new(&[]); SLICES_MAX];
            let mut count = 0;
            for piece in self.pieces.iter().take(SLICES_MAX) {
                let Piece::Bytes(bytes) = piece else { break };
                let skip = if count == 0 { self.first_sent } else { 0 };
                slices[count] = IoSlice::new(&bytes[skip..]);
                count += 1;
            }
            match write(&slices[..count])? {
                0 => return Ok(Sent::Blocked),
                sent => self.remove(sent),
            }
        }
    }

    fn remove(&mut self, mut sent: usize) {
        self.unsent_bytes -= sent;
        self.total.fetch_sub(sent, Relaxed);
        while let Some(Piece::Bytes(first)) = self.pieces.front_mut() {
            let left = first.len() - self.first_sent;
            if sent < left {
                self.first_sent += sent;
                return;
            }
            sent -= left;
            self.first_sent = 0;
            let mut emptied = std::mem::take(first);
            self.pieces.pop_front();
            // A piece with the capacity of a large packet is not reused.
            if emptied.capacity() <= 2 * PIECE_BYTES {
                emptied.clear();
                self.spare = emptied;
            }
        }
    }

    /// Removes and returns the next snapshot, for the link's task. Everything after it waits for
    /// [`Outbox::snapshot_sent`].
    pub(super) fn take_snapshot(&mut self) -> Option<OutgoingTree> {
        match self.pieces.front_mut() {
            Some(Piece::Snapshot(tree)) => tree.take(),
            _ => None,
        }
    }

    pub(super) fn snapshot_sent(&mut self) {
        if let Some(Piece::Snapshot(None)) = self.pieces.front() {
            self.pieces.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::tree_out::tests::tree_of;

    fn put(outbox: &mut Outbox, bytes: &[u8]) {
        outbox.put(|out| out.extend_from_slice(bytes));
    }

    /// Sends to a simulated stream with room for `room` bytes.
    fn send(outbox: &mut Outbox, mut room: usize, sink: &mut Vec<u8>) -> Sent {
        let outcome = outbox.send(|slices| {
            let mut taken = 0;
            for slice in slices {
                let count = slice.len().min(room);
                sink.extend_from_slice(&slice[..count]);
                room -= count;
                taken += count;
            }
            Ok(taken)
        });
        outcome.unwrap()
    }

    #[test]
    fn bytes_are_sent_in_order_however_few_the_stream_accepts() {
        for room in [1, 7, 100, 70_000, 1 << 20] {
            let mut outbox = Outbox::default();
            let mut expected = Vec::new();
            for index in 0..50u8 {
                let bytes = vec![index; 5_000];
                put(&mut outbox, &bytes);
                expected.extend_from_slice(&bytes);
            }
            let mut sent = Vec::new();
            while send(&mut outbox, room, &mut sent) != Sent::All {
                assert_eq!(outbox.unsent_bytes(), expected.len() - sent.len());
            }
            assert_eq!(sent, expected);
            assert_eq!(outbox.unsent_bytes(), 0);
        }
    }

    #[test]
    fn unsent_bytes_of_all_links_are_counted_until_they_are_sent_or_their_link_ends() {
        let total = Arc::new(AtomicUsize::new(0));
        let mut one = Outbox::counted_in(Arc::clone(&total));
        let mut other = Outbox::counted_in(Arc::clone(&total));
        put(&mut one, &[1; 1000]);
        put(&mut other, &[2; 500]);
        assert_eq!(other.total_bytes(), 1500);
        send(&mut one, 700, &mut Vec::new());
        assert_eq!(total.load(Relaxed), 800);
        drop(one);
        assert_eq!(total.load(Relaxed), 500);
        drop(other);
        assert_eq!(total.load(Relaxed), 0);
    }

    #[test]
    fn bytes_behind_a_snapshot_wait_for_it() {
        let mut outbox = Outbox::default();
        let mut sent = Vec::new();
        put(&mut outbox, b"before");
        outbox.put_snapshot(tree_of(&["slice"], &Arc::default()));
        put(&mut outbox, b"behind");
        assert_eq!(send(&mut outbox, 100, &mut sent), Sent::Snapshot);
        assert!(outbox.take_snapshot().is_some());
        assert!(outbox.take_snapshot().is_none(), "there is only one to send it");
        assert_eq!(send(&mut outbox, 100, &mut sent), Sent::Snapshot);
        assert_eq!(sent, b"before");
        outbox.snapshot_sent();
        assert_eq!(send(&mut outbox, 100, &mut sent), Sent::All);
        assert_eq!(sent, b"beforebehind");
    }
}
