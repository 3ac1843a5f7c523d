//! Which of the writes in flight are ours to answer.
//!
//! Transactions come back in the order in which requests went out, so the front entry with the same
//! session and cxid is the one to answer; a transaction that does not match was not asked for here. Some
//! clients begin to count anew with every connection: what such a client has asked for elsewhere, before it
//! came here, may still be on its way and bear the same number. It was proposed before the request here was
//! made, which tells the two apart.
//! Answers that need no transaction (a sync, a request that could not be read) stand in the same
//! line, so that a connection hears its answers in the order of its questions.

use std::collections::VecDeque;
use std::sync::Arc;

use ironkeeper_proto::{ErrorCode, OpCode, SessionId, TxnHeader, Xid, Zxid};

use crate::conn::Conn;
use crate::large_requests::LargePermit;

/// Somebody waits for an answer.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub conn: Arc<Conn>,
    pub session: SessionId,
    pub xid: Xid,
    pub op: OpCode,
    pub received_ms: u64,
    pub answer: Answer,
    /// Held until the answer is given.
    pub _permit: Option<LargePermit>,
}

#[derive(Debug)]
pub(crate) enum Answer {
    /// Comes with the transaction, which is proposed after this one.
    Txn {
        after: Zxid,
    },
    /// Comes when everything proposed before it is applied; `None` if that is the leader's to say.
    Sync {
        after: Option<Zxid>,
        path: Option<String>,
    },
    Error {
        after: Zxid,
        error: ErrorCode,
    },
    /// Of a session that only this server knows.
    Closed {
        after: Zxid,
    },
}

/// See the head of this file. Bounded by the lanes of all connections.
#[derive(Debug, Default)]
pub(crate) struct LocalWrites {
    queue: VecDeque<Waiting>,
    /// Our leader has answered that many more syncs, each when we had got this far.
    synced: VecDeque<Zxid>,
    /// How many syncs our leader has to answer, or has answered.
    asked: usize,
}

impl LocalWrites {
    pub fn push(&mut self, waiting: Waiting) {
        self.asked += usize::from(matches!(waiting.answer, Answer::Sync { after: None, .. }));
        self.queue.push_back(waiting);
    }

    pub fn len(&self) -> usize {
        self.queue.len()
    }

    /// The one who waits for this transaction, if it is here.
    pub fn take_txn(&mut self, header: &TxnHeader) -> Option<Waiting> {
        let front = self.queue.front()?;
        let matches = matches!(front.answer, Answer::Txn { after } if after < header.zxid)
            && front.session == header.session
            && front.xid == Xid(header.cxid);
        if matches { self.queue.pop_front() } else { None }
    }

    /// The next answer that needs no transaction and is due once `applied` is visible.
    pub fn take_due(&mut self, applied: Zxid) -> Option<Waiting> {
        let after = match self.queue.front()?.answer {
            Answer::Txn { .. } => return None,
            Answer::Sync { after: Some(after), .. }
            | Answer::Error { after, .. }
            | Answer::Closed { after } => after,
            Answer::Sync { after: None, .. } => {
                let reached = self.synced.pop_front_if(|reached| *reached <= applied)?;
                self.asked -= 1;
                reached
            }
        };
        if after <= applied { self.queue.pop_front() } else { None }
    }

    /// The leader has answered our oldest sync; before that it has sent us everything up to
    /// `reached`.
    pub fn sync_done(&mut self, reached: Zxid) {
        if self.synced.len() < self.asked {
            self.synced.push_back(reached);
        }
    }

    /// Nobody will be answered any more.
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
