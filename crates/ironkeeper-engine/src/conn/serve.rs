//! Requests of an open session: reads are served, writes are submitted to the engine.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use ironkeeper_proto::{ErrorCode, OpCode, Xid, Zxid, reply};

use super::auth_request::authenticate;
use super::frames::{Frame, Frames, Kind, ReadRequest};
use super::turnstile::{Admission, Arrival, Demand};
use super::{CloseReason, Conn, Inner, OUTBOX_BYTES_SOFT, Phase, Submit, SubmitKind};
use crate::auth;
use crate::database::Database;
use crate::lane::WaitingRead;
use crate::large_requests::{LargePermit, TooManyBytes};
use crate::reads::Reads;
use crate::stats::FRAME_HEAD_BYTES;
use crate::time::Now;

/// The maximum number of requests served, and of reply bytes made, in one hold of the gate.
const SERVE_REQUESTS_MAX: usize = 32;
const SERVE_BYTES_MAX: usize = 64 << 10;
/// The maximum work on the reads of one connection in one turn, and the part of it that is done in
/// one hold of the gate. See [`Reads::work`].
const TURN_WORK_MAX: usize = 4096;
const HOLD_WORK_MAX: usize = 1024;

/// One turn: the requests of one connection that are processed before other connections have
/// theirs.
pub(super) struct Turn<'a> {
    pub now: Now,
    pub db: &'a Database,
    pub frames: Frames<'a>,
    pub submits: &'a mut Vec<Submit>,
    work: usize,
}

impl<'a> Turn<'a> {
    pub fn new(
        now: Now,
        db: &'a Database,
        input: &'a [u8],
        submits: &'a mut Vec<Submit>,
    ) -> Turn<'a> {
        let frames = Frames::new(input, db.config.frame_bytes_max);
        Turn { now, db, frames, submits, work: 0 }
    }

    /// Returns whether other connections have to be served first.
    pub fn is_over(&self) -> bool {
        self.work > TURN_WORK_MAX
    }
}

/// Why a run of requests ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunEnd {
    /// A request of another kind follows, or a bound was reached.
    More,
    /// The next request is incomplete.
    Incomplete,
    /// The connection has to wait: for replies, or for a slot of the request throttle.
    Full,
}

/// Consecutive requests of one kind, processed while the connection is locked; for reads, the gate
/// is locked as well.
struct Run<'a, 't, 's> {
    conn: &'a Arc<Conn>,
    turn: &'a mut Turn<'t>,
    inner: &'a mut Inner,
    /// Set if the gate is locked.
    reads: Option<Reads<'s>>,
    requests: usize,
}

impl Conn {
    /// Processes requests as long as they are of one kind: reads under the gate, other requests
    /// without it.
    pub(super) fn serve_run(self: &Arc<Conn>, turn: &mut Turn<'_>) -> Result<RunEnd, CloseReason> {
        let (now, db) = (turn.now, turn.db);
        let Some(first) = turn.frames.next()? else {
            if let Some(large) = &db.large_requests
                && turn.frames.announced_len().is_some_and(|len| large.would_refuse(len))
            {
                return Err(reject_large(db));
            }
            return Ok(RunEnd::Incomplete);
        };
        // Lock order: the gate, then the connection. The gate is locked only if a read is to be
        // served.
        let state = first.kind.is_read().then(|| db.read());
        let mut guard = self.lock();
        let inner = &mut *guard;
        if inner.must_pause(db) || inner.outbox.len() > OUTBOX_BYTES_SOFT {
            turn.frames.keep(first);
            return Ok(RunEnd::Full);
        }
        let consumed_before = turn.frames.consumed();
        let reads = state.as_deref().map(|state| Reads::new(db, state, now));
        let mut run = Run { conn: self, turn: &mut *turn, inner, reads, requests: 0 };
        let end = run.serve(first);
        let Run { inner, reads, requests, .. } = run;
        if end.is_ok() {
            if !first.kind.is_auth()
                && let Some(clock) = &inner.clock
            {
                clock.hear(now.mono_ms);
            }
            inner.count_unsent(&db.unsent);
            inner.stats.packets_received += requests as u64;
            let bytes = turn.frames.consumed() - consumed_before;
            db.stats.packets_received.fetch_add(requests as u64, Relaxed);
            db.stats.bytes_received.fetch_add(bytes as u64, Relaxed);
        }
        drop(guard);
        turn.work += reads.map_or(0, Reads::finish);
        end
    }

