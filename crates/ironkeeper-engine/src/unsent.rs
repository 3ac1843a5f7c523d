//! The bytes that wait in memory for clients to read them, over all connections together.
//!
//! Each connection has its own bound (`OUTBOX_BYTES_HARD` in `conn.rs`); the sum is bounded here.
//! While it is above the bound, an event closes a connection that has not read its earlier bytes,
//! and the driver closes connections in the order of [`Holding`], the largest first.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The default bound on the sum.
pub const UNSENT_BYTES_MAX: usize = 256 << 20;
/// A connection's share is counted in steps of this size: short replies never change the sum.
const STEP_BYTES: usize = 64 << 10;

/// The sum. It is read for each event and each write that a socket does not accept, and written
/// rarely, so it has a cache line of its own.
#[derive(Debug)]
#[repr(align(64))]
pub struct Unsent {
    bytes: AtomicUsize,
    bytes_max: usize,
}

impl Unsent {
    pub fn new(bytes_max: usize) -> Unsent {
        Unsent { bytes: AtomicUsize::new(0), bytes_max }
    }

    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    pub fn is_over(&self) -> bool {
        self.bytes() > self.bytes_max
    }

    /// Returns how many bytes to drop after the bound was exceeded: the excess and an eighth of the
    /// bound, so that the search for the largest connections is not repeated for each further
    /// reply.
    pub fn excess(&self) -> usize {
        // A single load: other threads change the sum at any time.
        match self.bytes().saturating_sub(self.bytes_max) {
            0 => 0,
            over => over + self.bytes_max / 8,
        }
    }
}

/// The share of one connection in the sum.
#[derive(Debug, Default)]
pub(crate) struct UnsentPart {
    counted: usize,
}

impl UnsentPart {
    /// Updates the sum: the connection now holds `bytes`.
    #[inline]
    pub fn set(&mut self, unsent: &Unsent, bytes: usize) {
        if bytes.abs_diff(self.counted) >= STEP_BYTES {
            self.set_exactly(unsent, bytes);
        }
    }

    #[cold]
    fn set_exactly(&mut self, unsent: &Unsent, bytes: usize) {
        // Less than one step counts as zero.
        let bytes = if bytes < STEP_BYTES { 0 } else { bytes };
        // A single operation: a sum that is too large for a moment closes connections.
        match bytes.checked_sub(self.counted) {
            Some(more) => unsent.bytes.fetch_add(more, Relaxed),
            None => unsent.bytes.fetch_sub(self.counted - bytes, Relaxed),
        };
        self.counted = bytes;
    }

    /// Removes the share of a connection that is closed.
    pub fn clear(&mut self, unsent: &Unsent) {
        if self.is_counted() {
            self.set_exactly(unsent, 0);
        }
    }

    pub fn is_counted(&self) -> bool {
        self.counted > 0
    }

    pub fn counted(&self) -> usize {
        self.counted
    }
}

/// The unsent bytes of one connection. Ordered: the greatest is closed first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Holding {
    /// The client has read nothing for a while.
    pub is_stalled: bool,
    pub bytes: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_counted_in_steps_and_given_back_whole() {
        let unsent = Unsent::new(3 * STEP_BYTES);
        let (mut a, mut b) = (UnsentPart::default(), UnsentPart::default());
        a.set(&unsent, STEP_BYTES - 1);
        assert_eq!((unsent.bytes(), a.is_counted()), (0, false));
        a.set(&unsent, 2 * STEP_BYTES);
        b.set(&unsent, STEP_BYTES);
        assert_eq!((unsent.bytes(), unsent.is_over()), (3 * STEP_BYTES, false));
        a.set(&unsent, 4 * STEP_BYTES);
        assert!(unsent.is_over() && unsent.excess() > 2 * STEP_BYTES);
        a.set(&unsent, 1);
        assert_eq!((unsent.bytes(), unsent.excess()), (STEP_BYTES, 0));
        b.set(&unsent, STEP_BYTES + 1);
        b.clear(&unsent);
        assert_eq!((unsent.bytes(), b.is_counted()), (0, false));
    }

    #[test]
    fn who_reads_nothing_goes_before_who_holds_more() {
        let reading = Holding { is_stalled: false, bytes: 100 };
        let stalled = Holding { is_stalled: true, bytes: 10 };
        assert!(stalled > reading);
        assert!(Holding { bytes: 11, ..stalled } > stalled);
    }
}
