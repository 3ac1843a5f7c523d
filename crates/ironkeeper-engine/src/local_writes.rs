//! The requests of this server's clients that wait for a transaction or a reply of the leader.
//!
//! Transactions return in the order in which requests were sent, so a transaction belongs to the
//! front entry if session and cxid are equal; otherwise it was not requested here. Some clients
//! restart their xids with every connection: a request that such a client sent through another
//! server may still be in flight with the same xid. Its transaction was proposed before the request
//! here arrived, so its zxid (`<= after`) distinguishes the two.
//!
//! Replies that need no transaction (to a sync, to a malformed request) are in the same queue, so
//! that a connection receives its replies in the order of its requests.

use std::collections::VecDeque;
use std::sync::Arc;

use ironkeeper_proto::{ErrorCode, OpCode, SessionId, TxnHeader, Xid, Zxid};

use crate::conn::Conn;
use crate::large_requests::LargePermit;

/// A request that waits for its reply.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub conn: Arc<Conn>,
    pub session: SessionId,
    pub xid: Xid,
    pub op: OpCode,
    pub received_ms: u64,
    pub answer: Answer,
    /// Held until the reply is made.
    pub _permit: Option<LargePermit>,
}

#[derive(Debug)]
pub(crate) enum Answer {
    /// The reply is made with the transaction, whose zxid is larger than `after`.
    Txn {
        after: Zxid,
    },
    /// The reply is due after the leader's reply, when everything that preceded that is applied.
    Sync {
        path: Option<String>,
    },
    Error {
        after: Zxid,
        error: ErrorCode,
    },
    /// The reply to closeSession of a local session.
    Closed {
        after: Zxid,
    },
}

/// The queue; see the module documentation. Bounded by the lanes of all connections.
#[derive(Debug, Default)]
pub(crate) struct LocalWrites {
    queue: VecDeque<Waiting>,
    /// One entry per sync that the leader has replied to: the last zxid received before that reply.
    synced: VecDeque<Zxid>,
    /// The number of queued syncs that the leader has to reply to or has replied to.
    asked: usize,
}

impl LocalWrites {
    pub fn push(&mut self, waiting: Waiting) {
        self.asked += usize::from(matches!(waiting.answer, Answer::Sync { .. }));
        self.queue.push_back(waiting);
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// Removes and returns the request that this transaction belongs to, if it is at the front.
    pub fn take_txn(&mut self, header: &TxnHeader) -> Option<Waiting> {
        let front = self.queue.front()?;
        let matches = matches!(front.answer, Answer::Txn { after } if after < header.zxid)
            && front.session == header.session
            && front.xid == Xid(header.cxid);
        if matches { self.queue.pop_front() } else { None }
    }

    /// Removes and returns the next request that needs no transaction and is due once `applied` is
    /// visible.
    pub fn take_due(&mut self, applied: Zxid) -> Option<Waiting> {
        let after = match self.queue.front()?.answer {
            Answer::Txn { .. } => return None,
            Answer::Error { after, .. } | Answer::Closed { after } => after,
            Answer::Sync { .. } => {
                let reached = self.synced.pop_front_if(|reached| *reached <= applied)?;
                self.asked -= 1;
                reached
            }
        };
        if after <= applied { self.queue.pop_front() } else { None }
    }

    /// Records the leader's reply to our oldest sync; before that the leader has sent us everything
    /// up to `reached`.
    pub fn sync_done(&mut self, reached: Zxid) {
        if self.synced.len() < self.asked {
            self.synced.push_back(reached);
        }
    }

    /// Removes and returns all requests; none will get a reply.
    pub fn abandon(&mut self) -> VecDeque<Waiting> {
        self.synced.clear();
        self.asked = 0;
        std::mem::take(&mut self.queue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::Hasher;
    use crate::time::Now;

    #[test]
    fn a_transaction_that_was_proposed_before_the_request_is_not_its_answer() {
        let now = Now { mono_ms: 0, wall_ms: 0 };
        let address = ([127, 0, 0, 1], 4000).into();
        let mut writes = LocalWrites::default();
        writes.push(Waiting {
            conn: Conn::new(1, 1, address, now, Hasher::with_seed(1)),
            session: SessionId(7),
            xid: Xid(1),
            op: OpCode::SetData,
            received_ms: 0,
            answer: Answer::Txn { after: Zxid(5) },
            _permit: None,
        });
        let header = |zxid| TxnHeader {
            session: SessionId(7),
            cxid: 1,
            zxid: Zxid(zxid),
            time: 0,
            op: OpCode::SetData,
        };
        assert!(writes.take_txn(&header(5)).is_none());
        assert!(writes.take_txn(&header(6)).is_some());
    }
}
