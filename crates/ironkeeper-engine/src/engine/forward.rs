//! Requests that a learner forwards to its leader.
//!
//! A learner decodes the requests of its clients. It rejects a malformed one itself, in the order
//! of replies, without forwarding it. Every other request returns as a transaction with the session
//! and cxid of the request or, for a sync, as a reply of the leader that follows all transactions
//! it depends on.

use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::{ForwardedRequest, LeaderMessage, LearnerMessage};
use ironkeeper_proto::{DecodeError, ErrorCode, OpCode, Reader, Request, SessionId, Zxid};
use ironkeeper_zab::LinkId;

use super::Engine;
use super::sessions::{Owner, Standing};
use crate::auth::Identity;
use crate::conn::CloseReason;
use crate::io::Output;
use crate::local_writes::{Answer, Waiting};
use crate::time::Now;

impl Engine {
    /// Forwards a write or a sync of a learner's client.
    pub(super) fn forward_write(
        &mut self,
        mut waiting: Waiting,
        request: &Result<Request<'_>, DecodeError>,
        body: &Bytes,
        identity: &Arc<Identity>,
    ) {
        let forwarded = ForwardedRequest {
            session: waiting.session,
            cxid: waiting.xid.0,
            op: waiting.op.code(),
            body: body.clone(),
            auth: Some(identity.for_leader()),
        };
        // The leader would close the link at a packet that it cannot decode, which affects all
        // clients.
        let is_readable = forwarded.is_readable(self.db.config.field_bytes_max);
        match request {
            Ok(_) if !is_readable => return self.refuse_malformed(waiting),
            Err(_) => return self.refuse_malformed(waiting),
            Ok(Request::Sync { path }) => {
                let path = path.as_deref().map(str::to_owned);
                waiting.answer = Answer::Sync { path };
            }
            Ok(_) => {}
        }
        let message = LearnerMessage::Request(Box::new(forwarded));
        if self.zab.send_to_leader(message, &mut self.zab_out) {
            self.local_writes.push(waiting);
        } else {
            waiting.conn.cut(CloseReason::NotServing, &mut self.wakes);
            self.request_done();
        }
    }

    /// Rejects the request in the order of replies, without the leader.
    fn refuse_malformed(&mut self, mut waiting: Waiting) {
        let error = ErrorCode::MarshallingError;
        waiting.answer = Answer::Error { after: Zxid::ZERO, error };
        self.local_writes.push(waiting);
    }

    pub(super) fn forward_open(&mut self, session: SessionId, timeout_ms: i32) {
        self.forward_own(session, OpCode::CreateSession, &timeout_ms.to_be_bytes());
    }

    /// Forwards a request of the learner itself for a session. If the link to the leader has just
    /// closed, all client connections are about to be closed as well.
    pub(super) fn forward_own(&mut self, session: SessionId, op: OpCode, body: &[u8]) {
        let body = Bytes::copy_from_slice(body);
        let request = ForwardedRequest { session, cxid: 0, op: op.code(), body, auth: None };
        let message = LearnerMessage::Request(Box::new(request));
        self.zab.send_to_leader(message, &mut self.zab_out);
    }

    /// Processes, on the leader, a request of a learner's client.
    pub(super) fn on_forwarded(
        &mut self,
        now: Now,
        link: LinkId,
        request: &ForwardedRequest,
        out: &mut Vec<Output>,
    ) {
        let db = Arc::clone(&self.db);
        let state = db.read();
        let ForwardedRequest { session, cxid, ref body, .. } = *request;
        let reader = Reader::with_limit(body, db.config.field_bytes_max);
        let owner = Owner::Learner(link);
        let error = match OpCode::from_code(request.op) {
            Some(OpCode::Sync) => {
                let reply = LeaderMessage::Synced;
                return self.zab.reply_confirmed(Some(link), reply, &mut self.zab_out);
            }
            // A server closes and renews only the sessions that it owns.
            Some(OpCode::CloseSession) => match self.may_write(&state, session, owner) {
                Ok(()) => return self.propose_close(now, &state, session, cxid, out),
                Err(error) => error,
            },
            Some(OpCode::CreateSession) => match Reader::new(body).i32() {
                Ok(timeout_ms) => match self.standing(&state, session) {
                    Standing::Local => ErrorCode::SessionExpired,
                    Standing::Global if self.may_write(&state, session, owner).is_err() => {
                        ErrorCode::SessionMoved
                    }
                    Standing::Global | Standing::Elsewhere | Standing::Gone => {
                        self.sessions.set_owner(session, owner);
                        return self.propose_open(now, session, timeout_ms);
                    }
                },
                Err(_) => ErrorCode::MarshallingError,
            },
            Some(op) => match self.may_write(&state, session, owner) {
                Err(error) => error,
                Ok(()) => match Request::decode(op, reader) {
                    Ok(decoded) => {
                        let identity = Identity::of_learner(request.auth.as_ref());
                        return self.propose(now, &state, session, cxid, &identity, &decoded, out);
                    }
                    Err(_) => ErrorCode::MarshallingError,
                },
            },
            None => ErrorCode::Unimplemented,
        };
        // In every case a client waits for a transaction with this cxid.
        self.propose_error(now, session, cxid, error);
    }
}
