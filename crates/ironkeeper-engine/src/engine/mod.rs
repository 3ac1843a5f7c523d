//! The engine: the one owner of every decision.
//!
//! Inputs go in, outputs come out, in order. Whoever drives it (the server's threads, the simulator)
//! calls [`Engine::step`] with what arrived, [`Engine::settle`] to make committed transactions
//! visible, and performs the outputs.
//!
//! ```text
//! submit    what clients ask for            judge     from a request to a transaction
//! forward   the same on its way to a leader apply     from a transaction to the tree and an answer
//! peers     what the broadcast wants done   role      from one part in the ensemble to the next
//! sessions  opening, moving, ending         rebuild   another tree in the place of ours
//! members   the members as clients see them
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
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use bytes::Bytes;
use hashbrown::{HashMap, HashSet};
use ironkeeper_proto::{AclVec, Membership, Request, SessionId, Zxid};
use ironkeeper_tree::AclList;
use ironkeeper_zab::Zab;

use crate::auth::Identity;
use crate::config::EngineConfig;
use crate::conn::Wakes;
use crate::containers::Reaper;
use crate::database::{Database, Hasher};
use crate::ended_sessions::EndedSessions;
use crate::expiry::Expiry;
use crate::gate::CoreToken;
use crate::io::{Input, MemberStart, Output};
use crate::local_writes::LocalWrites;
use crate::overlay::Overlay;
use crate::quota_warnings::QuotaWarnings;
use crate::recover::Recovered;
use crate::snapshot_schedule::SnapshotSchedule;
use crate::time::Now;

use role::Role;
use sessions::{Attached, Owner, Revalidation};

/// Requests judged during one shared hold.
const PREPARE_BATCH_MAX: usize = 64;

/// What is ready to be made visible, in order.
#[derive(Debug)]
enum Ready {
    Txn(Bytes),
    /// These members are in force.
    Members(Box<Membership>),
}

