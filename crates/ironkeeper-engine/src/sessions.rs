//! What one server knows about sessions, apart from the replicated [`SessionTable`].
//!
//! Every server: the connections that sessions are attached to, and its own local sessions. A
//! learner also: the connections that wait until the leader has revalidated their sessions. A
//! leader also: the expiry of global sessions, the server that owns each of them, and the sessions
//! whose createSession or closeSession is proposed and not applied yet. A change of the role
//! discards all of it.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use hashbrown::{HashMap, HashSet};
use ironkeeper_proto::SessionId;
use ironkeeper_zab::LinkId;

use crate::config::{EngineConfig, LocalSessions};
use crate::conn::Conn;
use crate::database::Hasher;
use crate::ended_sessions::EndedSessions;
use crate::expiry::{Expiry, SessionClock};
use crate::session_table::SessionTable;
use crate::time::Now;

/// The connection of a session.
#[derive(Clone, Debug)]
pub(crate) struct Attached {
    pub conn: Arc<Conn>,
    pub clock: Arc<SessionClock>,
    pub timeout_ms: i32,
}

/// The server that a session's client is connected to, as the leader sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    Here,
    Learner(LinkId),
}

/// A connection that waits for the leader to revalidate its session.
#[derive(Debug)]
pub(crate) struct Revalidation {
    pub conn: Arc<Conn>,
    pub timeout_ms: i32,
}

/// The state of a session id at this server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    Global,
    Local,
    /// Unknown here; possibly a local session of another server.
    Elsewhere,
    Gone,
}

/// The sessions as one server knows them; see the module documentation.
#[derive(Debug)]
pub(crate) struct Sessions {
    server_id: u8,
    local_sessions: LocalSessions,
    next_id: i64,
    /// Expiry of global sessions (active on the leader only).
    pub global: Expiry,
    /// Expiry of the local sessions of this server.
    pub local: Expiry,
    /// The local connection of a session.
    attached: HashMap<SessionId, Attached, Hasher>,
    /// The last client address of each session that has no connection here.
    last_clients: HashMap<SessionId, SocketAddr, Hasher>,
    /// On a leader: the server that owns a session. A session that is not listed may be claimed by
    /// any server.
    owners: HashMap<SessionId, Owner, Hasher>,
    /// Connections that wait for the leader to revalidate their session, oldest first.
    revalidations: HashMap<SessionId, VecDeque<Revalidation>, Hasher>,
    /// Sessions whose createSession is proposed but not yet applied.
    opening: HashSet<SessionId, Hasher>,
    /// Sessions whose closeSession is proposed but not yet applied.
    closing: HashSet<SessionId, Hasher>,
    /// Where sessions can be local: global sessions that have ended recently.
    ended: EndedSessions,
    /// When this server last reported the touched sessions to the leader.
    reported_ms: u64,
}

impl Sessions {
    pub fn new(config: &EngineConfig, now: Now) -> Sessions {
        let hasher = Hasher::with_seed(config.tree.hash_seed);
        Sessions {
            server_id: config.server_id,
            local_sessions: config.local_sessions,
            next_id: first_id(config.server_id, now.wall_ms),
            global: Expiry::new(config.tick_ms, hasher.clone()),
            local: Expiry::new(config.tick_ms, hasher.clone()),
            attached: HashMap::with_hasher(hasher.clone()),
            last_clients: HashMap::with_hasher(hasher.clone()),
            owners: HashMap::with_hasher(hasher.clone()),
            revalidations: HashMap::with_hasher(hasher.clone()),
            opening: HashSet::with_hasher(hasher.clone()),
            closing: HashSet::with_hasher(hasher.clone()),
            ended: EndedSessions::new(hasher),
            reported_ms: now.mono_ms,
        }
    }

    /// Returns an id for a new session that no session in `table` has.
    pub fn next_id(&mut self, table: &SessionTable) -> SessionId {
        loop {
            let session = SessionId(self.next_id);
            self.next_id = self.next_id.wrapping_add(1);
            if !table.contains(session) {
                return session;
            }
        }
    }

    pub fn standing(&self, table: &SessionTable, session: SessionId) -> Standing {
        if self.closing.contains(&session) || self.ended.contains(session) {
            Standing::Gone
        } else if table.contains(session) || self.opening.contains(&session) {
            Standing::Global
        } else if self.local.contains(session) {
            Standing::Local
        } else if self.local_sessions != LocalSessions::Off
            && (session.0 >> 56) as u8 != self.server_id
        {
            Standing::Elsewhere
        } else {
            Standing::Gone
        }
    }

    // Ownership, on a leader.