    /// Serves reads at the front of the lane. Returns true if the bound of one hold of the gate was
    /// reached and more reads can be served immediately.
    pub fn serve_lane(self: &Arc<Conn>, now: Now, db: &Database) -> bool {
        let state = db.read();
        let mut reads = Reads::new(db, &state, now);
        let mut inner = self.lock();
        let before = inner.outbox.len();
        for _ in 0..SERVE_REQUESTS_MAX {
            if inner.phase != Phase::Open
                || inner.outbox.len() - before > SERVE_BYTES_MAX
                || reads.work() > HOLD_WORK_MAX
            {
                break;
            }
            if !reads.serve_next(self, &mut inner) {
                break;
            }
        }
        inner.count_unsent(&db.unsent);
        let has_more = inner.phase == Phase::Open && inner.lane.has_read_in_front();
        drop(inner);
        reads.finish();
        has_more
    }

    /// Returns whether reads at the front of the lane can be served and the outbox has room for the
    /// replies.
    pub fn has_ready_reads(&self) -> bool {
        let inner = self.lock();
        inner.phase == Phase::Open
            && inner.lane.has_read_in_front()
            && inner.outbox.len() < SERVE_BYTES_MAX
    }
}

impl<'t> Run<'_, 't, '_> {
    #[inline]
    fn serve(&mut self, first: Frame<'t>) -> Result<RunEnd, CloseReason> {
        let outbox_before = self.inner.outbox.len();
        let mut frame = first;
        loop {
            let permit = self.permit(&frame)?;
            match self.admission(&frame)? {
                Admission::Now => {
                    self.pass(&frame);
                    self.process(&frame, permit)?;
                    if self.inner.phase != Phase::Open {
                        return Ok(RunEnd::More);
                    }
                }
                Admission::TooLate(op) => {
                    self.pass(&frame);
                    self.submit_rejected(frame.xid, op);
                }
                Admission::Wait => {
                    self.inner.turnstile.keep(permit);
                    self.turn.frames.keep(frame);
                    return Ok(RunEnd::Full);
                }
            }
            let Some(next) = self.turn.frames.next()? else { return Ok(RunEnd::Incomplete) };
            if !next.kind.is_like(first.kind) || self.is_at_bound(outbox_before) {
                self.turn.frames.keep(next);
                return Ok(RunEnd::More);
            }
            frame = next;
        }
    }

    /// Returns whether a bound of one hold of the gate is reached, or the connection has to wait.
    fn is_at_bound(&self, outbox_before: usize) -> bool {
        self.requests == SERVE_REQUESTS_MAX
            || self.inner.outbox.len() - outbox_before > SERVE_BYTES_MAX
            || self.reads.as_ref().is_some_and(|reads| reads.work() > HOLD_WORK_MAX)
            || self.inner.must_pause(self.turn.db)
    }

    #[inline]
    fn permit(&mut self, frame: &Frame<'_>) -> Result<Option<LargePermit>, CloseReason> {
        let db = self.turn.db;
        let Some(large) = &db.large_requests else { return Ok(None) };
        let permit = self.inner.turnstile.permit(large, frame.len());
        permit.map_err(|TooManyBytes| reject_large(db))
    }

    #[inline]
    fn admission(&mut self, frame: &Frame<'_>) -> Result<Admission, CloseReason> {
        let db = self.turn.db;
        let Some(throttle) = &db.request_throttle else { return Ok(Admission::Now) };
        let Some(demand) = Demand::of(frame.kind) else { return Ok(Admission::Now) };
        let arrival = Arrival {
            demand,
            now_ms: self.turn.now.mono_ms,
            timeout_ms: self.inner.timeout_ms,
            bytes: FRAME_HEAD_BYTES + frame.len(),
            bytes_waiting: self.turn.frames.rest().len(),
        };
        self.inner.turnstile.enter(throttle, &db.stats.throttle, self.conn, arrival)
    }

