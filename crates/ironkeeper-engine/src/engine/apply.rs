//! Applies committed transactions to the tree and replies to the requests that wait for them.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use ironkeeper_proto::reply;
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{ErrorCode, Put, Txn, TxnHeader, Zxid};
use ironkeeper_tree::{Applied, SnapshotRemains};

use super::replies::put_txn_reply;
use super::role::Role;
use super::{Engine, Ready};
use crate::conn::{CloseReason, Conn, Inner};
use crate::io::{LogItem, Output, SessionEnd, Warning};
use crate::local_writes::{Answer, Waiting};
use crate::planted::Place;
use crate::reads::Reads;
use crate::state::{ClosedSession, Effects, State};
use crate::stats::LastOp;
use crate::time::Now;
use crate::watch::Firing;

/// The maximum number of transactions applied in one exclusive hold of the gate; readers run
/// between holds.
const APPLY_BATCH_MAX: usize = 64;
/// The maximum work in one hold on reads that precede a transaction, in units of [`Reads::work`].
const APPLY_READ_WORK_MAX: usize = 1024;
/// The maximum size of the transactions applied in one hold, because their work grows with their
/// size: a multi with thousands of operations counts as one transaction.
const APPLY_BYTES_MAX: usize = 256 << 10;

impl Engine {
    /// Applies committed transactions and replies to the requests that wait for them, in bounded
    /// holds of the gate.
    pub fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        self.apply_ready(now, out);
        if self.local_writes.len() > 0 {
            let db = Arc::clone(&self.db);
            let state = db.read();
            self.answer_due(now, &state, state.applied());
        }
        out.extend(self.wakes.drain().map(Output::Wake));
    }

    pub(super) fn apply_ready(&mut self, now: Now, out: &mut Vec<Output>) {
        let db = Arc::clone(&self.db);
        while !self.ready.is_empty()
            || !self.snapshots.finished.is_empty()
            || self.is_snapshot_due()
        {
            // Pre-images of finished snapshots are freed after the gate is unlocked.
            let _remains: Vec<SnapshotRemains>;
            let mut state = db.write(&mut self.token);
            self.read_work = 0;
            let mut bytes = 0;
            for _ in 0..APPLY_BATCH_MAX {
                if self.read_work > APPLY_READ_WORK_MAX || bytes > APPLY_BYTES_MAX {
                    break;
                }
                let applied = match self.ready.pop_front() {
                    None => break,
                    Some(Ready::Txn(txn)) => {
                        bytes += txn.len();
                        self.apply(now, &mut state, &txn, out)
                    }
                    Some(Ready::Members(members)) => {
                        self.show_members(now, &mut state, &members);
                        Ok(())
                    }
                };
                if let Err(error) = applied {
                    self.ready.clear();
                    return out.push(Output::Halt(error));
                }
            }
            let finished = self.snapshots.finished.drain(..);
            _remains = finished.map(|walk| state.tree.end_snapshot(walk)).collect();
            if self.ready.is_empty() && self.is_snapshot_due() {
                self.snapshots.start(&state.tree);
                out.push(Output::Log(LogItem::Roll));
                out.push(Output::Snapshot(Box::new(state.begin_snapshot())));
            }
        }
    }

    fn is_snapshot_due(&self) -> bool {
        self.snapshots.is_due() && self.zab.may_snapshot()
    }

    fn apply(
        &mut self,
        now: Now,
        state: &mut State,
        txn: &Bytes,
        out: &mut Vec<Output>,
    ) -> Result<(), String> {
        let full = FullTxn::decode(txn)
            .map_err(|error| format!("a committed transaction cannot be read: {error}"))?;
        let header = &full.header;
        let before = Zxid(header.zxid.0 - 1);
        self.answer_due(now, state, before);
        let waiting = self.local_writes.take_txn(header);
        if let Some(waiting) = &waiting {
            // Reads ahead of this write must not see it.
            let mut inner = waiting.conn.lock();
            self.serve_reads_ahead(now, state, &waiting.conn, &mut inner);
        }
        let Effects { applied, closed, digest_differs } = state.apply(&full, |table| Firing {
            table,
            config: &self.db.config,
            stats: &self.db.stats,
            unsent: &self.db.unsent,
            zxid: header.zxid,
            wakes: &mut self.wakes,
        });
        self.db.planted_panic.strike(Place::Apply);
        self.db.planted_panic.note(&full.txn);
        if digest_differs {
            self.note_mismatch(header, out);
        }
        self.db.stats.commits.fetch_add(1, Relaxed);
        // The difference is negative if the wall clock was set back, or if the leader's clock is
        // ahead of ours.
        if let Ok(taken_ms) = u64::try_from(now.wall_ms - header.time) {
            self.db.stats.propagation_latency.add(taken_ms);
        }
        self.overlay.applied(header.zxid);
        match (&full.txn, waiting) {
            (Txn::CreateSession { timeout_ms }, waiting) => {
                self.on_opened(now, header.session, *timeout_ms, header.zxid, waiting);
            }
            (_, Some(waiting)) => self.answer_txn(now, state, &waiting, &full, &applied),
            (_, None) => {}
        }
        if let Some(ClosedSession { timeout_ms, ephemerals }) = closed {
            let (session, client) = (header.session, self.sessions.forget_client(header.session));
            self.on_closed(session, header.cxid);
            if client.is_some() || self.role == Role::Leading {
                out.push(Output::SessionEnded(Box::new(SessionEnd {
                    session,
                    client,
                    timeout_ms: timeout_ms.unwrap_or(0),
                    ephemerals,
                    expired: header.cxid == 0,
                })));
            }
        }
        Ok(())
    }

    /// Counts a transaction after which the tree differs from the tree that its proposer predicted,
    /// and warns of the first one.
    fn note_mismatch(&mut self, header: &TxnHeader, out: &mut Vec<Output>) {
        debug_assert!(self.is_member(), "another digest after {header:?}");
        if self.db.stats.digest_mismatches.fetch_add(1, Relaxed) == 0 {
            out.push(Output::Warn(Warning::DigestMismatch { zxid: header.zxid }));
        }
    }

    /// Replies to the requests at the front of the queue that wait for no transaction.
    fn answer_due(&mut self, now: Now, state: &State, applied: Zxid) {
        while let Some(waiting) = self.local_writes.take_due(applied) {
            let zxid = state.applied();
            let op = match waiting.answer {
                Answer::Error { .. } => LastOp::NotApplicable,
                _ => LastOp::Op(waiting.op),
            };
            self.db.stats.read_latency.add(latency_ms(now, &waiting));
            self.answer(now, state, &waiting, zxid, op, |inner| match &waiting.answer {
                Answer::Sync { path, .. } => {
                    let out = inner.outbox.tail();
                    let start = reply::start_frame(out, waiting.xid, zxid);
                    out.put_opt_str(path.as_deref());
                    reply::finish_frame(out, start);
                }
                Answer::Error { error, .. } => {
                    reply::header_frame(inner.outbox.tail(), waiting.xid, zxid, Some(*error));
                }
                Answer::Closed { .. } => {
                    reply::header_frame(inner.outbox.tail(), waiting.xid, zxid, None);
                    inner.close_after_flush(CloseReason::SessionClosed);
                }
                Answer::Txn { .. } => {}
            });
            if let Answer::Closed { .. } = waiting.answer {
                self.sessions.detach(waiting.session);
            }
        }
    }

    fn answer_txn(
        &mut self,
        now: Now,
        state: &State,
        waiting: &Waiting,
        full: &FullTxn<'_>,
        applied: &Applied,
    ) {
        let zxid = full.header.zxid;
        let closes = matches!(full.txn, Txn::CloseSession { .. });
        let moved =
            matches!(full.txn, Txn::Error { code } if code == ErrorCode::SessionMoved.code());
        // Apache does not record the operation of a failed request.
        let op = match full.txn {
            Txn::Error { .. } => LastOp::NotApplicable,
            _ => LastOp::Op(waiting.op),
        };
        self.db.stats.update_latency.add(latency_ms(now, waiting));
        self.answer(now, state, waiting, zxid, op, |inner| {
            if moved {
                // The client uses another connection, or is about to: it must not receive two
                // replies.
                return inner.close_after_flush(CloseReason::SessionMoved);
            }
            let out = inner.outbox.tail();
            put_txn_reply(out, waiting.xid, full, applied);
            if closes {
                inner.close_after_flush(CloseReason::SessionClosed);
            }
        });
    }

    /// Serves the reads that the client sent before its oldest write in flight.
    #[inline]
    fn serve_reads_ahead(&mut self, now: Now, state: &State, conn: &Arc<Conn>, inner: &mut Inner) {
        if inner.lane.has_read_in_front() {
            self.read_work += Reads::new(&self.db, state, now).serve_waiting(conn, inner);
        }
    }

    /// Appends a reply to the outbox, after the replies to all earlier requests of the connection.
    fn answer(
        &mut self,
        now: Now,
        state: &State,
        waiting: &Waiting,
        zxid: Zxid,
        op: LastOp,
        put: impl FnOnce(&mut Inner),
    ) {
        self.request_done();
        let mut inner = waiting.conn.lock();
        if inner.is_gone() {
            self.db.stats.throttle.stale_replies.fetch_add(1, Relaxed);
            return;
        }
        self.serve_reads_ahead(now, state, &waiting.conn, &mut inner);
        inner.lane.pop_write(waiting.xid);
        // Nothing is sent after the last reply of a closing connection: the reads before this
        // request were not served, and clients match replies to requests by order.
        if !inner.is_open() {
            self.db.stats.throttle.stale_replies.fetch_add(1, Relaxed);
            // The connection may have been closed a moment ago as a slow reader; its task must run
            // to notice.
            self.wakes.add(&waiting.conn, &mut inner);
            return;
        }
        let before = inner.outbox.len();
        put(&mut inner);
        inner.count_unsent(&self.db.unsent);
        let latency_ms = latency_ms(now, waiting);
        inner.stats.note_reply(op, waiting.xid, zxid, now.mono_ms, latency_ms);
        self.db.stats.note_reply(inner.outbox.len().saturating_sub(before));
        self.wakes.add(&waiting.conn, &mut inner);
    }
}

fn latency_ms(now: Now, waiting: &Waiting) -> u64 {
    now.mono_ms.saturating_sub(waiting.received_ms)
}
