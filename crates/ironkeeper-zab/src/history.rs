//! The last delivered transactions, kept for learners that are only a little behind.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::Zxid;

/// A contiguous end of the delivered transactions: everything after `base`, up to the last.
#[derive(Clone, Debug)]
pub struct History {
    base: Zxid,
    entries: VecDeque<(Zxid, Bytes)>,
    bytes: usize,
    count_max: usize,
    bytes_max: usize,
}

impl History {
    /// Creates an empty history after `base`, bounded in transactions and in their bytes together.
    /// With a bound of zero it keeps only the zxid of the last transaction.
    pub fn new(base: Zxid, count_max: usize, bytes_max: usize) -> History {
        History { base, entries: VecDeque::new(), bytes: 0, count_max, bytes_max }
    }

    /// Returns the zxid before the first transaction that is kept.
    pub fn base(&self) -> Zxid {
        self.base
    }

    pub fn last(&self) -> Zxid {
        self.entries.back().map_or(self.base, |(zxid, _)| *zxid)
    }

    #[inline]
    pub fn push(&mut self, zxid: Zxid, txn: &Bytes) {
        debug_assert!(zxid.follows(self.last()), "{zxid} does not follow {}", self.last());
        if self.count_max == 0 {
            self.base = zxid;
            return;
        }
        self.bytes += txn.len();
        self.entries.push_back((zxid, txn.clone()));
        while self.entries.len() > self.count_max || self.bytes > self.bytes_max {
            let Some((zxid, txn)) = self.entries.pop_front() else { break };
            self.bytes -= txn.len();
            self.base = zxid;
        }
    }

    /// Returns whether `zxid` is the base or one of the kept transactions.
    pub fn contains(&self, zxid: Zxid) -> bool {
        zxid == self.base || self.entries.binary_search_by_key(&zxid, |(zxid, _)| *zxid).is_ok()
    }

    /// Returns the last zxid before `zxid` and the first one after it.
    pub fn around(&self, zxid: Zxid) -> (Zxid, Option<Zxid>) {
        let after = self.entries.partition_point(|(entry, _)| *entry <= zxid);
        let before = self.entries.partition_point(|(entry, _)| *entry < zxid);
        let before = if before == 0 { self.base } else { self.entries[before - 1].0 };
        (before, self.entries.get(after).map(|(zxid, _)| *zxid))
    }

    pub fn after(&self, zxid: Zxid) -> impl Iterator<Item = (Zxid, &Bytes)> {
        let from = self.entries.partition_point(|(entry, _)| *entry <= zxid);
        self.entries.range(from..).map(|(zxid, txn)| (*zxid, txn))
    }

    /// Removes the transactions after `zxid`.
    pub fn truncate(&mut self, zxid: Zxid) {
        while let Some((last, txn)) = self.entries.back() {
            if *last <= zxid {
                return;
            }
            self.bytes -= txn.len();
            self.entries.pop_back();
        }
        self.base = self.base.min(zxid);
    }

    /// Removes all transactions; the next one follows `base`.
    pub fn restart(&mut self, base: Zxid) {
        self.entries.clear();
        self.bytes = 0;
        self.base = base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::Epoch;

    #[test]
    fn keeps_the_end_and_knows_what_came_before_it() {
        let mut history = History::new(Zxid(0), 3, 1000);
        for counter in 1..=5 {
            history.push(Zxid(counter), &Bytes::from_static(b"x"));
        }
        assert_eq!((history.base(), history.last()), (Zxid(2), Zxid(5)));
        assert!(history.contains(Zxid(2)) && !history.contains(Zxid(1)));
        assert_eq!(history.after(Zxid(3)).map(|(zxid, _)| zxid.0).collect::<Vec<_>>(), [4, 5]);
        history.push(Zxid::new(Epoch(2), 1), &Bytes::new());
        assert_eq!(history.around(Zxid(7)), (Zxid(5), Some(Zxid::new(Epoch(2), 1))));
        history.truncate(Zxid(4));
        assert_eq!(history.last(), Zxid(4));
        history.truncate(Zxid(1));
        assert_eq!((history.base(), history.last()), (Zxid(1), Zxid(1)));
    }

    #[test]
    fn is_bounded_by_bytes_too() {
        let mut history = History::new(Zxid(0), 100, 10);
        history.push(Zxid(1), &Bytes::from(vec![0; 8]));
        history.push(Zxid(2), &Bytes::from(vec![0; 8]));
        assert_eq!((history.base(), history.last()), (Zxid(1), Zxid(2)));
        history.push(Zxid(3), &Bytes::from(vec![0; 11]));
        assert_eq!((history.base(), history.last()), (Zxid(3), Zxid(3)));
        let mut none = History::new(Zxid(0), 0, 0);
        none.push(Zxid(1), &Bytes::from_static(b"x"));
        assert_eq!((none.base(), none.last(), none.bytes), (Zxid(1), Zxid(1), 0));
    }
}
