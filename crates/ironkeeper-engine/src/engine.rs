//! The engine: the one owner of every decision.
//!
//! Inputs go in, outputs come out, in order. Whoever drives it (the server's threads, the simulator)
//! calls [`Engine::step`] with what arrived, [`Engine::settle`] to make committed transactions
//! visible, and performs the outputs.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use ironkeeper_proto::connect::ConnectResponse;
use ironkeeper_proto::reply::{self, MultiHeader};
use ironkeeper_proto::txn::{FullTxn, MultiTxn, TxnDigest, TxnHeader, encode};
use ironkeeper_proto::{
    AclVec, DecodeError, ErrorCode, OpCode, Put, Reader, Request, SessionId, Txn, Xid, Zxid,
};
use ironkeeper_tree::{AclList, Applied, SnapshotWalk, Tree};
use ironkeeper_zab::Zab;

use crate::auth::Identity;
use crate::config::EngineConfig;
use crate::conn::{CloseReason, Conn, Inner, Submit, SubmitKind, Wakes};
use crate::containers::Reaper;
use crate::database::{Database, Hasher, Serving, State};
use crate::expiry::Expiry;
use crate::gate::CoreToken;
use crate::io::{Input, MemberStart, Output};
use crate::local_writes::{Answer, LocalWrites, Waiting};
use crate::overlay::Overlay;
use crate::prepare::Prepare;
use crate::quota_warnings::QuotaWarnings;
use crate::reads::Reads;
use crate::recover::Recovered;
use crate::request_throttle::TurnState;
use crate::snapshot::SnapshotJob;
use crate::stats::LastOp;
use crate::time::Now;
use crate::watch::Firing;

/// Transactions applied during one exclusive hold of the gate; then readers get their turn.
const APPLY_BATCH_MAX: usize = 64;
/// However large the tree is, a snapshot is taken after this many times the configured number of
/// transactions.
const SNAPSHOT_COUNTS_MAX: u64 = 10;
/// Requests judged during one shared hold.
const PREPARE_BATCH_MAX: usize = 64;
/// Those who wait for the request throttle and are looked at in one go.
const LOOK_MAX: usize = 64;

/// See the head of this file.
#[derive(Debug)]
pub struct Engine {
    db: Arc<Database>,
    token: CoreToken,
    zab: Zab,
    overlay: Overlay,
    local_writes: LocalWrites,
    expiry: Expiry,
    reaper: Reaper,
    /// The connection through which a session is served here.
    attached: HashMap<SessionId, Arc<Conn>, Hasher>,
    /// Sessions whose end is proposed but not yet applied.
    closing: HashSet<SessionId, Hasher>,
    next_session: i64,
    committed: VecDeque<Bytes>,
    wakes: Wakes,
    open_acl: Arc<AclList>,
    server_identity: Arc<Identity>,
    quota_warnings: QuotaWarnings,
    snapshots: SnapshotSchedule,
    /// When those who wait for the request throttle are to be looked at.
    next_look_ms: u64,
    /// Where records are built before they get their final, shared home.
    scratch: Vec<u8>,
    zab_out: Vec<ironkeeper_zab::Output>,
}

impl Engine {
    /// A server on its own, starting from what was recovered.
    pub fn new(
        config: EngineConfig,
        recovered: Recovered,
        seed: u64,
        now: Now,
    ) -> (Engine, Arc<Database>) {
        let zab = Zab::solo(recovered.tree.last_zxid());
        Engine::with_zab(config, recovered, zab, seed, now)
    }

    /// A member of an ensemble, starting from what was recovered.
    pub fn member(
        config: EngineConfig,
        recovered: Recovered,
        member: MemberStart,
        seed: u64,
        now: Now,
    ) -> (Engine, Arc<Database>) {
        let MemberStart { me, settings, ensemble, recovered: log } = member;
        let zab = Zab::member(me, settings, ensemble, log, seed);
        let (engine, db) = Engine::with_zab(config, recovered, zab, seed, now);
        db.set_serving(Serving::No);
        (engine, db)
    }

