//! The bound on the bytes of large requests in progress.
//!
//! Off unless configured. A large request occupies its bytes from the moment it is complete until
//! the server replies to it or drops it; its [`LargePermit`] moves with it, and dropping the permit
//! releases the bytes on every path.

use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The bytes in progress and their bound; see the module documentation.
#[derive(Debug)]
pub struct LargeRequests {
    /// Longer requests are large.
    bytes_min: usize,
    bytes_max: usize,
    bytes: AtomicUsize,
}

/// The permission to hold the bytes of one large request.
#[derive(Debug)]
pub struct LargePermit {
    of: Arc<LargeRequests>,
    bytes: usize,
}

/// The error that too many bytes of large requests are in progress already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyBytes;

impl LargeRequests {
    pub fn new(bytes_min: usize, bytes_max: usize) -> Arc<LargeRequests> {
        Arc::new(LargeRequests { bytes_min, bytes_max, bytes: AtomicUsize::new(0) })
    }

    /// Admits a complete request of `len` bytes. A request that is not large needs no permit.
    pub fn admit(
        self: &Arc<LargeRequests>,
        len: usize,
    ) -> Result<Option<LargePermit>, TooManyBytes> {
        if len <= self.bytes_min {
            return Ok(None);
        }
        let permit = LargePermit { of: Arc::clone(self), bytes: len };
        let before = self.bytes.fetch_add(len, Relaxed);
        // Dropping the permit reverts the addition.
        if before + len > self.bytes_max { Err(TooManyBytes) } else { Ok(Some(permit)) }
    }

    /// Returns whether a request of which only the length has arrived would be rejected now; then
    /// the rest need not be received.
    pub fn would_refuse(&self, len: usize) -> bool {
        len > self.bytes_min && self.bytes() + len > self.bytes_max
    }

    /// Returns the bytes of large requests in progress.
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