/// See the head of this file.
#[derive(Debug)]
pub struct Engine {
    db: Arc<Database>,
    token: CoreToken,
    zab: Zab,
    role: Role,
    overlay: Overlay,
    local_writes: LocalWrites,
    /// Of the sessions everybody knows; runs where transactions are decided.
    expiry: Expiry,
    /// Of the sessions only this server knows.
    local_expiry: Expiry,
    reaper: Reaper,
    /// The connection through which a session is served here.
    attached: HashMap<SessionId, Attached, Hasher>,
    /// Where clients of sessions were connected from, after their connection is gone.
    last_clients: HashMap<SessionId, SocketAddr, Hasher>,
    /// At a leader: through which server a session speaks. Whoever is not listed may still choose.
    owners: HashMap<SessionId, Owner, Hasher>,
    /// Connections that wait for the leader to say whether their session lives, oldest first.
    revalidations: HashMap<SessionId, VecDeque<Revalidation>, Hasher>,
    /// Sessions whose beginning is proposed but not yet applied.
    opening: HashSet<SessionId, Hasher>,
    /// Sessions whose end is proposed but not yet applied.
    closing: HashSet<SessionId, Hasher>,
    /// Where sessions can be local: those that were not, and are over.
    ended: EndedSessions,
    next_session: i64,
    ready: VecDeque<Ready>,
    /// The last transaction that is ready.
    delivered: Zxid,
    /// When [`Engine::on_timer`] was called last.
    awake_ms: u64,
    /// When the leader was last told which sessions live.
    told_leader_ms: u64,
    /// When clients that only want to read are let in, if no leader is found until then.
    read_only_at_ms: Option<u64>,
    /// The tree came from a leader that went on writing meanwhile: digests are compared from the
    /// first one on that is right.
    awaits_digest: bool,
    /// Work on reads that had to be served before the next transaction, during this hold of the
    /// gate.
    read_work: usize,
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
    /// An empty buffer for the next outputs while those before are performed.
    zab_spare: Vec<ironkeeper_zab::Output>,
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
        let (mut engine, db) = Engine::with_zab(config, recovered, zab, seed, now);
        engine.track_all(now, &db.read());
        (engine, db)
    }

    /// A member of an ensemble, starting from what was recovered. It looks for a leader from the
    /// first [`Engine::on_timer`] on.
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
        let hasher = Hasher::with_seed(config.tree.hash_seed);
        let new_expiry = || Expiry::new(config.tick_ms, hasher.clone());
        let (expiry, local_expiry) = (new_expiry(), new_expiry());
        let reaper = Reaper::new(config.container, now);
        let snapshots = SnapshotSchedule::new(&config, &recovered.tree, seed);
        let overlay = Overlay::new(recovered.tree.digest(), hasher.clone());
        let next_session = sessions::first_id(config.server_id, now.wall_ms);
        let delivered = recovered.tree.last_zxid();
        let (mismatches, awaits_digest) = (recovered.digest_mismatches, recovered.awaits_digest);
        let (db, token) =
            Database::new(config, recovered.tree, recovered.sessions, recovered.digests, seed, now);
        db.stats.digest_mismatches.store(mismatches, Relaxed);
        let db = Arc::new(db);
        let engine = Engine {
            db: Arc::clone(&db),
            token,
            zab,
            role: Role::Leading,
            overlay,
            local_writes: LocalWrites::default(),
            expiry,
            local_expiry,
            reaper,
            attached: HashMap::with_hasher(hasher.clone()),
            last_clients: HashMap::with_hasher(hasher.clone()),
            owners: HashMap::with_hasher(hasher.clone()),
            revalidations: HashMap::with_hasher(hasher.clone()),
            opening: HashSet::with_hasher(hasher.clone()),
            closing: HashSet::with_hasher(hasher.clone()),
            ended: EndedSessions::new(hasher),
            next_session,
            ready: VecDeque::new(),
            delivered,
            awake_ms: now.mono_ms,
            told_leader_ms: now.mono_ms,
            read_only_at_ms: None,
            awaits_digest,
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

    /// Takes in everything that arrived, in order.
    pub fn step(&mut self, now: Now, inputs: &mut Vec<Input>, out: &mut Vec<Output>) {
        let db = Arc::clone(&self.db);
        let mut inputs = inputs.drain(..).peekable();
        while let Some(input) = inputs.next() {
            match input {
                Input::Submit(submit) => {
                    // One shared hold for many judgements; nothing in here opens the gate again.
                    let state = db.read();
                    self.on_submit(now, &state, submit, out);
                    for _ in 1..PREPARE_BATCH_MAX {
                        let next = inputs.next_if(|input| matches!(input, Input::Submit(_)));
                        let Some(Input::Submit(submit)) = next else { break };
                        self.on_submit(now, &state, submit, out);
                    }
                }
                Input::Flushed(zxid) => self.zab.on_flushed(zxid, &mut self.zab_out),
                Input::Peer(input) => self.zab.step(now.mono_ms, input, &mut self.zab_out),
                Input::Rebuilt { state, done } => self.rebuild(now, *state, done),
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

    /// Does what is due: the broadcast's timers, sessions, containers.
    pub fn on_timer(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.zab.deadline_ms() <= now.mono_ms {
            self.zab.step(now.mono_ms, ironkeeper_zab::Input::Timer, &mut self.zab_out);
            self.perform(now, out);
        }
        self.on_read_only_timer(now, out);
        self.mind_pause(now);
        for session in self.local_expiry.expire(now.mono_ms) {
            self.local_session_expired(session, out);
        }
        if self.role == Role::Leading {
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
        }
        self.perform(now, out);
        self.look_at_line(now);
    }

    /// If this comes much later than it was asked for, then the process stood still, or the machine, and
    /// with it those who read what clients send. Signs of life wait in sockets, here or at learners, and
    /// nobody may be ended before they had a chance to be heard.
    fn mind_pause(&mut self, now: Now) {
        let away_ms =
            now.mono_ms.saturating_sub(std::mem::replace(&mut self.awake_ms, now.mono_ms));
        if away_ms > 2 * self.db.config.tick_ms {
            self.expiry.give_back(away_ms, now.mono_ms);
            self.local_expiry.give_back(away_ms, now.mono_ms);
        }
    }

    /// When [`Engine::on_timer`] has something to do next.
    pub fn deadline_ms(&self) -> u64 {
        let throttle = self.db.request_throttle.as_ref();
        let look = throttle.filter(|throttle| throttle.waiting() > 0).map(|_| self.next_look_ms);
        let leads = self.role == Role::Leading;
        // Once a tick, or a pause could not be told from a time in which nothing was due.
        let minds_sessions = !self.expiry.is_empty() || !self.local_expiry.is_empty();
        let deadlines = [
            Some(self.zab.deadline_ms()),
            leads.then(|| self.reaper.deadline_ms()),
            self.expiry.deadline_ms(),
            self.local_expiry.deadline_ms(),
            self.read_only_at_ms,
            minds_sessions.then_some(self.awake_ms + self.db.config.tick_ms),
            look,
        ];
        deadlines.into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Sessions by the moment at which they end if they stay silent, for the administrator. A
    /// learner does not know.
    pub fn expiry(&self) -> &Expiry {
        &self.expiry
    }

    /// The same of the sessions that only this server knows.
    pub fn local_expiry(&self) -> &Expiry {
        &self.local_expiry
    }

    /// How many requests wait for their answer.
    pub fn outstanding(&self) -> usize {
        self.local_writes.len()
    }

    /// The last transaction proposed; all of them are in the log thread's hands.
    pub fn last_proposed(&self) -> Zxid {
        self.zab.last_proposed()
    }

    /// The broadcast, to be looked at: role, members, learners.
    pub fn zab(&self) -> &Zab {
        &self.zab
    }
}
