//! The last, minimum and maximum of some sizes.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

/// The last, minimum and maximum of some sizes; -1 while there is none.
#[derive(Debug)]
pub struct LastMinMax {
    last: AtomicI64,
    min: AtomicI64,
    max: AtomicI64,
}

impl Default for LastMinMax {
    fn default() -> LastMinMax {
        LastMinMax { last: AtomicI64::new(-1), min: AtomicI64::new(-1), max: AtomicI64::new(-1) }
    }
}

impl LastMinMax {
    #[inline]
    pub fn note(&self, size: usize) {
        let size = size as i64;
        self.last.store(size, Relaxed);
        // Usually nothing changes, and a load is cheaper than a store. Of two concurrent changes
        // the lesser record may be lost, until the next such size.
        if self.max.load(Relaxed) < size {
            self.max.fetch_max(size, Relaxed);
        }
        let min = self.min.load(Relaxed);
        if min == -1 || size < min {
            self.min.store(size, Relaxed);
        }
    }

    pub fn reset(&self) {
        for value in [&self.last, &self.min, &self.max] {
            value.store(-1, Relaxed);
        }
    }

    pub fn last(&self) -> i64 {
        self.last.load(Relaxed)
    }

    pub fn min(&self) -> i64 {
        self.min.load(Relaxed)
    }

    pub fn max(&self) -> i64 {
        self.max.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_start_unknown_and_forget_on_reset() {
        let sizes = LastMinMax::default();
        assert_eq!((sizes.last(), sizes.min(), sizes.max()), (-1, -1, -1));
        for size in [16, 84, 27] {
            sizes.note(size);
        }
        assert_eq!((sizes.last(), sizes.min(), sizes.max()), (27, 16, 84));
        sizes.reset();
        assert_eq!(sizes.min(), -1);
    }
}