    /// Makes `owner` the owner of a session, in place of any other.
    pub fn set_owner(&mut self, session: SessionId, owner: Owner) {
        self.owners.insert(session, owner);
    }

    /// Returns whether `owner` owns a session. A session without an owner gets this one.
    pub fn claim(&mut self, session: SessionId, owner: Owner) -> bool {
        *self.owners.entry(session).or_insert(owner) == owner
    }

    // Transactions that open and close sessions.

    /// Records that createSession is proposed.
    pub fn note_opening(&mut self, session: SessionId) {
        self.opening.insert(session);
    }

    /// Records that closeSession is proposed.
    pub fn note_closing(&mut self, session: SessionId) {
        self.closing.insert(session);
    }

    /// Records an applied createSession and returns the clock of the session; `leads` if this
    /// server decides when it expires.
    pub fn opened(
        &mut self,
        now: Now,
        session: SessionId,
        timeout_ms: i32,
        leads: bool,
    ) -> Arc<SessionClock> {
        self.opening.remove(&session);
        let known = self.attached.get(&session).map(|attached| Arc::clone(&attached.clock));
        match leads {
            true => self.global.track_by(session, timeout_ms, now.mono_ms, known),
            false => known.unwrap_or_else(|| learner_clock(now)),
        }
    }

    /// Records an applied closeSession and returns the connection of the session.
    pub fn closed(&mut self, session: SessionId) -> Option<Attached> {
        self.closing.remove(&session);
        self.opening.remove(&session);
        if self.local_sessions != LocalSessions::Off {
            self.ended.add(session);
        }
        self.owners.remove(&session);
        self.global.forget(session);
        self.detach(session)
    }

    // Connections.

    /// Attaches a session to a connection. Returns the previous connection if that is another one.
    pub fn attach(&mut self, session: SessionId, attached: Attached) -> Option<Arc<Conn>> {
        let conn = Arc::clone(&attached.conn);
        self.last_clients.remove(&session);
        let held = self.attached.insert(session, attached)?;
        (!Arc::ptr_eq(&held.conn, &conn)).then_some(held.conn)
    }

    pub fn detach(&mut self, session: SessionId) -> Option<Attached> {
        self.attached.remove(&session)
    }

    /// Records that a connection is closed while its session continues.
    pub fn disconnected(&mut self, session: SessionId, conn: &Arc<Conn>) {
        if self.attached.get(&session).is_some_and(|held| Arc::ptr_eq(&held.conn, conn)) {
            self.attached.remove(&session);
            self.last_clients.insert(session, conn.peer);
        }
    }

    /// Returns the timeout of an attached session.
    pub fn timeout_ms(&self, session: SessionId) -> Option<i32> {
        self.attached.get(&session).map(|attached| attached.timeout_ms)
    }

    /// Returns the current or last address of a session's client, and forgets the last one.
    pub fn forget_client(&mut self, session: SessionId) -> Option<SocketAddr> {
        let last = self.last_clients.remove(&session);
        self.attached.get(&session).map(|attached| attached.conn.peer).or(last)
    }

    // Revalidation.

    /// Keeps a connection until the leader has replied about its session.
    pub fn await_revalidation(&mut self, session: SessionId, waiting: Revalidation) {
        self.revalidations.entry(session).or_default().push_back(waiting);
    }

    /// Returns the connection that the leader's next reply about this session is for.
    pub fn take_revalidation(&mut self, session: SessionId) -> Option<Revalidation> {
        let waiting = self.revalidations.get_mut(&session)?;
        let first = waiting.pop_front();
        if waiting.is_empty() {
            self.revalidations.remove(&session);
        }
        first
    }

    // Expiry.

    /// Tracks all global sessions, each with its full timeout, because no touch could reach this
    /// server before.
    pub fn track_all(&mut self, now: Now, table: &SessionTable) {
        self.global.clear();
        for (session, timeout_ms) in table.sorted() {
            self.global.track(session, timeout_ms, now.mono_ms);
        }
    }

    /// Extends all deadlines by the time in which no ping could be received.
    pub fn extend_deadlines(&mut self, lost_ms: u64, now: Now) {
        self.global.give_back(lost_ms, now.mono_ms);
        self.local.give_back(lost_ms, now.mono_ms);
    }

    /// Returns whether any session can expire here.
    pub fn can_expire(&self) -> bool {
        !self.global.is_empty() || !self.local.is_empty()
    }

    /// Begins the time that the first report to a leader covers.
    pub fn begin_reports(&mut self, now: Now) {
        self.reported_ms = now.mono_ms;
    }

