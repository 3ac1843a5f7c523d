//! From a committed transaction to the tree, and from there to whoever waits for an answer.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use ironkeeper_proto::reply;
use ironkeeper_proto::txn::{FullTxn, TxnDigest};
use ironkeeper_proto::{ErrorCode, Put, Txn, Zxid};
use ironkeeper_tree::{Applied, SnapshotRemains};

use super::replies::put_txn_reply;
use super::role::Role;
use super::{Engine, Ready};
use crate::conn::{CloseReason, Conn, Inner};
use crate::database::State;
use crate::io::{Output, SessionEnd};
use crate::local_writes::{Answer, Waiting};
use crate::planted::Place;
use crate::reads::Reads;
use crate::snapshot::SnapshotJob;
use crate::stats::LastOp;
use crate::time::Now;
use crate::watch::Firing;

/// Transactions applied during one exclusive hold of the gate; then readers get their turn.
const APPLY_BATCH_MAX: usize = 64;
/// The same for reads that had to be served before the next transaction, as [`Reads::work`].
const APPLY_READ_WORK_MAX: usize = 1024;
/// The same in bytes, which is what their work grows with: a multi of thousands of parts is one of
/// them.
const APPLY_BYTES_MAX: usize = 256 << 10;

impl Engine {
    /// Makes committed transactions visible and answers those who wait, in bounded holds.
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
            // What a finished snapshot kept is freed after the gate is open again.
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
                let walk = state.tree.begin_snapshot();
                let sessions = state.sessions.sorted();
                out.push(Output::Roll);
                out.push(Output::Snapshot(Box::new(SnapshotJob::new(walk, sessions))));
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
        let mut ended = None;
        match &full.txn {
            Txn::CreateSession { timeout_ms } => state.sessions.open(header.session, *timeout_ms),
            Txn::CloseSession { .. } => {
                let timeout_ms = state.sessions.timeout_ms(header.session);
                ended = Some((timeout_ms, state.tree.ephemeral_count()));
                state.sessions.close(header.session);
            }
            _ => {}
        }
        let mut firing = Firing {
            table: &state.watches,
            config: &self.db.config,
            stats: &self.db.stats,
            unsent: &self.db.unsent,
            zxid: header.zxid,
            wakes: &mut self.wakes,
        };
        let applied = state.tree.apply(header, &full.txn, &mut firing);
        self.db.planted_panic.strike(Place::Apply);
        self.db.planted_panic.note(&full.txn);
        self.compare_digest(state, &full, out);
        state.digests.keep(&state.tree);
        self.db.stats.commits.fetch_add(1, Relaxed);
        // Negative if the wall clock was set back, or a leader's goes ahead of ours.
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
        if let Some((timeout_ms, ephemerals)) = ended {
            let (session, client) = (header.session, self.forget_client(header.session));
            self.on_closed(session, header.cxid);
            if client.is_some() || self.role == Role::Leading {
                out.push(Output::SessionEnded(Box::new(SessionEnd {
                    session,
                    client,
                    timeout_ms: timeout_ms.unwrap_or(0),
                    ephemerals: ephemerals.saturating_sub(state.tree.ephemeral_count()),
                    expired: header.cxid == 0,
                })));
            }
        }
        Ok(())
    }

    /// Whoever proposed the transaction has computed where it leads.
    fn compare_digest(&mut self, state: &State, full: &FullTxn<'_>, out: &mut Vec<Output>) {
        let Some(digest) = full.digest.filter(|digest| digest.version == TxnDigest::VERSION) else {
            return;
        };
        if digest.tree_digest == state.tree.digest() {
            self.awaits_digest = false;
        } else if !self.awaits_digest {
            let header = &full.header;
            debug_assert!(self.is_member(), "another digest after {header:?}");
            if self.db.stats.digest_mismatches.fetch_add(1, Relaxed) == 0 {
                out.push(Output::Warn(format!(
                    "after transaction {} this tree is not what the leader's is; from now on this \
                     is only counted. Remove this server's data and restart it to copy the leader's",
                    header.zxid
                )));
            }
        }
    }

    /// Answers those at the front of the line who wait for no transaction.
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
                self.attached.remove(&waiting.session);
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
        // Apache does not get as far as naming the operation when it has failed.
        let op = match full.txn {
            Txn::Error { .. } => LastOp::NotApplicable,
            _ => LastOp::Op(waiting.op),
        };
        self.db.stats.update_latency.add(latency_ms(now, waiting));
        self.answer(now, state, waiting, zxid, op, |inner| {
            if moved {
                // The client is elsewhere by now, or thinks so: it must not hear two answers.
                return inner.close_after_flush(CloseReason::SessionMoved);
            }
            let out = inner.outbox.tail();
            put_txn_reply(out, waiting.xid, full, applied);
            if closes {
                inner.close_after_flush(CloseReason::SessionClosed);
            }
        });
    }

    /// Serves the reads that the client has sent before its oldest write in work.
    #[inline]
    fn serve_reads_ahead(&mut self, now: Now, state: &State, conn: &Arc<Conn>, inner: &mut Inner) {
        if inner.lane.has_read_in_front() {
            self.read_work += Reads::new(&self.db, state, now).serve_waiting(conn, inner);
        }
    }

    /// Writes an answer behind everything the connection was told before it.
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
        // Nothing is said after a last word: the reads before this were left out, and clients take
        // replies in the order of their requests.
        if !inner.is_open() {
            self.db.stats.throttle.stale_replies.fetch_add(1, Relaxed);
            // It may just have been cut off, which its task has to notice.
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
