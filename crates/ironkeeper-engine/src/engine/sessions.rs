//! How sessions begin, move and end.
//!
//! A session is either *global*: it begins and ends by transactions, everybody knows it, and the
//! leader decides when it has been silent for too long; or *local*: only the server knows it to which
//! its client is connected, and it is gone with that server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::connect::{ConnectResponse, PASSWORD_LEN};
use ironkeeper_proto::request::Create;
use ironkeeper_proto::{CreateMode, DecodeError, ErrorCode, OpCode, Request, SessionId, Xid, Zxid};
use ironkeeper_zab::LinkId;

use super::Engine;
use super::replies::put_connect_response;
use super::role::Role;
use crate::config::LocalSessions;
use crate::conn::{CloseReason, Conn};
use crate::database::State;
use crate::expiry::SessionClock;
use crate::io::{Output, SessionEnd};
use crate::local_writes::{Answer, Waiting};
use crate::stats::LastOp;
use crate::time::Now;

/// The connection of a session.
#[derive(Debug)]
pub(super) struct Attached {
    pub conn: Arc<Conn>,
    pub clock: Arc<SessionClock>,
    pub timeout_ms: i32,
}

/// Through whom a session speaks to its leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    Here,
    Learner(LinkId),
}

/// A connection that waits for the leader's word.
#[derive(Debug)]
pub(super) struct Revalidation {
    pub conn: Arc<Conn>,
    pub timeout_ms: i32,
}

/// What is known of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    Global,
    Local,
    /// It may be a local one of another server.
    Elsewhere,
    Gone,
}

/// The first id of a server's life: its number, then 40 bits of time, then room for counting.
pub(super) fn first_id(server_id: u8, wall_ms: i64) -> i64 {
    let time = ((wall_ms << 24) as u64 >> 8) as i64;
    let first = (i64::from(server_id) << 56) | time;
    // The one id that would read as the mark of a container.
    if first == ironkeeper_proto::stat::CONTAINER_OWNER { first + 1 } else { first }
}

impl Engine {
    pub(super) fn standing(&self, state: &State, session: SessionId) -> Standing {
        if self.closing.contains(&session) || self.ended.contains(session) {
            Standing::Gone
        } else if state.sessions.contains(session) || self.opening.contains(&session) {
            Standing::Global
        } else if self.local_expiry.contains(session) {
            Standing::Local
        } else if self.db.config.local_sessions != LocalSessions::Off
            && (session.0 >> 56) as u8 != self.db.config.server_id
        {
            Standing::Elsewhere
        } else {
            Standing::Gone
        }
    }

    /// At a leader: whether a session may write through this server.
    pub(super) fn may_write(
        &mut self,
        state: &State,
        session: SessionId,
        owner: Owner,
    ) -> Result<(), ErrorCode> {
        match self.standing(state, session) {
            Standing::Gone => Err(ErrorCode::SessionExpired),
            Standing::Global if self.is_member() => {
                match *self.owners.entry(session).or_insert(owner) == owner {
                    true => Ok(()),
                    false => Err(ErrorCode::SessionMoved),
                }
            }
            Standing::Global | Standing::Local | Standing::Elsewhere => Ok(()),
        }
    }

    /// At a leader: whether a session may have ephemeral nodes.
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

    fn allot_session(&mut self, state: &State) -> SessionId {
        loop {
            let session = SessionId(self.next_session);
            self.next_session = self.next_session.wrapping_add(1);
            if !state.sessions.contains(session) {
                return session;
            }
        }
    }

