//! Opening, moving and closing of sessions.
//!
//! A session is either *global* or *local*. A global session is opened and closed by transactions,
//! is known to all members, and is expired by the leader. A local session is known only to the
//! server that its client is connected to, and is lost with that server.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::connect::{ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerMessage};
use ironkeeper_proto::request::Create;
use ironkeeper_proto::{CreateMode, DecodeError, ErrorCode, OpCode, Request, SessionId, Xid, Zxid};
use ironkeeper_zab::LinkId;

pub(super) use crate::sessions::{Owner, Standing};

use super::Engine;
use super::replies::put_connect_response;
use super::role::Role;
use crate::config::LocalSessions;
use crate::conn::{CloseReason, Conn};
use crate::expiry::SessionClock;
use crate::io::{Output, SessionEnd};
use crate::local_writes::{Answer, Waiting};
use crate::sessions::{Attached, Revalidation, learner_clock};
use crate::state::State;
use crate::stats::LastOp;
use crate::time::Now;

impl Engine {
    pub(super) fn standing(&self, state: &State, session: SessionId) -> Standing {
        self.sessions.standing(&state.sessions, session)
    }

    /// Returns, on a leader, whether a session may write through `owner`. A global session without
    /// an owner gets this one.
    pub(super) fn may_write(
        &mut self,
        state: &State,
        session: SessionId,
        owner: Owner,
    ) -> Result<(), ErrorCode> {
        match self.standing(state, session) {
            Standing::Gone => Err(ErrorCode::SessionExpired),
            Standing::Global if self.is_member() && !self.sessions.claim(session, owner) => {
                Err(ErrorCode::SessionMoved)
            }
            Standing::Global | Standing::Local | Standing::Elsewhere => Ok(()),
        }
    }

    /// Returns, on a leader, whether a session may own ephemeral nodes.
    pub(super) fn may_own_nodes(&self, state: &State, session: SessionId) -> Result<(), ErrorCode> {
        if self.db.config.local_sessions == LocalSessions::Off {
            return Ok(());
        }
        match self.standing(state, session) {
            Standing::Global => Ok(()),
            Standing::Local => Err(ErrorCode::EphemeralOnLocalSession),
            Standing::Elsewhere | Standing::Gone => Err(ErrorCode::SessionExpired),
        }
    }

    /// Opens a new session for a client.
    pub(super) fn open(
        &mut self,
        now: Now,
        state: &State,
        conn: Arc<Conn>,
        received_ms: u64,
        timeout_ms: i32,
    ) {
        let refusal = match self.role {
            Role::Looking => Some(CloseReason::NotServing),
            Role::ReadOnly if !conn.lock().allows_read_only => Some(CloseReason::OnlyReads),
            _ => None,
        };
        if let Some(reason) = refusal {
            conn.cut(reason, &mut self.wakes);
            return self.request_done();
        }
        let is_local = self.role == Role::ReadOnly
            || self.is_member() && self.db.config.local_sessions != LocalSessions::Off;
        // A global session begins with a write. If the disk is full, the client would wait without
        // a reply; when its connection is closed it tries another server, and later this one again.
        if !is_local && self.db.disk_full.load(Relaxed) {
            conn.cut(CloseReason::DiskFull, &mut self.wakes);
            return self.request_done();
        }
        let session = self.sessions.next_id(&state.sessions);
        if is_local {
            self.request_done();
            let clock = self.sessions.local.track(session, timeout_ms, now.mono_ms);
            let latency_ms = now.mono_ms.saturating_sub(received_ms);
            let opened = Some((state.applied(), latency_ms));
            return self.welcome(now, &conn, session, timeout_ms, clock, opened);
        }
        self.local_writes.push(Waiting {
            conn,
            session,
            xid: Xid(0),
            op: OpCode::CreateSession,
            received_ms,
            answer: Answer::Txn { after: self.zab.appended() },
            _permit: None,
        });
        self.make_global(now, session, timeout_ms);
    }

    /// Proposes createSession, or forwards it to the leader.
    fn make_global(&mut self, now: Now, session: SessionId, timeout_ms: i32) {
        if self.role == Role::Leading {
            self.sessions.set_owner(session, Owner::Here);
            self.propose_open(now, session, timeout_ms);
        } else {
            self.forward_open(session, timeout_ms);
        }
    }