    fn pass(&mut self, frame: &Frame<'t>) {
        self.turn.frames.pass(frame);
        self.requests += 1;
    }

    #[inline]
    fn process(
        &mut self,
        frame: &Frame<'_>,
        permit: Option<LargePermit>,
    ) -> Result<(), CloseReason> {
        let Run { conn, turn: Turn { now, db, work, .. }, inner, reads, .. } = self;
        let Frame { xid, kind, body } = *frame;
        if !kind.is_auth() && !auth::is_admitted(&db.config.auth, &inner.identity) {
            let error = Some(ErrorCode::SessionClosedRequireSaslAuth);
            reply::header_frame(inner.outbox.tail(), xid, Zxid::ZERO, error);
            inner.close_after_flush(CloseReason::NotAdmitted);
            return Ok(());
        }
        match kind {
            Kind::Read(op) => {
                let request = ReadRequest { xid, op, body };
                match reads {
                    Some(reads) if inner.lane.is_empty() => {
                        reads.serve(conn, inner, request, now.mono_ms);
                    }
                    _ => inner.lane.push_read(WaitingRead::new(request, now.mono_ms, permit)),
                }
            }
            Kind::Write(op) => {
                let kind = SubmitKind::Write {
                    session: inner.session,
                    xid,
                    op,
                    body: Bytes::copy_from_slice(body),
                    identity: Arc::clone(&inner.identity),
                    permit,
                };
                self.submit(xid, kind);
            }
            Kind::Auth(op) => {
                authenticate(db, inner, xid, op, body)?;
                // A new identity copies all ids of the connection.
                *work += 1 + inner.identity.ids().len() / 4;
            }
        }
        Ok(())
    }

    /// Submits a request for a reply with an error, after the replies to all earlier requests.
    #[cold]
    fn submit_rejected(&mut self, xid: Xid, op: OpCode) {
        let (session, error) = (self.inner.session, ErrorCode::ThrottledOp);
        self.submit(xid, SubmitKind::Refuse { session, xid, op, error });
    }

    // Always inlined: otherwise the request is built on the stack first and copied.
    #[inline(always)]
    fn submit(&mut self, xid: Xid, kind: SubmitKind) {
        self.inner.lane.push_write(xid);
        self.turn.db.outstanding.fetch_add(1, Relaxed);
        let conn = Arc::clone(self.conn);
        self.turn.submits.push(Submit { conn, received_ms: self.turn.now.mono_ms, kind });
    }
}

impl Inner {
    /// Returns whether the task must stop reading for now: the lane is full, or too many requests
    /// of all connections are in progress and one of them is a write of this connection, whose
    /// reply will wake the task.
    fn must_pause(&self, db: &Database) -> bool {
        self.lane.is_full()
            || (self.lane.writes() > 0 && db.outstanding.load(Relaxed) > db.config.outstanding_max)
    }
}

