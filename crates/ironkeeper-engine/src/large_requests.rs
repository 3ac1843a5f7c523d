//! How many bytes of large requests may be in work at once.
//!
//! Off unless configured. A large request holds its bytes from the moment it is complete until it
//! is answered or given up; whoever carries it carries the [`LargePermit`], and dropping that gives
//! the bytes back, so no path can forget to.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// See the head of this file.
#[derive(Debug)]
pub struct LargeRequests {
    /// Longer requests are large.
    bytes_min: usize,
    bytes_max: usize,
    bytes: AtomicUsize,
}

/// The right to hold the bytes of one large request.
#[derive(Debug)]
pub struct LargePermit {
    of: Arc<LargeRequests>,
    bytes: usize,
}

/// There are too many bytes of large requests in work already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyBytes;

impl LargeRequests {
    pub fn new(bytes_min: usize, bytes_max: usize) -> Arc<LargeRequests> {
        Arc::new(LargeRequests { bytes_min, bytes_max, bytes: AtomicUsize::new(0) })
    }

    /// Takes in a complete request of `len` bytes. Small ones need no permit.
    pub fn admit(
        self: &Arc<LargeRequests>,
        len: usize,
    ) -> Result<Option<LargePermit>, TooManyBytes> {
        if len <= self.bytes_min {
            return Ok(None);
        }
        let permit = LargePermit { of: Arc::clone(self), bytes: len };
        let before = self.bytes.fetch_add(len, Relaxed);
        // Dropping the permit takes the addition back.
        if before + len > self.bytes_max { Err(TooManyBytes) } else { Ok(Some(permit)) }
    }

    /// Whether a request that only its length is known of would be refused now. It is not worth
    /// receiving then.
    pub fn would_refuse(&self, len: usize) -> bool {
        len > self.bytes_min && self.bytes() + len > self.bytes_max
    }

    /// Bytes of large requests in work.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }
}

impl Drop for LargePermit {
    fn drop(&mut self) {
        self.of.bytes.fetch_sub(self.bytes, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_requests_share_the_bytes_and_give_them_back() {
        let large = LargeRequests::new(10, 50);
        assert!(large.admit(10).unwrap().is_none(), "not large");
        let first = large.admit(30).unwrap();
        assert!(large.would_refuse(30) && !large.would_refuse(20) && !large.would_refuse(10));
        assert_eq!(large.admit(30).unwrap_err(), TooManyBytes);
        assert_eq!(large.bytes(), 30, "the refused one holds nothing");
        let second = large.admit(20).unwrap();
        drop((first, second));
        assert_eq!(large.bytes(), 0);
    }
}
