//! Preparation of requests and proposal of the resulting transactions. Runs only on a leader or on
//! a standalone server.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use ironkeeper_proto::txn::{TxnDigest, TxnHeader, encode};
use ironkeeper_proto::{ErrorCode, OpCode, Put, Request, SessionId, Zxid};

use super::Engine;
use super::sessions::Standing;
use crate::auth::Identity;
use crate::io::Output;
use crate::overlay::Overlay;
use crate::planted::Place;
use crate::prepare::Prepare;
use crate::state::State;
use crate::time::Now;

impl Engine {
    pub(super) fn propose_open(&mut self, now: Now, session: SessionId, timeout_ms: i32) {
        self.sessions.note_opening(session);
        self.propose_with(now, session, 0, |_, _, scratch| {
            encode::create_session(timeout_ms, scratch);
            Ok(OpCode::CreateSession)
        });
    }

    pub(super) fn propose_close(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        out: &mut Vec<Output>,
    ) {
        if self.standing(state, session) != Standing::Global {
            return self.propose_error(now, session, cxid, ErrorCode::SessionExpired);
        }
        self.close_anyway(now, state, session, cxid, out);
    }

    /// Proposes closeSession, also for a session that is not in the session table and has only
    /// ephemeral nodes left.
    pub(super) fn close_anyway(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        out: &mut Vec<Output>,
    ) {
        self.sessions.note_closing(session);
        let identity = Arc::clone(&self.server_identity);
        self.judge(now, state, session, cxid, &identity, out, |prepare, scratch| {
            Ok(prepare.close_session(scratch))
        });
    }

    /// Proposes an error transaction. A rejected request becomes a transaction too, so that the
    /// server whose client waits for it, this one or a learner, sends the error in the order of
    /// replies.
    pub(super) fn propose_error(
        &mut self,
        now: Now,
        session: SessionId,
        cxid: i32,
        error: ErrorCode,
    ) {
        self.propose_with(now, session, cxid, |_, _, _| Err(error));
    }

    #[expect(clippy::too_many_arguments, reason = "who, when and what of one request")]
    pub(super) fn propose(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        identity: &Identity,
        request: &Request<'_>,
        out: &mut Vec<Output>,
    ) {
        if let Request::Reconfig(change) = request {
            return self.propose_members(now, state, session, cxid, identity, change);
        }
        self.judge(now, state, session, cxid, identity, out, |prepare, scratch| {
            prepare.request(request, scratch)
        });
    }

    #[expect(clippy::too_many_arguments, reason = "who, when and what of one request")]
    fn judge(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        identity: &Identity,
        out: &mut Vec<Output>,
        verdict: impl FnOnce(&mut Prepare<'_>, &mut Vec<u8>) -> Result<OpCode, ErrorCode>,
    ) {
        let db = Arc::clone(&self.db);
        let open_acl = Arc::clone(&self.open_acl);
        let ephemerals = self.may_own_nodes(state, session);
        let mut warnings = std::mem::take(&mut self.quota_warnings);
        self.propose_with(now, session, cxid, |zxid, overlay, scratch| {
            let mut prepare = Prepare {
                config: &db.config,
                stats: &db.stats,
                warnings: &mut warnings,
                tree: &state.tree,
                overlay,
                open_acl: &open_acl,
                session,
                ephemerals,
                identity,
                zxid,
                time: now.wall_ms,
                bytes_max: db.config.field_bytes_max,
            };
            let verdict = verdict(&mut prepare, scratch);
            db.planted_panic.strike(Place::Judge);
            verdict
        });
        out.extend(warnings.drain().map(Output::Warn));
        self.quota_warnings = warnings;
    }

    /// Encodes the transaction, or an error transaction if `verdict` returns an error, and proposes
    /// it.
    pub(super) fn propose_with(
        &mut self,
        now: Now,
        session: SessionId,
        cxid: i32,
        verdict: impl FnOnce(Zxid, &mut Overlay, &mut Vec<u8>) -> Result<OpCode, ErrorCode>,
    ) {
        let is_member = self.is_member();
        // Without a proposer the zxids of the epoch are used up: this server is about to stop
        // leading and then closes every connection that waits for a reply.
        let Some(proposer) = self.zab.proposer() else { return };
        let zxid = proposer.zxid();
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.resize(TxnHeader::ENCODED_LEN, 0);
        let op = match verdict(zxid, &mut self.overlay, &mut scratch) {
            Ok(op) => {
                // After a closeSession without a list of paths Apache would decode a digest as that
                // list.
                let is_bare = op == OpCode::CloseSession
                    && self.db.config.close_session_lists_paths
                    && scratch.len() == TxnHeader::ENCODED_LEN;
                if self.db.config.digest_enabled && !is_bare {
                    let tree_digest = self.overlay.digest();
                    TxnDigest { version: TxnDigest::VERSION, tree_digest }.encode(&mut scratch);
                }
                op
            }
            Err(error) => {
                scratch.truncate(TxnHeader::ENCODED_LEN);
                encode::error(error.code(), &mut scratch);
                OpCode::Error
            }
        };
        let header = TxnHeader { session, cxid, zxid, time: now.wall_ms, op };
        let mut head = HeadWriter(&mut scratch, 0);
        header.encode(&mut head);
        self.db.stats.proposals.fetch_add(1, Relaxed);
        if is_member {
            self.db.stats.proposal_size.note(scratch.len());
        }
        proposer.propose(Bytes::copy_from_slice(&scratch), &mut self.zab_out);
        self.scratch = scratch;
    }
}

/// A writer that overwrites a buffer from its beginning.
struct HeadWriter<'a>(&'a mut [u8], usize);

impl Put for HeadWriter<'_> {
    fn put_raw(&mut self, bytes: &[u8]) {
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
    }
}
