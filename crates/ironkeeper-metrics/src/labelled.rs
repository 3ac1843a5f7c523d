//! A counter for each value of a label.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Counters by label. Only for rare events: every addition takes a lock.
///
/// The labels are never removed except by a reset, so their number must be bounded by the caller.
#[derive(Debug, Default)]
pub struct LabelledCounter {
    counts: Mutex<BTreeMap<String, u64>>,
}

impl LabelledCounter {
    /// Adds one to the counter of a label.
    pub fn add(&self, label: &str) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match counts.get_mut(label) {
            Some(count) => *count += 1,
            None => drop(counts.insert(label.to_owned(), 1)),
        }
    }

    /// Returns the counters by label.
    pub fn counts(&self) -> BTreeMap<String, u64> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Removes all labels.
    pub fn reset(&self) {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_label_has_a_count_until_the_reset() {
        let counter = LabelledCounter::default();
        ["b", "a", "b"].iter().for_each(|label| counter.add(label));
        let counts: Vec<_> = counter.counts().into_iter().collect();
        assert_eq!(counts, [("a".to_owned(), 1), ("b".to_owned(), 2)]);
        counter.reset();
        assert!(counter.counts().is_empty());
    }
}