    /// Attaches a client to its existing session.
    pub(super) fn attach(
        &mut self,
        now: Now,
        state: &State,
        conn: &Arc<Conn>,
        session: SessionId,
        password: [u8; PASSWORD_LEN],
        timeout_ms: i32,
    ) {
        self.db.stats.revalidations.fetch_add(1, Relaxed);
        // The password is checked first: a client without it must not affect the session.
        if password != session.password() {
            return self.refuse(conn);
        }
        if self.sessions.local.contains(session) {
            let clock = self.sessions.local.track(session, timeout_ms, now.mono_ms);
            return self.welcome(now, conn, session, timeout_ms, clock, None);
        }
        match self.role {
            Role::Leading if self.standing(state, session) == Standing::Global => {
                self.sessions.set_owner(session, Owner::Here);
                let clock = self.sessions.global.track(session, timeout_ms, now.mono_ms);
                self.welcome(now, conn, session, timeout_ms, clock, None);
            }
            Role::Leading => {
                self.await_word(conn, session, timeout_ms);
                self.reply_unknown(None, session);
            }
            Role::Learning => {
                let message = LearnerMessage::Revalidate { session, timeout_ms };
                if self.zab.send_to_leader(message, &mut self.zab_out) {
                    self.await_word(conn, session, timeout_ms);
                } else {
                    conn.cut(CloseReason::NotServing, &mut self.wakes);
                }
            }
            Role::Looking | Role::ReadOnly => conn.cut(CloseReason::NotServing, &mut self.wakes),
        }
    }

    fn await_word(&mut self, conn: &Arc<Conn>, session: SessionId, timeout_ms: i32) {
        let waiting = Revalidation { conn: Arc::clone(conn), timeout_ms };
        self.sessions.await_revalidation(session, waiting);
    }

    /// Processes the leader's reply to the oldest revalidation of this session.
    pub(super) fn on_revalidated(&mut self, now: Now, session: SessionId, valid: bool) {
        let Some(waiting) = self.sessions.take_revalidation(session) else { return };
        let Revalidation { conn, timeout_ms } = waiting;
        if valid {
            let clock = learner_clock(now);
            self.welcome(now, &conn, session, timeout_ms, clock, None);
        } else {
            self.refuse(&conn);
        }
    }

    /// Processes a learner's request to revalidate a session. A valid session is owned by that
    /// learner from now on.
    pub(super) fn on_revalidate(
        &mut self,
        now: Now,
        link: LinkId,
        session: SessionId,
        timeout_ms: i32,
    ) {
        if self.standing(&self.db.read(), session) != Standing::Global {
            return self.reply_unknown(Some(link), session);
        }
        self.sessions.set_owner(session, Owner::Learner(link));
        self.sessions.global.track(session, timeout_ms, now.mono_ms);
        self.detach(session, CloseReason::SessionMoved);
        // The reply follows all transactions proposed so far. A client that starts its cxids again
        // could otherwise get, from the learner, the result of an older request that the session
        // sent to another server.
        let reply = LeaderMessage::Revalidated { session, valid: true };
        self.zab.reply_delivered(link, reply, &mut self.zab_out);
    }

    /// Replies on the leader that a session is unknown: to a learner if a link is given, else to a
    /// client of this server. The leadership is confirmed first, because a later leader could know
    /// the session.
    fn reply_unknown(&mut self, to: Option<LinkId>, session: SessionId) {
        let reply = LeaderMessage::Revalidated { session, valid: false };
        self.zab.reply_confirmed(to, reply, &mut self.zab_out);
    }

    /// Closes the local connection of a session.
    fn detach(&mut self, session: SessionId, reason: CloseReason) {
        if let Some(Attached { conn, .. }) = self.sessions.detach(session) {
            self.close_conn(&conn, reason);
        }
    }

    fn close_conn(&mut self, conn: &Arc<Conn>, reason: CloseReason) {
        let mut inner = conn.lock();
        inner.close_after_flush(reason);
        self.wakes.add(conn, &mut inner);
    }

    /// Accepts a client: attaches the session to this connection and closes its previous one.
    /// `opened` is set for a new session: the zxid and the latency of the reply.
    pub(super) fn welcome(
        &mut self,
        now: Now,
        conn: &Arc<Conn>,
        session: SessionId,
        timeout_ms: i32,
        clock: Arc<SessionClock>,
        opened: Option<(Zxid, u64)>,
    ) {
        let mut inner = conn.lock();
        if !inner.is_opening() {
            return;
        }
        inner.lane.pop_write(Xid(0));
        let is_read_only = self.role == Role::ReadOnly;
        let read_only = inner.sent_read_only.then_some(is_read_only);
        inner.open(session, timeout_ms, Arc::clone(&clock));
        let password = session.password();
        let response = ConnectResponse { timeout_ms, session, password, read_only };
        put_connect_response(&response, &mut inner);
        match opened {
            Some((zxid, latency_ms)) => {
                let op = LastOp::Op(OpCode::CreateSession);
                inner.stats.note_reply(op, Xid(0), zxid, now.mono_ms, latency_ms);
            }
            None => inner.stats.packets_sent += 1,
        }
        self.db.stats.packets_sent.fetch_add(1, Relaxed);
        self.wakes.add(conn, &mut inner);
        drop(inner);
        let attached = Attached { conn: Arc::clone(conn), clock, timeout_ms };
        if let Some(previous) = self.sessions.attach(session, attached) {
            self.close_conn(&previous, CloseReason::SessionMoved);
        }
    }

