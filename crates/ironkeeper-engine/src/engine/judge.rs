//! From a request to a transaction that is put up for agreement. Happens only where this server
//! leads, or is on its own.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use ironkeeper_proto::txn::{TxnDigest, TxnHeader, encode};
use ironkeeper_proto::{ErrorCode, OpCode, Put, Request, SessionId};

use super::Engine;
use super::sessions::Standing;
use crate::auth::Identity;
use crate::database::State;
use crate::io::Output;
use crate::overlay::Overlay;
use crate::planted::Place;
use crate::prepare::Prepare;
use crate::time::Now;

impl Engine {
    pub(super) fn propose_open(&mut self, now: Now, session: SessionId, timeout_ms: i32) {
        self.opening.insert(session);
        self.propose_with(now, session, 0, |_, scratch| {
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

    /// Ends a session even if nothing is left of it but its nodes.
    pub(super) fn close_anyway(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        out: &mut Vec<Output>,
    ) {
        self.closing.insert(session);
        let identity = Arc::clone(&self.server_identity);
        self.judge(now, state, session, cxid, &identity, out, |prepare, scratch| {
            Ok(prepare.close_session(scratch))
        });
    }

    /// A refusal is a transaction, too: whoever waits for it, here or elsewhere, hears of it in turn.
    pub(super) fn propose_error(
        &mut self,
        now: Now,
        session: SessionId,
        cxid: i32,
        error: ErrorCode,
    ) {
        self.propose_with(now, session, cxid, |_, _| Err(error));
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
        let zxid = self.zab.next_zxid();
        let ephemerals = self.may_own_nodes(state, session);
        let mut warnings = std::mem::take(&mut self.quota_warnings);
        self.propose_with(now, session, cxid, |overlay, scratch| {
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

    /// Builds the transaction from whatever the verdict is and puts it up for agreement.
    pub(super) fn propose_with(
        &mut self,
        now: Now,
        session: SessionId,
        cxid: i32,
        verdict: impl FnOnce(&mut Overlay, &mut Vec<u8>) -> Result<OpCode, ErrorCode>,
    ) {
        if !self.zab.accepts_proposals() {
            // The ids of the epoch are used up: our time as a leader ends any moment now, and with it
            // every connection that waits for an answer.
            return;
        }
        let zxid = self.zab.next_zxid();
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.resize(TxnHeader::ENCODED_LEN, 0);
        let op = match verdict(&mut self.overlay, &mut scratch) {
            Ok(op) => {
                // Behind a closeSession that lists nothing Apache would take a digest for the list.
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
        if self.is_member() {
            self.db.stats.proposal_size.note(scratch.len());
        }
        self.zab.propose(zxid, Bytes::copy_from_slice(&scratch), &mut self.zab_out);
        self.scratch = scratch;
    }
}

/// Writes over the head of a buffer.
struct HeadWriter<'a>(&'a mut [u8], usize);

impl Put for HeadWriter<'_> {
    fn put_raw(&mut self, bytes: &[u8]) {
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
    }
}
