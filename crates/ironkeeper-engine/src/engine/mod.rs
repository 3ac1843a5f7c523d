//! The engine: the only place where requests, sessions and transactions are decided.
//!
//! Inputs go in, outputs come out, in order. The driver (the server's threads or the simulator)
//! calls [`Engine::step`] with what arrived and [`Engine::settle`] to make committed transactions
//! visible, and performs the outputs; its duties are listed at [`Engine`].
//!
//! ```text
//! submit    requests of clients            judge     from a request to a transaction
//! forward   requests sent to the leader    apply     from a transaction to the tree and a reply
//! peers     outputs of ZAB                 role      from one role in the ensemble to the next
//! sessions  opening, moving, closing       rebuild   replacement of the tree
//! members   the membership node            replies   the encoding of replies
//! ```

mod apply;
mod forward;
mod judge;
mod members;
mod peers;
mod rebuild;
mod replies;
mod role;
mod sessions;
mod submit;

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::LeaderMessage;
use ironkeeper_proto::{AclVec, Membership, Request, SessionId, Zxid};
use ironkeeper_tree::AclList;
use ironkeeper_zab::Zab;

use crate::auth::Identity;
use crate::config::EngineConfig;
use crate::conn::Wakes;
use crate::containers::Reaper;
use crate::database::{Database, Hasher};
use crate::expiry::Expiry;
use crate::gate::CoreToken;
use crate::io::{Input, MemberStart, Output};
use crate::local_writes::LocalWrites;
use crate::overlay::Overlay;
use crate::quota_warnings::QuotaWarnings;
use crate::recover::Recovered;
use crate::sessions::Sessions;
use crate::snapshot_schedule::SnapshotSchedule;
use crate::time::Now;

use role::Role;

/// The maximum number of requests prepared in one shared hold.
const PREPARE_BATCH_MAX: usize = 64;

/// An item that is ready to be made visible, in order.
#[derive(Debug)]
enum Ready {
    Txn(Bytes),
    /// This membership is in force.
    Members(Box<Membership>),
}

/// The server's state machine; see the module documentation.
///
/// It has one driver, which owns the sockets, the files and the clock. The driver's duties:
///
/// 1. **One caller at a time.** Calls do not overlap. They may come from different threads, and no
///    caller holds the gate or a connection's lock.
/// 2. **One round**: [`Engine::step`] with the inputs that wait (there may be none), then
///    [`Engine::on_timer`] if its deadline has passed, then [`Engine::settle`], then all outputs.
///    All calls of a round get the same `now`; time never decreases from one round to the next.
/// 3. **Inputs in order.** The submits of one connection arrive in the order in which
///    [`Conn::receive`](crate::Conn::receive) returned them, the packets of a link in the order of
///    the link, and the reports of the log thread in the order of its items. Inputs of different
///    sources may be interleaved.
/// 4. **Outputs in order.** The driver performs every output, in the order of `out`, before the
///    outputs of the next round. Outputs may leave the driver's queue before earlier ones are
///    complete: the engine does not wait for them, it waits for the inputs that report them.
/// 5. [`Output::Log`]: the log thread executes items in order and returns an [`Input::Durable`] for
///    each durable step except a written membership; one `Flushed(zxid)` may report many appends. A
///    report before the medium has the bytes breaks durability. If a write or a sync fails, there
///    is no report and the server stops.
/// 6. [`Output::Snapshot`] and [`ToPeers::SendSnapshot`](crate::ToPeers::SendSnapshot): the driver
///    writes or sends the snapshot in slices under the shared gate and returns its walk once, with
///    [`Input::SnapshotDone`] or [`Input::SnapshotSent`], also if it was abandoned.
/// 7. [`Output::Wake`]: the task of the connection runs again: it serves the reads in front of the
///    lane, sends the outbox and obeys the close reason. Needless wakes are harmless.
/// 8. [`Output::Peers`]: performed by the links of a member; what happens on a link returns as
///    [`Input::Peer`]. A standalone server has no such output.
/// 9. [`Output::Warn`] and [`Output::SessionEnded`] are for the log. After [`Output::Halt`] the
///    driver makes no further call.
/// 10. **Deadlines.** After each round the driver arranges a call of [`Engine::on_timer`] at
///     [`Engine::deadline_ms`]. A call that is early or repeated has no effect. A call more than
///     two ticks after the previous one is taken for a pause of the process, and the deadlines of
///     sessions are extended.
///
/// May be called any number of times, also in vain: `step` without inputs, `on_timer`, `settle`,
/// [`Engine::deadline_ms`] and the functions that only return something.
#[derive(Debug)]
pub struct Engine {
    db: Arc<Database>,
    token: CoreToken,
    zab: Zab,
    role: Role,
    overlay: Overlay,
    local_writes: LocalWrites,
    sessions: Sessions,
    reaper: Reaper,
    ready: VecDeque<Ready>,
    /// The last transaction that is ready.
    delivered: Zxid,
    /// When [`Engine::on_timer`] was called last.
    awake_ms: u64,
    /// When read-only clients are accepted if no leader is found before.
    read_only_at_ms: Option<u64>,
    /// Work in this hold of the gate on reads that had to be served before the next transaction.
    read_work: usize,
    wakes: Wakes,
    open_acl: Arc<AclList>,
    server_identity: Arc<Identity>,
    quota_warnings: QuotaWarnings,
    snapshots: SnapshotSchedule,
    /// When the connections waiting for the request throttle are checked next.
    next_look_ms: u64,
    /// Buffer in which records are encoded before they are copied into shared memory.
    scratch: Vec<u8>,
    zab_out: Vec<ironkeeper_zab::Output>,
    /// An empty buffer for the next outputs while the previous ones are performed.
    zab_spare: Vec<ironkeeper_zab::Output>,
}

