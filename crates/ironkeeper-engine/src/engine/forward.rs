//! Requests on their way from a learner to its leader.
//!
//! A learner reads what its clients send as far as it has to: what cannot be read is answered on the
//! spot, in its turn, and never becomes the leader's problem. All the rest comes back as a
//! transaction with the session and number of the request, or, for a sync, as a word of the leader
//! that stands behind everything it depends on.

use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::ForwardedRequest;
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
    /// A learner's client wants to write, or a sync.
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
        // A packet that the leader would not read would cost all our clients the leader.
        let is_readable = forwarded.is_readable(self.db.config.field_bytes_max);
        match request {
            Ok(_) if !is_readable => return self.refuse_malformed(waiting),
            Err(_) => return self.refuse_malformed(waiting),
            Ok(Request::Sync { path }) => {
                let path = path.as_deref().map(str::to_owned);
                waiting.answer = Answer::Sync { after: None, path };
            }
            Ok(_) => {}
        }
        if self.zab.forward(forwarded, &mut self.zab_out) {
            self.local_writes.push(waiting);
        } else {
            waiting.conn.cut(CloseReason::NotServing, &mut self.wakes);
            self.request_done();
        }
    }

    /// Answers in its turn, without the leader.
    fn refuse_malformed(&mut self, mut waiting: Waiting) {
        let error = ErrorCode::MarshallingError;
        waiting.answer = Answer::Error { after: Zxid::ZERO, error };
        self.local_writes.push(waiting);
    }

    pub(super) fn forward_open(&mut self, session: SessionId, timeout_ms: i32) {
        self.forward_own(session, OpCode::CreateSession, &timeout_ms.to_be_bytes());
    }

    /// The learner itself wants something for a session. If the leader is gone this instant, then so
    /// are soon all connections.
    pub(super) fn forward_own(&mut self, session: SessionId, op: OpCode, body: &[u8]) {
        let body = Bytes::copy_from_slice(body);
        let request = ForwardedRequest { session, cxid: 0, op: op.code(), body, auth: None };
        self.zab.forward(request, &mut self.zab_out);
    }

    /// A leader hears what a learner's client wants.
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
            Some(OpCode::Sync) => return self.zab.sync(Some(link), &mut self.zab_out),
            // A server ends and renews only the sessions that speak through it.
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
                    _ => {
                        self.owners.insert(session, owner);
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
        // Whatever is wrong with it: somebody waits for a transaction with this number.
        self.propose_error(now, session, cxid, error);
    }
}
