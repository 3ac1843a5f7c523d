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
    /// The last delivered transactions, for learners; `None` in an ensemble of one.
    pub(crate) history: Option<History>,
    /// The zxid after which the log on disk has no gap.
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

    /// Appends a transaction to the log.
    #[inline]
    pub(crate) fn append(&mut self, zxid: Zxid, txn: Bytes, out: &mut Vec<Output>) {
        debug_assert!(zxid.follows(self.appended), "{zxid} behind {}", self.appended);
        self.appended = zxid;
        self.pending.push_back((zxid, txn.clone()));
        out.push(Output::Durable(DurableStep::Append { zxid, txn }));
    }

    /// Commits the oldest pending transaction and returns it.
    #[inline]
    pub(crate) fn commit_first(&mut self, out: &mut Vec<Output>) -> Option<(Zxid, Bytes)> {
        let (zxid, txn) = self.pending.pop_front()?;
        self.delivered = zxid;
        if let Some(history) = &mut self.history {
            history.push(zxid, txn.clone());
        }
        out.push(Output::Up(Upcall::Commit { zxid, txn: txn.clone() }));
        Some((zxid, txn))
    }

    /// Delivers all pending transactions, committed or not: this server votes with the end of its
    /// log, and would lead with it.
    pub(crate) fn fast_forward(&mut self, out: &mut Vec<Output>) {
        while let Some((zxid, txn)) = self.pending.pop_front() {
            self.delivered = zxid;
            if let Some(history) = &mut self.history {
                history.push(zxid, txn.clone());
            }
            out.push(Output::Up(Upcall::FastForward { zxid, txn }));
        }
    }

    /// Resets the positions after the log and the state were truncated to `zxid`.
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

    /// Resets the positions after a leader's snapshot was installed; the log begins at its zxid.
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
