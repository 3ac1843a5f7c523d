//! Requests of the clients of this server, as they arrive.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::LeaderMessage;
use ironkeeper_proto::{DecodeError, ErrorCode, OpCode, Reader, Request, Zxid};

use super::Engine;
use super::role::Role;
use super::sessions::Owner;
use crate::auth::Identity;
use crate::conn::{CloseReason, Conn, Submit, SubmitKind};
use crate::io::Output;
use crate::local_writes::{Answer, Waiting};
use crate::state::State;
use crate::time::Now;

/// The number of connections waiting for the request throttle that are woken in one check.
const LOOK_MAX: usize = 64;

impl Engine {
    pub(super) fn on_submit(
        &mut self,
        now: Now,
        state: &State,
        submit: Submit,
        out: &mut Vec<Output>,
    ) {
        let Submit { conn, received_ms, kind } = submit;
        match kind {
            SubmitKind::OpenSession { timeout_ms } => {
                self.open(now, state, conn, received_ms, timeout_ms);
            }
            SubmitKind::AttachSession { session, password, timeout_ms } => {
                self.attach(now, state, &conn, session, password, timeout_ms);
                self.db.outstanding.fetch_sub(1, Relaxed);
            }
            SubmitKind::Write { session, xid, op, body, identity, permit } => {
                if conn.is_cut() || self.drops(&conn, op) {
                    self.request_done();
                    return;
                }
                let (answer, _permit) = (Answer::Txn { after: self.zab.appended() }, permit);
                let waiting = Waiting { conn, session, xid, op, received_ms, answer, _permit };
                self.on_write(now, state, waiting, &body, &identity, out);
            }
            SubmitKind::Refuse { session, xid, op, error } => {
                if conn.is_cut() {
                    self.request_done();
                    return;
                }
                let answer = Answer::Error { after: self.own_writes_until_now(), error };
                let _permit = None;
                let waiting = Waiting { conn, session, xid, op, received_ms, answer, _permit };
                self.local_writes.push(waiting);
            }
            SubmitKind::Disconnected { session, has_slot } => {
                if has_slot {
                    self.pass_slot();
                }
                self.sessions.disconnected(session, &conn);
            }
        }
    }

    /// Returns the zxid that must be applied before a reply that has no transaction of its own. A
    /// learner needs none: its reply only has to follow the earlier replies, which the queue
    /// ensures. A leader that has proposed nothing yet has a last zxid (counter 0) that no
    /// transaction carries: it uses the last transaction it has delivered.
    fn own_writes_until_now(&self) -> Zxid {
        match self.role {
            Role::Leading => match self.zab.last_proposed() {
                begun if begun.counter() == 0 => self.delivered,
                last => last,
            },
            _ => Zxid::ZERO,
        }
    }

    fn on_write(
        &mut self,
        now: Now,
        state: &State,
        mut waiting: Waiting,
        body: &Bytes,
        identity: &Arc<Identity>,
        out: &mut Vec<Output>,
    ) {
        let (session, xid) = (waiting.session, waiting.xid);
        let after = self.own_writes_until_now();
        let reader = Reader::with_limit(body, self.db.config.field_bytes_max);
        let request = Request::decode(waiting.op, reader);
        if self.sessions.local.contains(session) {
            match self.on_local_write(now, session, &request) {
                Ok(()) => {}
                Err(answer) => {
                    waiting.answer = answer;
                    return self.local_writes.push(waiting);
                }
            }
        }
        match self.role {
            Role::Leading => {}
            Role::Learning => return self.forward_write(waiting, &request, body, identity),
            Role::ReadOnly => {
                waiting.answer = Answer::Error { after, error: ErrorCode::NotReadOnly };
                return self.local_writes.push(waiting);
            }
            Role::Looking => {
                waiting.conn.cut(CloseReason::NotServing, &mut self.wakes);
                return self.request_done();
            }
        }
        let refusal = match &request {
            Ok(Request::Sync { path }) => {
                let path = path.as_deref().map(str::to_owned);
                waiting.answer = Answer::Sync { path };
                self.local_writes.push(waiting);
                let reply = LeaderMessage::Synced;
                return self.zab.reply_confirmed(None, reply, &mut self.zab_out);
            }
            Ok(Request::CloseSession) => {
                self.local_writes.push(waiting);
                self.propose_close(now, state, session, xid.0, out);
                return;
            }
            Ok(_) => None,
            // Which malformed writes consume a zxid is defined by Apache ZooKeeper; clients can see
            // it.
            Err(error) => match (waiting.op, error) {
                (OpCode::Multi, error) if *error != DecodeError::NullVector => {
                    Some(ErrorCode::MarshallingError)
                }
                (OpCode::SetData | OpCode::SetAcl, DecodeError::NullString) => {
                    Some(ErrorCode::BadArguments)
                }
                (_, DecodeError::NullString) => Some(ErrorCode::MarshallingError),
                _ => {
                    waiting.answer = Answer::Error { after, error: ErrorCode::MarshallingError };
                    self.local_writes.push(waiting);
                    return;
                }
            },
        };
        self.local_writes.push(waiting);
        let refusal = self.may_write(state, session, Owner::Here).err().or(refusal);
        match (request, refusal) {
            (Ok(request), None) => {
                self.propose(now, state, session, xid.0, identity, &request, out);
            }
            (_, refusal) => {
                let error = refusal.unwrap_or(ErrorCode::MarshallingError);
                self.propose_error(now, session, xid.0, error);
            }
        }
    }

    /// Wakes the connections that have waited longest for the request throttle, so that their tasks
    /// check whether the request has become too late. The others are checked when they are among
    /// the first.
    pub(super) fn look_at_line(&mut self, now: Now) {
        let Some(throttle) = &self.db.request_throttle else { return };
        if now.mono_ms < self.next_look_ms {
            return;
        }
        self.next_look_ms = now.mono_ms + throttle.config.look_interval_ms;
        for conn in throttle.first(LOOK_MAX) {
            let mut inner = conn.lock();
            self.wakes.add(&conn, &mut inner);
        }
    }

    /// Records that one request fewer is in progress.
    pub(super) fn request_done(&mut self) {
        self.db.outstanding.fetch_sub(1, Relaxed);
        self.pass_slot();
    }

    /// Passes a free slot of the request throttle to the next connection in its queue. The caller
    /// must not hold the lock of a connection.
    fn pass_slot(&mut self) {
        let Some(throttle) = &self.db.request_throttle else { return };
        while let Some(conn) = throttle.leave() {
            let mut inner = conn.lock();
            if !inner.is_gone() {
                inner.turnstile.grant();
                self.wakes.add(&conn, &mut inner);
                return;
            }
        }
    }

    /// Returns whether a request is dropped because its client has disconnected. All later requests
    /// of the same connection are dropped as well: none may be executed after a gap.
    fn drops(&self, conn: &Conn, op: OpCode) -> bool {
        let Some(throttle) = &self.db.request_throttle else { return false };
        let mut inner = conn.lock();
        let is_stale = throttle.config.stale_when_gone
            && inner.is_gone()
            // A closeSession is executed after a disconnect: it cleans up.
            && (op != OpCode::CloseSession || inner.turnstile.dropped);
        let stats = &self.db.stats.throttle;
        match (is_stale, throttle.config.drop_stale) {
            (false, _) => {}
            (true, false) => drop(stats.stale_requests.fetch_add(1, Relaxed)),
            (true, true) => {
                inner.turnstile.dropped = true;
                stats.stale_requests_dropped.fetch_add(1, Relaxed);
            }
        }
        is_stale && throttle.config.drop_stale
    }
}