    /// Rejects a client: there is no such session, or the password is wrong.
    fn refuse(&mut self, conn: &Arc<Conn>) {
        let mut inner = conn.lock();
        if !inner.is_opening() {
            return;
        }
        inner.lane.pop_write(Xid(0));
        let read_only = inner.sent_read_only.then_some(self.role == Role::ReadOnly);
        inner.close_after_flush(CloseReason::SessionRefused);
        put_connect_response(&ConnectResponse::refused(read_only), &mut inner);
        inner.stats.packets_sent += 1;
        self.db.stats.packets_sent.fetch_add(1, Relaxed);
        self.wakes.add(conn, &mut inner);
    }

    /// Processes an applied createSession: accepts the client if it waits here, and starts to track
    /// the session on a leader.
    pub(super) fn on_opened(
        &mut self,
        now: Now,
        session: SessionId,
        timeout_ms: i32,
        zxid: Zxid,
        waiting: Option<Waiting>,
    ) {
        let leads = self.role == Role::Leading;
        let clock = self.sessions.opened(now, session, timeout_ms, leads);
        if let Some(waiting) = waiting {
            self.request_done();
            let latency_ms = now.mono_ms.saturating_sub(waiting.received_ms);
            self.db.stats.update_latency.add(latency_ms);
            let opened = Some((zxid, latency_ms));
            self.welcome(now, &waiting.conn, session, timeout_ms, clock, opened);
        }
    }

    /// Processes an applied closeSession; `cxid == 0` if the session expired.
    pub(super) fn on_closed(&mut self, session: SessionId, cxid: i32) {
        let reason = match cxid {
            0 => CloseReason::SessionExpired,
            _ => CloseReason::SessionClosed,
        };
        if let Some(Attached { conn, .. }) = self.sessions.closed(session) {
            self.close_conn(&conn, reason);
        }
    }

    /// Expires a session, on a leader.
    pub(super) fn expire(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        out: &mut Vec<Output>,
    ) {
        self.db.stats.sessions_expired.fetch_add(1, Relaxed);
        self.propose_close(now, state, session, 0, out);
    }

    /// Ends a session on behalf of the administrator.
    pub(super) fn end_session(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        out: &mut Vec<Output>,
    ) {
        if self.sessions.local.contains(session) {
            self.sessions.local.forget(session);
            return self.local_session_expired(session, out);
        }
        match self.role {
            Role::Leading if self.standing(state, session) == Standing::Global => {
                self.sessions.global.forget(session);
                self.expire(now, state, session, out);
            }
            Role::Learning if state.sessions.contains(session) => {
                self.forward_own(session, OpCode::CloseSession, &[]);
            }
            Role::Leading | Role::Learning | Role::Looking | Role::ReadOnly => {}
        }
    }

    // Local sessions.

    pub(super) fn local_session_expired(&mut self, session: SessionId, out: &mut Vec<Output>) {
        self.db.stats.sessions_expired.fetch_add(1, Relaxed);
        let timeout_ms = self.sessions.timeout_ms(session).unwrap_or(0);
        let client = self.sessions.forget_client(session);
        let end = SessionEnd { session, client, timeout_ms, ephemerals: 0, expired: true };
        out.push(Output::SessionEnded(Box::new(end)));
        self.detach(session, CloseReason::SessionExpired);
    }

    /// Checks a write of a local session. closeSession is completed here. A request for an
    /// ephemeral node upgrades the session to a global one or is rejected, depending on the
    /// configuration. All other writes proceed normally.
    pub(super) fn on_local_write(
        &mut self,
        now: Now,
        session: SessionId,
        request: &Result<Request<'_>, DecodeError>,
    ) -> Result<(), Answer> {
        let after = Zxid::ZERO;
        match request {
            Ok(Request::CloseSession) => {
                self.sessions.local.forget(session);
                Err(Answer::Closed { after })
            }
            Ok(request) if self.role != Role::ReadOnly && wants_ephemeral(request) => {
                if self.db.config.local_sessions == LocalSessions::Upgrading {
                    let timeout_ms = self.sessions.timeout_ms(session).unwrap_or(0);
                    self.sessions.local.forget(session);
                    self.make_global(now, session, timeout_ms);
                    return Ok(());
                }
                match request {
                    // The leader reports which operation of the multi failed.
                    Request::Multi(_) => Ok(()),
                    _ => Err(Answer::Error { after, error: ErrorCode::EphemeralOnLocalSession }),
                }
            }
            _ => Ok(()),
        }
    }
}

fn wants_ephemeral(request: &Request<'_>) -> bool {
    let is_ephemeral = |create: &Create<'_>| {
        let mode = CreateMode::from_flags(create.flags);
        matches!(mode, Some(CreateMode::Ephemeral | CreateMode::EphemeralSequential))
    };
    match request {
        Request::Create(create) => is_ephemeral(create),
        Request::Multi(parts) => parts.iter().any(wants_ephemeral),
        _ => false,
    }
}