    /// A client wants a session.
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
        // A session begins with a write. Without room for it the client would wait without a word;
        // on a closed connection it tries another server, and comes back.
        if !is_local && self.db.disk_full.load(Relaxed) {
            conn.cut(CloseReason::DiskFull, &mut self.wakes);
            return self.request_done();
        }
        let session = self.allot_session(state);
        if is_local {
            self.request_done();
            let clock = self.local_expiry.track(session, timeout_ms, now.mono_ms);
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

    /// Makes a session known to all.
    fn make_global(&mut self, now: Now, session: SessionId, timeout_ms: i32) {
        if self.role == Role::Leading {
            self.owners.insert(session, Owner::Here);
            self.propose_open(now, session, timeout_ms);
        } else {
            self.forward_open(session, timeout_ms);
        }
    }

    /// A client wants its session back.
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
        // The password comes first: without it nobody may disturb the session's owner.
        if password != session.password() {
            return self.refuse(conn);
        }
        if self.local_expiry.contains(session) {
            let clock = self.local_expiry.track(session, timeout_ms, now.mono_ms);
            return self.welcome(now, conn, session, timeout_ms, clock, None);
        }
        match self.role {
            Role::Leading if self.standing(state, session) == Standing::Global => {
                self.owners.insert(session, Owner::Here);
                let clock = self.expiry.track(session, timeout_ms, now.mono_ms);
                self.welcome(now, conn, session, timeout_ms, clock, None);
            }
            Role::Leading => {
                self.await_word(conn, session, timeout_ms);
                self.zab.session_gone(None, session, &mut self.zab_out);
            }
            Role::Learning => {
                if self.zab.revalidate(session, timeout_ms, &mut self.zab_out) {
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
        self.revalidations.entry(session).or_default().push_back(waiting);
    }

    /// The leader says whether a session that a client wants back lives.
    pub(super) fn on_revalidated(&mut self, now: Now, session: SessionId, valid: bool) {
        let Some(waiting) = self.revalidations.get_mut(&session) else { return };
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.revalidations.remove(&session);
        }
        let Some(Revalidation { conn, timeout_ms }) = first else { return };
        if valid {
            let clock = learner_clock(now);
            self.welcome(now, &conn, session, timeout_ms, clock, None);
        } else {
            self.refuse(&conn);
        }
    }

    /// A learner asks whether a session lives: then it speaks through that learner from now on.
    pub(super) fn on_revalidate(
        &mut self,
        now: Now,
        link: LinkId,
        session: SessionId,
        timeout_ms: i32,
    ) {
        if self.standing(&self.db.read(), session) != Standing::Global {
            return self.zab.session_gone(Some(link), session, &mut self.zab_out);
        }
        self.owners.insert(session, Owner::Learner(link));
        self.expiry.track(session, timeout_ms, now.mono_ms);
        self.detach(session, CloseReason::SessionMoved);
        self.zab.session_lives(link, session, &mut self.zab_out);
    }

    /// Ends the connection of a session.
    fn detach(&mut self, session: SessionId, reason: CloseReason) {
        if let Some(Attached { conn, .. }) = self.attached.remove(&session) {
            let mut inner = conn.lock();
            inner.close_after_flush(reason);
            self.wakes.add(&conn, &mut inner);
        }
    }

    /// The session is there, and this connection is its own. `opened` are zxid and latency of the
    /// answer to one that is new.
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
        self.last_clients.remove(&session);
        let attached = Attached { conn: Arc::clone(conn), clock, timeout_ms };
        if let Some(held) = self.attached.insert(session, attached)
            && !Arc::ptr_eq(&held.conn, conn)
        {
            let mut inner = held.conn.lock();
            inner.close_after_flush(CloseReason::SessionMoved);
            self.wakes.add(&held.conn, &mut inner);
        }
    }

    /// There is no such session, or it is somebody else's.
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

    /// A transaction has made a session known: whoever has asked for it here is told, and a leader
    /// begins to watch over it.
    pub(super) fn on_opened(
        &mut self,
        now: Now,
        session: SessionId,
        timeout_ms: i32,
        zxid: Zxid,
        waiting: Option<Waiting>,
    ) {
        self.opening.remove(&session);
        let known = self.attached.get(&session).map(|attached| Arc::clone(&attached.clock));
        let clock = match self.role {
            Role::Leading => self.expiry.track_by(session, timeout_ms, now.mono_ms, known),
            _ => known.unwrap_or_else(|| learner_clock(now)),
        };
        if let Some(waiting) = waiting {
            self.request_done();
            let latency_ms = now.mono_ms.saturating_sub(waiting.received_ms);
            self.db.stats.update_latency.add(latency_ms);
            let opened = Some((zxid, latency_ms));
            self.welcome(now, &waiting.conn, session, timeout_ms, clock, opened);
        }
    }

    /// Where the client of a session is or was connected from.
    pub(super) fn forget_client(&mut self, session: SessionId) -> Option<SocketAddr> {
        let last = self.last_clients.remove(&session);
        self.attached.get(&session).map(|attached| attached.conn.peer).or(last)
    }

    /// A transaction has ended a session.
    pub(super) fn on_closed(&mut self, session: SessionId, cxid: i32) {
        self.closing.remove(&session);
        self.opening.remove(&session);
        if self.db.config.local_sessions != LocalSessions::Off {
            self.ended.add(session);
        }
        self.owners.remove(&session);
        self.expiry.forget(session);
        self.detach(
            session,
            match cxid {
                0 => CloseReason::SessionExpired,
                _ => CloseReason::SessionClosed,
            },
        );
    }

    /// At a leader: a session was silent for too long.
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

    /// The administrator wants a session to end.
    pub(super) fn end_session(
        &mut self,
        now: Now,
        state: &State,
        session: SessionId,
        out: &mut Vec<Output>,
    ) {
        if self.local_expiry.contains(session) {
            self.local_expiry.forget(session);
            return self.local_session_expired(session, out);
        }
        match self.role {
            Role::Leading if self.standing(state, session) == Standing::Global => {
                self.expiry.forget(session);
                self.expire(now, state, session, out);
            }
            Role::Learning if state.sessions.contains(session) => {
                self.forward_own(session, OpCode::CloseSession, &[]);
            }
            _ => {}
        }
    }

    // Local sessions.

    pub(super) fn local_session_expired(&mut self, session: SessionId, out: &mut Vec<Output>) {
        self.db.stats.sessions_expired.fetch_add(1, Relaxed);
        let timeout_ms = self.attached.get(&session).map_or(0, |attached| attached.timeout_ms);
        let client = self.forget_client(session);
        let end = SessionEnd { session, client, timeout_ms, ephemerals: 0, expired: true };
        out.push(Output::SessionEnded(Box::new(end)));
        self.detach(session, CloseReason::SessionExpired);
    }

    /// A local session writes: its end concerns nobody else, and an ephemeral node makes it global or
    /// is refused. Whatever is left is a write like any other.
    pub(super) fn on_local_write(
        &mut self,
        now: Now,
        session: SessionId,
        request: &Result<Request<'_>, DecodeError>,
    ) -> Result<(), Answer> {
        let after = Zxid::ZERO;
        match request {
            Ok(Request::CloseSession) => {
                self.local_expiry.forget(session);
                Err(Answer::Closed { after })
            }
            Ok(request) if self.role != Role::ReadOnly && wants_ephemeral(request) => {
                if self.db.config.local_sessions == LocalSessions::Upgrading {
                    let attached = self.attached.get(&session);
                    let timeout_ms = attached.map_or(0, |attached| attached.timeout_ms);
                    self.local_expiry.forget(session);
                    self.make_global(now, session, timeout_ms);
                    return Ok(());
                }
                match request {
                    // The leader says which of the parts is to blame.
                    Request::Multi(_) => Ok(()),
                    _ => Err(Answer::Error { after, error: ErrorCode::EphemeralOnLocalSession }),
                }
            }
            _ => Ok(()),
        }
    }
}

fn learner_clock(now: Now) -> Arc<SessionClock> {
    let clock = Arc::<SessionClock>::default();
    clock.hear(now.mono_ms);
    clock
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