    fn with_zab(
        config: EngineConfig,
        recovered: Recovered,
        zab: Zab,
        seed: u64,
        now: Now,
    ) -> (Engine, Arc<Database>) {
        let hasher = Hasher::with_seed(config.tree.hash_seed);
        let mut expiry = Expiry::new(config.tick_ms, hasher.clone());
        // Nobody could give a sign of life while the server was down.
        for (session, timeout_ms) in recovered.sessions.sorted() {
            expiry.track(session, timeout_ms, now.mono_ms);
        }
        let reaper = Reaper::new(config.container, now);
        let snapshots = SnapshotSchedule::new(&config, &recovered.tree, seed);
        let overlay = Overlay::new(recovered.tree.digest(), hasher.clone());
        let next_session = first_session(config.server_id, now.wall_ms);
        let mismatches = recovered.digest_mismatches;
        let (db, token) =
            Database::new(config, recovered.tree, recovered.sessions, recovered.digests, seed, now);
        db.stats.digest_mismatches.store(mismatches, Relaxed);
        let db = Arc::new(db);
        let engine = Engine {
            db: Arc::clone(&db),
            token,
            zab,
            overlay,
            local_writes: LocalWrites::default(),
            expiry,
            reaper,
            attached: HashMap::with_hasher(hasher.clone()),
            closing: HashSet::with_hasher(hasher),
            next_session,
            committed: VecDeque::new(),
            wakes: Wakes::default(),
            open_acl: Arc::new(AclList::new(AclVec::OPEN)),
            server_identity: Identity::server(),
            quota_warnings: QuotaWarnings::default(),
            snapshots,
            next_look_ms: now.mono_ms,
            scratch: Vec::new(),
            zab_out: Vec::new(),
        };
        (engine, db)
    }

    /// Takes in everything that arrived, in order.
    pub fn step(&mut self, now: Now, inputs: &mut Vec<Input>, out: &mut Vec<Output>) {
        let db = Arc::clone(&self.db);
        let mut inputs = inputs.drain(..).peekable();
        while inputs.peek().is_some() {
            // One shared hold for many judgements; nothing in here opens the gate again.
            let state = db.read();
            for input in inputs.by_ref().take(PREPARE_BATCH_MAX) {
                match input {
                    Input::Submit(submit) => self.on_submit(now, &state, submit, out),
                    Input::Flushed(zxid) => {
                        self.zab.on_flushed(zxid, &mut self.zab_out);
                        self.take_zab_outputs(out);
                    }
                    Input::SnapshotDone(walk) => self.snapshots.finished = Some(walk),
                    Input::Peer(input) => {
                        self.zab.step(now.mono_ms, input, &mut self.zab_out);
                        self.take_zab_outputs(out);
                    }
                    Input::Rebuilt { done, .. } => {
                        let input = ironkeeper_zab::Input::Done(done);
                        self.zab.step(now.mono_ms, input, &mut self.zab_out);
                        self.take_zab_outputs(out);
                    }
                    Input::SnapshotSent(walk) => drop(walk),
                    Input::TakeSnapshot => self.snapshots.wanted = true,
                    Input::ExpireSession(session) => {
                        if self.is_open(&state, session) {
                            self.expiry.forget(session);
                            self.expire(now, &state, session, out);
                        }
                    }
                }
            }
        }
    }

    /// Expires sessions and containers whose time has come.
    pub fn on_timer(&mut self, now: Now, out: &mut Vec<Output>) {
        let db = Arc::clone(&self.db);
        let state = db.read();
        for session in self.expiry.expire(now.mono_ms) {
            self.expire(now, &state, session, out);
        }
        while let Some(path) = self.reaper.next(now, &state.tree) {
            let request = Request::DeleteContainer { path: path.into() };
            let identity = Arc::clone(&self.server_identity);
            self.propose(now, &state, SessionId::NONE, 0, &identity, &request, out);
        }
        self.look_at_line(now);
    }

