//! The positions of a server in its history: appended, durable, delivered.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::Zxid;

use crate::history::History;
use crate::{DurableStep, Output, Upcall};

#[derive(Debug)]
pub(crate) struct Ledger {
    /// The last zxid that the leader has assigned; its counter is 0 at the start of an epoch.
    pub(crate) last_proposed: Zxid,
    /// The last transaction passed to the log thread.
    pub(crate) appended: Zxid,
    /// The last transaction that survives a power loss.
    pub(crate) flushed: Zxid,
    /// The last transaction passed to the layer above.
    pub(crate) delivered: Zxid,
    /// Appended and not yet delivered, in order. Bounded on a leader by the limit on outstanding
    /// requests, on a learner by the limit of its leader.
    pub(crate) pending: VecDeque<(Zxid, Bytes)>,
    /// The last delivered transactions, for learners.
    pub(crate) history: History,
    /// The zxid after which the log on disk has no gap.
    pub(crate) log_from: Zxid,
}

impl Ledger {
    pub(crate) fn new(last: Zxid, log_from: Zxid, history: History) -> Ledger {
        Ledger {
            last_proposed: last,
            appended: last,
            flushed: last,
            delivered: last,
            pending: VecDeque::new(),
            history,
            log_from,
        }
    }

    /// Appends a transaction to the log.
    #[inline]
    pub(crate) fn append(&mut self, zxid: Zxid, txn: Bytes, out: &mut Vec<Output>) {
        debug_assert!(zxid.follows(self.appended), "{zxid} behind {}", self.appended);
        self.appended = zxid;
        self.pending.push_back((zxid, txn.clone()));
        out.push(Output::Durable(DurableStep::Append { zxid, txn }));
    }

    /// Commits the oldest pending transaction.
    #[inline]
    pub(crate) fn commit_first(&mut self, out: &mut Vec<Output>) {
        if let Some((zxid, txn)) = self.pending.pop_front() {
            self.delivered = zxid;
            self.history.push(zxid, &txn);
            out.push(Output::Up(Upcall::Commit { zxid, txn }));
        }
    }

    /// Delivers all pending transactions, committed or not: this server votes with the end of its
    /// log, and would lead with it.
    pub(crate) fn fast_forward(&mut self, out: &mut Vec<Output>) {
        while let Some((zxid, txn)) = self.pending.pop_front() {
            self.delivered = zxid;
            self.history.push(zxid, &txn);
            out.push(Output::Up(Upcall::FastForward { zxid, txn }));
        }
    }

    /// Resets the positions after the log and the state were truncated to `zxid`.
    pub(crate) fn truncated(&mut self, zxid: Zxid) {
        self.pending.clear();
        (self.appended, self.flushed, self.delivered) = (zxid, zxid, zxid);
        self.log_from = self.log_from.min(zxid);
        self.history.truncate(zxid);
        if self.history.last() != zxid {
            self.history.restart(zxid);
        }
    }

    /// Resets the positions after a leader's snapshot was installed; the log begins at its zxid.
    pub(crate) fn installed(&mut self, zxid: Zxid) {
        self.pending.clear();
        (self.appended, self.flushed, self.delivered) = (zxid, zxid, zxid);
        self.log_from = zxid;
        self.history.restart(zxid);
    }

    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed >= self.appended
    }
}
