//! Where a server stands: what it has appended, what is durable, what it has delivered.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::Zxid;

use crate::Output;
use crate::history::{History, follows};

#[derive(Debug)]
pub(crate) struct Ledger {
    /// The last id handed out, by a leader; it may be an epoch's zero.
    pub(crate) last_proposed: Zxid,
    /// The last transaction given to the log.
    pub(crate) appended: Zxid,
    /// The last transaction that survives a power loss.
    pub(crate) flushed: Zxid,
    /// The last transaction given to the tree.
    pub(crate) delivered: Zxid,
    /// Given to the log, not yet to the tree, in order. A leader's are bounded by the limit on
    /// outstanding requests, a learner's by its leader's.
    pub(crate) pending: VecDeque<(Zxid, Bytes)>,
    /// What learners may want; an ensemble of one has none.
    pub(crate) history: Option<History>,
    /// The point from which the log on disk has no hole.
    pub(crate) log_from: Zxid,
}

impl Ledger {
    pub(crate) fn new(last: Zxid) -> Ledger {
        Ledger {
            last_proposed: last,
            appended: last,
            flushed: last,
            delivered: last,
            pending: VecDeque::new(),
            history: None,
            log_from: last,
        }
    }

    /// Gives a transaction to the log.
    #[inline]
    pub(crate) fn append(&mut self, zxid: Zxid, txn: Bytes, out: &mut Vec<Output>) {
        debug_assert!(follows(self.appended, zxid), "{zxid} behind {}", self.appended);
        self.appended = zxid;
        self.pending.push_back((zxid, txn.clone()));
        out.push(Output::Append { zxid, txn });
    }

    /// The oldest pending transaction is history.
    #[inline]
    pub(crate) fn commit_first(&mut self, out: &mut Vec<Output>) -> Option<(Zxid, Bytes)> {
        let (zxid, txn) = self.pending.pop_front()?;
        self.delivered = zxid;
        if let Some(history) = &mut self.history {
            history.push(zxid, txn.clone());
        }
        out.push(Output::Commit { zxid, txn: txn.clone() });
        Some((zxid, txn))
    }

    /// Brings the tree to the end of the log, committed or not: this is what we vote with, and what we
    /// would lead with.
    pub(crate) fn fast_forward(&mut self, out: &mut Vec<Output>) {
        while let Some((zxid, txn)) = self.pending.pop_front() {
            self.delivered = zxid;
            if let Some(history) = &mut self.history {
                history.push(zxid, txn.clone());
            }
            out.push(Output::FastForward { zxid, txn });
        }
    }

    /// The log and the tree have gone back to `zxid`.
    pub(crate) fn truncated(&mut self, zxid: Zxid) {
        self.pending.clear();
        (self.appended, self.flushed, self.delivered) = (zxid, zxid, zxid);
        self.log_from = self.log_from.min(zxid);
        if let Some(history) = &mut self.history {
            history.truncate(zxid);
            if history.last() != zxid {
                history.restart(zxid);
            }
        }
    }

    /// The tree is that of a leader's snapshot, and so is the beginning of the log.
    pub(crate) fn installed(&mut self, zxid: Zxid) {
        self.pending.clear();
        (self.appended, self.flushed, self.delivered) = (zxid, zxid, zxid);
        self.log_from = zxid;
        if let Some(history) = &mut self.history {
            history.restart(zxid);
        }
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed >= self.appended
    }

    pub(crate) fn history(&self) -> &History {
        self.history.as_ref().expect("members of an ensemble keep a history")
    }
}