    /// When [`Engine::on_timer`] has something to do next.
    pub fn deadline_ms(&self) -> u64 {
        let throttle = self.db.request_throttle.as_ref();
        let look = throttle.filter(|throttle| throttle.waiting() > 0).map(|_| self.next_look_ms);
        let deadlines = [Some(self.reaper.deadline_ms()), self.expiry.deadline_ms(), look];
        deadlines.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Lets those who have waited longest for the request throttle see whether it is still worth
    /// it. The others come to it when they are among the first.
    fn look_at_line(&mut self, now: Now) {
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

    /// One request less is in work.
    fn request_done(&mut self) {
        self.db.outstanding.fetch_sub(1, Relaxed);
        self.pass_slot();
    }

    /// A slot of the request throttle is free: the next in line gets it. No connection may be
    /// locked here.
    fn pass_slot(&mut self) {
        let Some(throttle) = &self.db.request_throttle else { return };
        while let Some(conn) = throttle.leave() {
            let mut inner = conn.lock();
            if !inner.is_gone() {
                inner.turn.state = TurnState::Granted;
                self.wakes.add(&conn, &mut inner);
                return;
            }
        }
    }

    /// Whether a request is given up because its client has gone away. What follows it on the same
    /// connection goes the same way, whatever it is: nothing may be executed behind a gap.
    fn drops(&self, conn: &Conn, op: OpCode) -> bool {
        let Some(throttle) = &self.db.request_throttle else { return false };
        let mut inner = conn.lock();
        let is_stale = throttle.config.stale_when_gone
            && inner.is_gone()
            // The end of a session may outlive the connection: it cleans up.
            && (op != OpCode::CloseSession || inner.turn.dropped);
        let stats = &self.db.stats.throttle;
        match (is_stale, throttle.config.drop_stale) {
            (false, _) => {}
            (true, false) => drop(stats.stale_requests.fetch_add(1, Relaxed)),
            (true, true) => {
                inner.turn.dropped = true;
                stats.stale_requests_dropped.fetch_add(1, Relaxed);
            }
        }
        is_stale && throttle.config.drop_stale
    }

    /// Sessions by the moment at which they end if they stay silent, for the administrator.
    pub fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    /// How many requests wait for their answer.
    pub fn outstanding(&self) -> usize {
        self.local_writes.len()
    }

    /// The last transaction proposed; all of them are in the log thread's hands.
    pub fn last_proposed(&self) -> Zxid {
        self.zab.last_proposed()
    }

    fn take_zab_outputs(&mut self, out: &mut Vec<Output>) {
        for output in self.zab_out.drain(..) {
            match output {
                ironkeeper_zab::Output::Append { zxid, txn } => {
                    self.snapshots.note_append(txn.len());
                    out.push(Output::Append { zxid, txn });
                }
                ironkeeper_zab::Output::Commit { txn, .. } => self.committed.push_back(txn),
                other => out.push(Output::Peer(other)),
            }
        }
    }

    fn on_submit(&mut self, now: Now, state: &State, submit: Submit, out: &mut Vec<Output>) {
        let Submit { conn, received_ms, kind } = submit;
        match kind {
            SubmitKind::OpenSession { timeout_ms } => {
                let session = self.allot_session(state);
                self.local_writes.push(Waiting {
                    conn,
                    session,
                    xid: Xid(0),
                    op: OpCode::CreateSession,
                    received_ms,
                    answer: Answer::Txn,
                    _permit: None,
                });
                let record = |scratch: &mut Vec<u8>| {
                    encode::create_session(timeout_ms, scratch);
                    Ok(OpCode::CreateSession)
                };
                self.propose_with(now, session, 0, out, |_, scratch| record(scratch));
            }
            SubmitKind::AttachSession { session, password, timeout_ms } => {
                self.attach(now, state, &conn, session, password, timeout_ms);
                self.db.outstanding.fetch_sub(1, Relaxed);
            }
            SubmitKind::Write { session, xid, op, body, identity, permit } => {
                if self.drops(&conn, op) {
                    self.request_done();
                    return;
                }
                let (answer, _permit) = (Answer::Txn, permit);
                let waiting = Waiting { conn, session, xid, op, received_ms, answer, _permit };
                self.on_write(now, state, waiting, &body, &identity, out);
            }
            SubmitKind::Refuse { session, xid, op, error } => {
                let answer = Answer::Error { after: self.zab.last_proposed(), error };
                let _permit = None;
                let waiting = Waiting { conn, session, xid, op, received_ms, answer, _permit };
                self.local_writes.push(waiting);
            }
            SubmitKind::Disconnected { session, has_slot } => {
                if has_slot {
                    self.pass_slot();
                }
                if self.attached.get(&session).is_some_and(|held| Arc::ptr_eq(held, &conn)) {
                    self.attached.remove(&session);
                }
            }
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
        let after = self.zab.last_proposed();
        let reader = Reader::with_limit(body, self.db.config.field_bytes_max);
        let request = Request::decode(waiting.op, reader);
        let refusal = match &request {
            Ok(Request::Sync { path }) => {
                let path = path.as_deref().map(str::to_owned);
                waiting.answer = Answer::Sync { after, path };
                self.local_writes.push(waiting);
                return;
            }
            Ok(Request::CloseSession) => {
                self.local_writes.push(waiting);
                self.propose_close(now, state, session, xid.0, out);
                return;
            }
            Ok(_) => None,
            // Which malformed writes use up a transaction id is Apache's choice; clients can see it.
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
        let refusal = match self.is_open(state, session) {
            true => refusal,
            false => Some(ErrorCode::SessionExpired),
        };
        match (request, refusal) {
            (Ok(request), None) => {
                self.propose(now, state, session, xid.0, identity, &request, out);
            }
            (_, refusal) => {
                let error = refusal.unwrap_or(ErrorCode::MarshallingError);
                self.propose_with(now, session, xid.0, out, |_, _| Err(error));
            }
        }
    }

    fn is_open(&self, state: &State, session: SessionId) -> bool {
        state.sessions.contains(session) && !self.closing.contains(&session)
    }

    fn allot_session(&mut self, state: &State) -> SessionId {
        loop {
            let session = SessionId(self.next_session);
            self.next_session = self.next_session.wrapping_add(1);
            if !state.sessions.contains(session) {
                return session;
            }
        }
    }

    fn attach(
        &mut self,
        now: Now,
        state: &State,
        conn: &Arc<Conn>,
        session: SessionId,
        password: [u8; 16],
        timeout_ms: i32,
    ) {
        self.db.stats.revalidations.fetch_add(1, Relaxed);
        // The password comes first: without it nobody may disturb the session's owner.
        let accepted = password == session.password() && self.is_open(state, session);
        if accepted
            && let Some(held) = self.attached.insert(session, Arc::clone(conn))
            && !Arc::ptr_eq(&held, conn)
        {
            let mut inner = held.lock();
            inner.close_after_flush(CloseReason::SessionMoved);
            self.wakes.add(&held, &mut inner);
        }
        let mut inner = conn.lock();
        if inner.is_gone() {
            return;
        }
        inner.lane.pop_write(Xid(0));
        let read_only = inner.sent_read_only.then_some(false);
        let response = if accepted {
            let clock = self.expiry.track(session, timeout_ms, now.mono_ms);
            inner.open(session, timeout_ms, clock);
            ConnectResponse { timeout_ms, session, password, read_only }
        } else {
            inner.close_after_flush(CloseReason::SessionRefused);
            ConnectResponse::refused(read_only)
        };
        put_connect_response(&response, &mut inner);
        inner.stats.packets_sent += 1;
        self.db.stats.packets_sent.fetch_add(1, Relaxed);
        self.wakes.add(conn, &mut inner);
    }

    fn expire(&mut self, now: Now, state: &State, session: SessionId, out: &mut Vec<Output>) {
        self.db.stats.sessions_expired.fetch_add(1, Relaxed);
        self.propose_close(now, state, session, 0, out);
    }

    fn propose_close(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        out: &mut Vec<Output>,
    ) {
        if !self.is_open(state, session) {
            self.propose_with(now, session, cxid, out, |_, _| Err(ErrorCode::SessionExpired));
            return;
        }
        self.closing.insert(session);
        let identity = Arc::clone(&self.server_identity);
        self.judge(now, state, session, cxid, &identity, out, |prepare, scratch| {
            Ok(prepare.close_session(scratch))
        });
    }

    #[expect(clippy::too_many_arguments, reason = "who, when and what of one request")]
    fn propose(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        cxid: i32,
        identity: &Arc<Identity>,
        request: &Request<'_>,
        out: &mut Vec<Output>,
    ) {
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
        identity: &Arc<Identity>,
        out: &mut Vec<Output>,
        verdict: impl FnOnce(&mut Prepare<'_>, &mut Vec<u8>) -> Result<OpCode, ErrorCode>,
    ) {
        let db = Arc::clone(&self.db);
        let open_acl = Arc::clone(&self.open_acl);
        let zxid = self.zab.next_zxid();
        let mut warnings = std::mem::take(&mut self.quota_warnings);
        self.propose_with(now, session, cxid, out, |overlay, scratch| {
            let mut prepare = Prepare {
                config: &db.config,
                stats: &db.stats,
                warnings: &mut warnings,
                tree: &state.tree,
                overlay,
                open_acl: &open_acl,
                session,
                identity,
                zxid,
                time: now.wall_ms,
            };
            verdict(&mut prepare, scratch)
        });
        out.extend(warnings.drain().map(Output::Warn));
        self.quota_warnings = warnings;
    }

    /// Builds the transaction from whatever the verdict is and puts it up for agreement.
    fn propose_with(
        &mut self,
        now: Now,
        session: SessionId,
        cxid: i32,
        out: &mut Vec<Output>,
        verdict: impl FnOnce(&mut Overlay, &mut Vec<u8>) -> Result<OpCode, ErrorCode>,
    ) {
        let zxid = self.zab.next_zxid();
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch.resize(TxnHeader::ENCODED_LEN, 0);
        let op = match verdict(&mut self.overlay, &mut scratch) {
            Ok(op) => {
                if self.db.config.digest_enabled {
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
        self.zab.propose(zxid, Bytes::copy_from_slice(&scratch), &mut self.zab_out);
        self.scratch = scratch;
        self.take_zab_outputs(out);
    }

    /// Makes committed transactions visible and answers those who wait, in bounded holds.
    pub fn settle(&mut self, now: Now, out: &mut Vec<Output>) {
        let db = Arc::clone(&self.db);
        while !self.committed.is_empty() || self.snapshots.needs_gate() {
            // What a finished snapshot kept is freed after the gate is open again.
            let _remains;
            let mut state = db.write(&mut self.token);
            for _ in 0..APPLY_BATCH_MAX {
                let Some(txn) = self.committed.pop_front() else { break };
                if let Err(error) = self.apply(now, &mut state, &txn) {
                    out.push(Output::Halt(error));
                    return;
                }
            }
            if let Some(walk) = self.snapshots.finished.take() {
                _remains = state.tree.end_snapshot(walk);
                self.snapshots.running = false;
            }
            if self.committed.is_empty() && self.snapshots.is_due() {
                self.snapshots.start(&state.tree);
                let walk = state.tree.begin_snapshot();
                let sessions = state.sessions.sorted();
                out.push(Output::Roll);
                out.push(Output::Snapshot(Box::new(SnapshotJob::new(walk, sessions))));
            }
        }
        if self.local_writes.len() > 0 {
            let state = db.read();
            self.answer_due(now, &state, state.applied());
        }
        out.extend(self.wakes.drain().map(Output::Wake));
    }

    fn apply(&mut self, now: Now, state: &mut State, txn: &Bytes) -> Result<(), String> {
        let full = FullTxn::decode(txn)
            .map_err(|error| format!("a committed transaction cannot be read: {error}"))?;
        let header = &full.header;
        let before = Zxid(header.zxid.0 - 1);
        self.answer_due(now, state, before);
        let waiting = self.local_writes.take_txn(header.session, header.cxid);
        if let Some(waiting) = &waiting {
            // Reads ahead of this write must not see it.
            let mut inner = waiting.conn.lock();
            Reads::new(&self.db, state, now).serve_waiting(&waiting.conn, &mut inner);
        }
        match &full.txn {
            Txn::CreateSession { timeout_ms } => state.sessions.open(header.session, *timeout_ms),
            Txn::CloseSession { .. } => {
                state.sessions.close(header.session);
                self.closing.remove(&header.session);
                self.expiry.forget(header.session);
            }
            _ => {}
        }
        let mut firing = Firing {
            table: &state.watches,
            config: &self.db.config,
            stats: &self.db.stats,
            zxid: header.zxid,
            wakes: &mut self.wakes,
        };
        let applied = state.tree.apply(header, &full.txn, &mut firing);
        if let Some(digest) = full.digest
            && digest.tree_digest != state.tree.digest()
        {
            debug_assert_eq!(digest.tree_digest, state.tree.digest(), "digest after {header:?}");
            self.db.stats.digest_mismatches.fetch_add(1, Relaxed);
        }
        state.digests.keep(&state.tree);
        self.db.stats.commits.fetch_add(1, Relaxed);
        // Negative if the wall clock was set back, or a leader's goes ahead of ours.
        if let Ok(taken_ms) = u64::try_from(now.wall_ms - header.time) {
            self.db.stats.propagation_latency.add(taken_ms);
        }
        self.overlay.applied(header.zxid);
        if let Some(waiting) = waiting {
            self.answer_txn(now, state, &waiting, &full, &applied);
        } else if let Txn::CreateSession { timeout_ms } = full.txn {
            self.expiry.track(header.session, timeout_ms, now.mono_ms);
        }
        if matches!(full.txn, Txn::CloseSession { .. })
            && let Some(conn) = self.attached.remove(&header.session)
        {
            let mut inner = conn.lock();
            let reason = match header.cxid {
                0 => CloseReason::SessionExpired,
                _ => CloseReason::SessionClosed,
            };
            inner.close_after_flush(reason);
            self.wakes.add(&conn, &mut inner);
        }
        Ok(())
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
                Answer::Txn => {}
            });
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
        if let Txn::CreateSession { timeout_ms } = full.txn {
            self.open_session(now, waiting, &full.header, timeout_ms);
            return;
        }
        let closes = matches!(full.txn, Txn::CloseSession { .. });
        // Apache does not get as far as naming the operation when it has failed.
        let op = match full.txn {
            Txn::Error { .. } => LastOp::NotApplicable,
            _ => LastOp::Op(waiting.op),
        };
        self.db.stats.update_latency.add(latency_ms(now, waiting));
        self.answer(now, state, waiting, zxid, op, |inner| {
            let out = inner.outbox.tail();
            put_txn_reply(out, waiting.xid, full, applied);
            if closes {
                inner.close_after_flush(CloseReason::SessionClosed);
            }
        });
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
        Reads::new(&self.db, state, now).serve_waiting(&waiting.conn, &mut inner);
        inner.lane.pop_write(waiting.xid);
        // Nothing is said after a last word: the reads before this were left out, and clients take
        // replies in the order of their requests.
        if !inner.is_open() {
            self.db.stats.throttle.stale_replies.fetch_add(1, Relaxed);
            return;
        }
        let before = inner.outbox.len();
        put(&mut inner);
        let latency_ms = latency_ms(now, waiting);
        inner.stats.note_reply(op, waiting.xid, zxid, now.mono_ms, latency_ms);
        self.db.stats.note_reply(inner.outbox.len().saturating_sub(before));
        self.wakes.add(&waiting.conn, &mut inner);
    }

    fn open_session(&mut self, now: Now, waiting: &Waiting, header: &TxnHeader, timeout_ms: i32) {
        let session = header.session;
        self.request_done();
        let latency_ms = latency_ms(now, waiting);
        self.db.stats.update_latency.add(latency_ms);
        let clock = self.expiry.track(session, timeout_ms, now.mono_ms);
        let mut inner = waiting.conn.lock();
        if inner.is_gone() {
            return;
        }
        inner.lane.pop_write(Xid(0));
        let password = session.password();
        let read_only = inner.sent_read_only.then_some(false);
        inner.open(session, timeout_ms, clock);
        put_connect_response(
            &ConnectResponse { timeout_ms, session, password, read_only },
            &mut inner,
        );
        let op = LastOp::Op(OpCode::CreateSession);
        inner.stats.note_reply(op, Xid(0), header.zxid, now.mono_ms, latency_ms);
        self.db.stats.packets_sent.fetch_add(1, Relaxed);
        self.wakes.add(&waiting.conn, &mut inner);
        drop(inner);
        self.attached.insert(session, Arc::clone(&waiting.conn));
    }
}

fn latency_ms(now: Now, waiting: &Waiting) -> u64 {
    now.mono_ms.saturating_sub(waiting.received_ms)
}

/// The first id of a server's life: its number, then 40 bits of time, then room for counting.
fn first_session(server_id: u8, wall_ms: i64) -> i64 {
    let time = ((wall_ms << 24) as u64 >> 8) as i64;
    let first = (i64::from(server_id) << 56) | time;
    // The one id that would read as the mark of a container.
    if first == ironkeeper_proto::stat::CONTAINER_OWNER { first + 1 } else { first }
}

fn put_connect_response(response: &ConnectResponse, inner: &mut Inner) {
    let out = inner.outbox.tail();
    let start = out.len();
    out.put_i32(0);
    response.encode(out);
    reply::finish_frame(out, start);
}

fn put_txn_reply(out: &mut Vec<u8>, xid: Xid, full: &FullTxn<'_>, applied: &Applied) {
    let zxid = full.header.zxid;
    if let Txn::Error { code } = full.txn {
        return reply::header_frame(out, xid, zxid, ErrorCode::from_code(code));
    }
    let start = reply::start_frame(out, xid, zxid);
    match &full.txn {
        Txn::Multi(multi) => put_multi_results(out, *multi, applied),
        txn => put_result(out, full.header.op, txn, applied),
    }
    reply::finish_frame(out, start);
}

/// The body of one operation's reply.
fn put_result(out: &mut Vec<u8>, op: OpCode, txn: &Txn<'_>, applied: &Applied) {
    if let Txn::Create(create) = txn {
        out.put_str(&create.path);
    }
    if op != OpCode::Create
        && let Some(stat) = &applied.stat
    {
        stat.encode(out);
    }
}

fn put_multi_results(out: &mut Vec<u8>, multi: MultiTxn<'_>, applied: &Applied) {
    let failed = multi.failed();
    for (at, (op, part)) in multi.iter().enumerate() {
        if failed {
            let code = match part {
                Txn::Error { code } => code,
                _ => 0,
            };
            MultiHeader { kind: OpCode::Error.code(), done: false, err: code }.encode(out);
            out.put_i32(code);
            continue;
        }
        // Containers and TTL nodes are answered like create2.
        let kind = match op {
            OpCode::CreateContainer | OpCode::CreateTtl => OpCode::Create2,
            other => other,
        };
        MultiHeader { kind: kind.code(), done: false, err: 0 }.encode(out);
        if let Some(applied) = applied.parts.get(at) {
            put_result(out, op, &part, applied);
        }
    }
    MultiHeader::END.encode(out);
}

/// Writes over the head of a buffer.
struct HeadWriter<'a>(&'a mut [u8], usize);

impl Put for HeadWriter<'_> {
    fn put_raw(&mut self, bytes: &[u8]) {
        self.0[self.1..self.1 + bytes.len()].copy_from_slice(bytes);
        self.1 += bytes.len();
    }
}

/// What a tree takes in a snapshot, about: path, data, and what each node has besides.
fn snapshot_bytes(tree: &Tree) -> u64 {
    const NODE_BYTES: usize = 76;
    (tree.data_bytes() + tree.node_count() * NODE_BYTES) as u64
}

/// When the next snapshot is taken. The limits are drawn anew each time from their upper halves, so
/// that the servers of an ensemble do not all do it at once.
#[derive(Debug)]
struct SnapshotSchedule {
    snap_count: u64,
    snap_bytes: Option<u64>,
    random: u64,
    /// The size of the last snapshot, about.
    last_bytes: u64,
    count_limit: u64,
    bytes_limit: u64,
    count: u64,
    bytes: u64,
    wanted: bool,
    running: bool,
    finished: Option<SnapshotWalk>,
}

impl SnapshotSchedule {
    fn new(config: &EngineConfig, tree: &Tree, seed: u64) -> SnapshotSchedule {
        let mut schedule = SnapshotSchedule {
            snap_count: config.snap_count.max(2),
            snap_bytes: config.snap_bytes,
            random: seed | 1,
            last_bytes: snapshot_bytes(tree),
            count_limit: 0,
            bytes_limit: 0,
            count: 0,
            bytes: 0,
            wanted: false,
            running: false,
            finished: None,
        };
        schedule.draw();
        schedule
    }

    fn draw(&mut self) {
        self.count_limit = self.upper_half(self.snap_count);
        self.bytes_limit = self.snap_bytes.map_or(u64::MAX, |bytes| self.upper_half(bytes));
    }

    fn upper_half(&mut self, whole: u64) -> u64 {
        // Xorshift: any spread will do.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        whole / 2 + self.random % (whole / 2).max(1)
    }

    fn note_append(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
    }

    /// A large tree is not written down again for every few transactions: the log since the last
    /// snapshot should be as long as that snapshot. So a growing tree is written down a number of
    /// times that grows with the logarithm of its size, and recovery reads at most twice its size.
    fn is_due(&self) -> bool {
        let worth_it = self.bytes > self.last_bytes
            || self.count > self.count_limit.saturating_mul(SNAPSHOT_COUNTS_MAX);
        let over = (self.count > self.count_limit && worth_it) || self.bytes > self.bytes_limit;
        !self.running && self.finished.is_none() && (over || self.wanted)
    }

    /// Whether [`Engine::settle`] must open the gate although nothing is committed.
    fn needs_gate(&self) -> bool {
        self.finished.is_some() || self.is_due()
    }

    fn start(&mut self, tree: &Tree) {
        self.last_bytes = snapshot_bytes(tree);
        self.running = true;
        self.wanted = false;
        self.count = 0;
        self.bytes = 0;
        self.draw();
    }
}