    /// Returns the global sessions of this server that were touched since the previous report, with
    /// their timeouts.
    pub fn report(&mut self, now: Now) -> Vec<(SessionId, i32)> {
        let since_ms = std::mem::replace(&mut self.reported_ms, now.mono_ms);
        self.attached
            .iter()
            .filter(|(session, attached)| {
                attached.clock.heard_ms() >= since_ms && !self.local.contains(**session)
            })
            .map(|(session, attached)| (*session, attached.timeout_ms))
            .collect()
    }

    /// Discards what belongs to a role, and returns the connections that have or await a session,
    /// for the caller to close.
    pub fn clear(&mut self) -> Vec<Arc<Conn>> {
        self.last_clients.clear();
        let attached = self.attached.drain().map(|(_, attached)| attached.conn);
        let waiting = self.revalidations.drain().flat_map(|(_, waiting)| waiting);
        let conns = attached.chain(waiting.map(|waiting| waiting.conn)).collect();
        self.local.clear();
        self.owners.clear();
        self.opening.clear();
        self.closing.clear();
        self.ended.clear();
        conns
    }
}

/// Returns the first session id of a server process: the server id (8 bits), the time (40 bits), a
/// counter (16 bits).
fn first_id(server_id: u8, wall_ms: i64) -> i64 {
    let time = ((wall_ms << 24) as u64 >> 8) as i64;
    let first = (i64::from(server_id) << 56) | time;
    // As an ephemeral owner this id would mark a container node.
    if first == ironkeeper_proto::stat::CONTAINER_OWNER { first + 1 } else { first }
}