impl Engine {
    /// Creates a standalone server from the recovered state.
    pub fn new(
        config: EngineConfig,
        recovered: Recovered,
        seed: u64,
        now: Now,
    ) -> (Engine, Arc<Database>) {
        let zab = Zab::standalone(recovered.state.applied());
        let (mut engine, db) = Engine::with_zab(config, recovered, zab, seed, now);
        engine.sessions.track_all(now, &db.read().sessions);
        (engine, db)
    }

    /// Creates a member of an ensemble from the recovered state. It is LOOKING from the first
    /// [`Engine::on_timer`] on.
    pub fn member(
        config: EngineConfig,
        recovered: Recovered,
        member: MemberStart,
        seed: u64,
        now: Now,
    ) -> (Engine, Arc<Database>) {
        let MemberStart { me, settings, ensemble, recovered: log } = member;
        let members = ensemble.committed().clone();
        let zab = Zab::member(me, settings, ensemble, log, seed);
        let (mut engine, db) = Engine::with_zab(config, recovered, zab, seed, now);
        engine.ready.push_back(Ready::Members(Box::new(members)));
        engine.become_looking(now);
        (engine, db)
    }

    fn with_zab(
        config: EngineConfig,
        recovered: Recovered,
        zab: Zab,
        seed: u64,
        now: Now,
    ) -> (Engine, Arc<Database>) {
        let Recovered { state, digest_mismatches } = recovered;
        let hasher = Hasher::with_seed(config.tree.hash_seed);
        let reaper = Reaper::new(config.container, now);
        let snapshots = SnapshotSchedule::new(&config, &state.tree, seed);
        let overlay = Overlay::new(state.tree.digest(), hasher.clone());
        let sessions = Sessions::new(&config, now);
        let delivered = state.applied();
        let (db, token) = Database::new(config, state, seed, now);
        db.stats.digest_mismatches.store(digest_mismatches, Relaxed);
        let db = Arc::new(db);
        let engine = Engine {
            db: Arc::clone(&db),
            token,
            zab,
            role: Role::Leading,
            overlay,
            local_writes: LocalWrites::default(),
            sessions,
            reaper,
            ready: VecDeque::new(),
            delivered,
            awake_ms: now.mono_ms,
            read_only_at_ms: None,
            read_work: 0,
            wakes: Wakes::default(),
            open_acl: Arc::new(AclList::new(AclVec::OPEN)),
            server_identity: Identity::server(),
            quota_warnings: QuotaWarnings::default(),
            snapshots,
            next_look_ms: now.mono_ms,
            scratch: Vec::new(),
            zab_out: Vec::new(),
            zab_spare: Vec::new(),
        };
        (engine, db)
    }