fn reject_large(db: &Database) -> CloseReason {
    db.stats.large_requests_rejected.fetch_add(1, Relaxed);
    CloseReason::LargeRequests
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::EngineConfig;
    use crate::conn::tests::{NOW, database, database_with, open_conn};
    use crate::conn::{Next, Received};
    use ironkeeper_proto::Put;
    use ironkeeper_proto::request::RequestHeader;

    fn put(out: &mut Vec<u8>, xid: i32, op: OpCode, path: &str) {
        out.put_len(RequestHeader::ENCODED_LEN + 4 + path.len() + 1);
        RequestHeader { xid: Xid(xid), op: op.code() }.encode(out);
        out.put_str(path);
        out.put_bool(false);
    }

    fn requests(ops: impl IntoIterator<Item = OpCode>) -> Vec<u8> {
        let mut input = Vec::new();
        ops.into_iter().zip(1..).for_each(|(op, xid)| put(&mut input, xid, op, "/"));
        input
    }

    fn receive(
        conn: &Arc<Conn>,
        db: &Database,
        input: &[u8],
    ) -> (Result<Received, CloseReason>, Vec<Submit>) {
        let mut submits = Vec::new();
        (conn.receive(NOW, db, input, &mut submits), submits)
    }

    #[test]
    fn a_run_ends_where_the_kind_of_requests_changes() {
        let (conn, db) = (open_conn(), database());
        let input = requests([OpCode::Exists, OpCode::GetData, OpCode::Sync, OpCode::Exists]);
        let mut submits = Vec::new();
        let mut turn = Turn::new(NOW, &db, &input, &mut submits);
        let request = input.len() / 4;
        for consumed in [2, 3] {
            assert_eq!(conn.serve_run(&mut turn), Ok(RunEnd::More));
            assert_eq!(turn.frames.consumed(), consumed * request);
        }
        assert_eq!(conn.serve_run(&mut turn), Ok(RunEnd::Incomplete));
        assert_eq!(turn.frames.consumed(), input.len());
        assert_eq!(submits.len(), 1);
        assert_eq!(conn.lock().lane.len(), 2, "the sync, and the read that waits for it");
        assert_eq!(db.outstanding.load(Relaxed), 1);
    }

    #[test]
    fn a_hold_of_the_gate_serves_a_bounded_number_of_reads() {
        let (conn, db) = (open_conn(), database());
        let input = requests(std::iter::repeat_n(OpCode::Exists, SERVE_REQUESTS_MAX + 1));
        let mut submits = Vec::new();
        let mut turn = Turn::new(NOW, &db, &input, &mut submits);
        assert_eq!(conn.serve_run(&mut turn), Ok(RunEnd::More));
        assert_eq!(conn.lock().stats.packets_sent, SERVE_REQUESTS_MAX as u64);
        assert_eq!(conn.serve_run(&mut turn), Ok(RunEnd::Incomplete));
        assert_eq!(turn.work, SERVE_REQUESTS_MAX + 1, "a short read is one unit");
        assert_eq!(db.stats.packets_sent.load(Relaxed), turn.work as u64);
    }

    #[test]
    fn reads_before_an_unreadable_request_are_counted() {
        let (conn, db) = (open_conn(), database());
        let mut input = requests([OpCode::Exists]);
        input.put_i32(-1);
        let (received, _) = receive(&conn, &db, &input);
        assert!(matches!(received, Err(CloseReason::FrameLength(-1, _))));
        assert_eq!(db.stats.packets_sent.load(Relaxed), 1);
    }

    #[test]
    fn an_operation_that_clients_may_not_send_is_the_last_one() {
        let (conn, db) = (open_conn(), database());
        let input = requests([OpCode::Check, OpCode::Exists]);
        let (received, submits) = receive(&conn, &db, &input);
        assert_eq!(received, Ok(Received { consumed: input.len(), next: Next::Read }));
        assert_eq!(conn.close_reason(), Some(CloseReason::BadOperation(13)));
        assert!(submits.is_empty());
    }

    #[test]
    fn too_many_bytes_of_large_requests_are_rejected_before_the_request_is_complete() {
        let config = EngineConfig {
            large_request_bytes_min: Some(16),
            large_request_bytes_max: 20,
            ..EngineConfig::default()
        };
        let db = database_with(config);
        let mut input = Vec::new();
        put(&mut input, 1, OpCode::Exists, "/p");
        assert!(receive(&open_conn(), &db, &input).0.is_ok());
        input.clear();
        put(&mut input, 1, OpCode::Exists, "/longer/than/that");
        for end in [4, input.len()] {
            let (received, _) = receive(&open_conn(), &db, &input[..end]);
            assert_eq!(received, Err(CloseReason::LargeRequests), "{end} bytes");
        }
        let rejected = &db.stats.large_requests_rejected;
        assert_eq!(rejected.load(Relaxed), 2);
    }
}