/// Returns the clock of a session whose expiry another server decides.
pub(crate) fn learner_clock(now: Now) -> Arc<SessionClock> {
    let clock = Arc::<SessionClock>::default();
    clock.hear(now.mono_ms);
    clock
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now { mono_ms: 1_000_000, wall_ms: 1_700_000_000_000 };
    const ONE: SessionId = SessionId(1 << 56 | 1);
    const FOREIGN: SessionId = SessionId(2 << 56 | 1);

    fn later(ms: u64) -> Now {
        Now { mono_ms: NOW.mono_ms + ms, ..NOW }
    }

    fn sessions(local_sessions: LocalSessions) -> (Sessions, SessionTable) {
        let config = EngineConfig { local_sessions, ..EngineConfig::default() };
        (Sessions::new(&config, NOW), SessionTable::new(Hasher::with_seed(7)))
    }

    fn attached(port: u16) -> Attached {
        let peer = ([10, 0, 0, 1], port).into();
        let conn = Conn::new(port.into(), 0, peer, NOW, Hasher::with_seed(7));
        Attached { conn, clock: learner_clock(NOW), timeout_ms: 4000 }
    }

    #[test]
    fn ids_begin_with_the_server_and_skip_sessions_of_the_table() {
        let (mut sessions, mut table) = sessions(LocalSessions::Off);
        let first = sessions.next_id(&table);
        assert_eq!((first.0 >> 56, first.0 & 0xffff), (1, 0));
        table.open(SessionId(first.0 + 1), 4000);
        assert_eq!(sessions.next_id(&table), SessionId(first.0 + 2));
    }

    #[test]
    fn a_session_is_global_from_the_proposal_to_open_it_to_the_proposal_to_close_it() {
        for (local_sessions, foreign) in
            [(LocalSessions::Off, Standing::Gone), (LocalSessions::On, Standing::Elsewhere)]
        {
            let (mut sessions, mut table) = sessions(local_sessions);
            assert_eq!(sessions.standing(&table, ONE), Standing::Gone);
            assert_eq!(sessions.standing(&table, FOREIGN), foreign);
            sessions.note_opening(ONE);
            assert_eq!(sessions.standing(&table, ONE), Standing::Global);
            table.open(ONE, 4000);
            sessions.opened(NOW, ONE, 4000, true);
            assert_eq!(sessions.standing(&table, ONE), Standing::Global);
            sessions.note_closing(ONE);
            assert_eq!(sessions.standing(&table, ONE), Standing::Gone);
            table.close(ONE);
            assert!(sessions.closed(ONE).is_none());
            assert_eq!(sessions.standing(&table, ONE), Standing::Gone);
            assert!(!sessions.can_expire());
        }
    }

    #[test]
    fn a_global_session_that_ended_is_not_mistaken_for_a_local_session_of_another_server() {
        let (mut sessions, table) = sessions(LocalSessions::On);
        sessions.closed(FOREIGN);
        assert_eq!(sessions.standing(&table, FOREIGN), Standing::Gone);
        sessions.local.track(ONE, 4000, NOW.mono_ms);
        assert_eq!(sessions.standing(&table, ONE), Standing::Local);
    }

    #[test]
    fn a_session_belongs_to_the_first_server_that_claims_it_until_it_is_moved() {
        let (mut sessions, _) = sessions(LocalSessions::Off);
        let learner = Owner::Learner(LinkId(3));
        assert!(sessions.claim(ONE, learner) && sessions.claim(ONE, learner));
        assert!(!sessions.claim(ONE, Owner::Here));
        sessions.set_owner(ONE, Owner::Here);
        assert!(sessions.claim(ONE, Owner::Here) && !sessions.claim(ONE, learner));
        sessions.closed(ONE);
        assert!(sessions.claim(ONE, learner), "it has no owner");
    }

    #[test]
    fn a_session_has_one_connection_and_the_previous_one_is_returned() {
        let (mut sessions, _) = sessions(LocalSessions::Off);
        let (first, second) = (attached(1), attached(2));
        assert!(sessions.attach(ONE, first.clone()).is_none());
        assert!(sessions.attach(ONE, first.clone()).is_none(), "the same connection");
        let previous = sessions.attach(ONE, second.clone()).expect("another connection");
        assert!(Arc::ptr_eq(&previous, &first.conn));
        // The end of a connection that has lost its session changes nothing.
        sessions.disconnected(ONE, &first.conn);
        assert_eq!(sessions.timeout_ms(ONE), Some(4000));
        sessions.disconnected(ONE, &second.conn);
        assert_eq!(sessions.timeout_ms(ONE), None);
        assert_eq!(sessions.forget_client(ONE), Some(second.conn.peer));
        assert_eq!(sessions.forget_client(ONE), None);
    }

    #[test]
    fn replies_of_the_leader_are_for_the_connections_in_the_order_of_their_requests() {
        let (mut sessions, _) = sessions(LocalSessions::Off);
        for port in [1, 2] {
            let Attached { conn, timeout_ms, .. } = attached(port);
            sessions.await_revalidation(ONE, Revalidation { conn, timeout_ms });
        }
        let mut next = || sessions.take_revalidation(ONE).map(|waiting| waiting.conn.id);
        assert_eq!((next(), next(), next()), (Some(1), Some(2), None));
    }

    #[test]
    fn a_report_lists_global_sessions_that_were_touched_since_the_previous_one() {
        let (mut sessions, _) = sessions(LocalSessions::On);
        let (one, local) = (attached(1), attached(2));
        let clock = Arc::clone(&one.clock);
        sessions.attach(FOREIGN, one);
        sessions.attach(ONE, local);
        sessions.local.track(ONE, 4000, NOW.mono_ms);
        sessions.begin_reports(NOW);
        assert_eq!(sessions.report(later(10)), [(FOREIGN, 4000)]);
        assert_eq!(sessions.report(later(20)), []);
        clock.hear(later(25).mono_ms);
        assert_eq!(sessions.report(later(30)), [(FOREIGN, 4000)]);
    }

    #[test]
    fn the_clock_of_a_connection_that_is_attached_before_the_commit_is_kept() {
        let (mut sessions, _) = sessions(LocalSessions::Upgrading);
        let upgraded = attached(1);
        let clock = Arc::clone(&upgraded.clock);
        sessions.attach(ONE, upgraded);
        for leads in [false, true] {
            assert!(Arc::ptr_eq(&clock, &sessions.opened(NOW, ONE, 4000, leads)));
            assert_eq!(sessions.global.contains(ONE), leads);
        }
    }

    #[test]
    fn a_change_of_the_role_returns_all_connections_and_forgets_all_but_global_expiry() {
        let (mut sessions, table) = sessions(LocalSessions::On);
        sessions.attach(ONE, attached(1));
        let Attached { conn, timeout_ms, .. } = attached(2);
        sessions.await_revalidation(FOREIGN, Revalidation { conn, timeout_ms });
        sessions.local.track(ONE, 4000, NOW.mono_ms);
        sessions.global.track(FOREIGN, 4000, NOW.mono_ms);
        sessions.note_opening(ONE);
        sessions.claim(ONE, Owner::Here);
        let closed: Vec<u64> = sessions.clear().iter().map(|conn| conn.id).collect();
        assert_eq!(closed, [1, 2]);
        assert_eq!(sessions.standing(&table, ONE), Standing::Gone);
        assert!(sessions.claim(ONE, Owner::Learner(LinkId(3))));
        assert!(sessions.take_revalidation(FOREIGN).is_none());
        assert!(sessions.local.is_empty() && sessions.global.contains(FOREIGN));
    }
}