    /// Processes all inputs, in order.
    pub fn step(&mut self, now: Now, inputs: &mut Vec<Input>, out: &mut Vec<Output>) {
        let db = Arc::clone(&self.db);
        let mut inputs = inputs.drain(..).peekable();
        while let Some(input) = inputs.next() {
            match input {
                Input::Submit(submit) => {
                    // One shared hold for many preparations; nothing below locks the gate again.
                    let state = db.read();
                    self.on_submit(now, &state, submit, out);
                    for _ in 1..PREPARE_BATCH_MAX {
                        let next = inputs.next_if(|input| matches!(input, Input::Submit(_)));
                        let Some(Input::Submit(submit)) = next else { break };
                        self.on_submit(now, &state, submit, out);
                    }
                }
                Input::Durable(done) => self.on_durable(now, done),
                Input::Peer(input) => self.zab.step(now.mono_ms, input, &mut self.zab_out),
                Input::SnapshotDone(walk) => {
                    self.snapshots.running = false;
                    self.snapshots.finished.push(walk);
                }
                Input::SnapshotSent(walk) => self.snapshots.finished.push(walk),
                Input::TakeSnapshot => self.snapshots.wanted = true,
                Input::ExpireSession(session) => self.end_session(now, &db.read(), session, out),
            }
            self.perform(now, out);
        }
    }

    /// Runs everything that is due: ZAB's timers, expiry of sessions, deletion of containers.
    pub fn on_timer(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.zab.deadline_ms() <= now.mono_ms {
            self.zab.step(now.mono_ms, ironkeeper_zab::Input::Timer, &mut self.zab_out);
            self.perform(now, out);
        }
        self.on_read_only_timer(now, out);
        self.mind_pause(now);
        for session in self.sessions.local.expire(now.mono_ms) {
            self.local_session_expired(session, out);
        }
        if self.role == Role::Leading {
            let db = Arc::clone(&self.db);
            let state = db.read();
            for session in self.sessions.global.expire(now.mono_ms) {
                self.expire(now, &state, session, out);
            }
            while let Some(path) = self.reaper.next(now, &state.tree) {
                let request = Request::DeleteContainer { path: path.into() };
                let identity = Arc::clone(&self.server_identity);
                self.propose(now, &state, SessionId::NONE, 0, &identity, &request, out);
            }
        }
        self.perform(now, out);
        self.look_at_line(now);
    }

    /// Extends session deadlines after a pause of the process or of the machine, which shows as a
    /// call much later than requested. Pings are still in sockets, here or at learners, and must be
    /// read before any session expires.
    fn mind_pause(&mut self, now: Now) {
        let away_ms =
            now.mono_ms.saturating_sub(std::mem::replace(&mut self.awake_ms, now.mono_ms));
        if away_ms > 2 * self.db.config.tick_ms {
            self.sessions.extend_deadlines(away_ms, now);
        }
    }

    /// Returns when [`Engine::on_timer`] has to be called next.
    pub fn deadline_ms(&self) -> u64 {
        let throttle = self.db.request_throttle.as_ref();
        let look = throttle.filter(|throttle| throttle.waiting() > 0).map(|_| self.next_look_ms);
        let leads = self.role == Role::Leading;
        // Once per tick; otherwise a pause could not be distinguished from a time without
        // deadlines.
        let deadlines = [
            Some(self.zab.deadline_ms()),
            leads.then(|| self.reaper.deadline_ms()),
            self.sessions.global.deadline_ms(),
            self.sessions.local.deadline_ms(),
            self.read_only_at_ms,
            self.sessions.can_expire().then_some(self.awake_ms + self.db.config.tick_ms),
            look,
        ];
        deadlines.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Returns the expiry of global sessions, for the administrator. Empty on a learner.
    pub fn expiry(&self) -> &Expiry {
        &self.sessions.global
    }

    /// Returns the expiry of the local sessions of this server.
    pub fn local_expiry(&self) -> &Expiry {
        &self.sessions.local
    }

    /// Returns the number of requests that wait for their reply.
    pub fn outstanding(&self) -> usize {
        self.local_writes.len()
    }

    /// Returns the number of `sync`s that wait on this leader for leadership confirmation.
    pub fn pending_syncs(&self) -> usize {
        self.zab.unconfirmed().filter(|reply| **reply == LeaderMessage::Synced).count()
    }

    /// Returns the zxid of the last proposed transaction; the log thread has received all of them.
    pub fn last_proposed(&self) -> Zxid {
        self.zab.last_proposed()
    }

    /// Returns the ZAB state machine for inspection: role, members, learners.
    pub fn zab(&self) -> &Zab {
        &self.zab
    }
}
