//! Changes of the server's role in the ensemble.
//!
//! A server closes all its client connections when its role changes. Requests without a reply may
//! or may not be executed, which a client must assume when its connection is lost. The sessions
//! live on at the servers to which their clients reconnect.

use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::SessionId;
use ironkeeper_zab::{Reason, Status};

use super::Engine;
use crate::conn::CloseReason;
use crate::containers::Reaper;
use crate::database::{Hasher, Serving};
use crate::io::{Output, ToPeers};
use crate::overlay::Overlay;
use crate::time::Now;

/// The minimum time a server is LOOKING before it accepts read-only clients.
const READ_ONLY_AFTER_MS_MIN: u64 = 2000;

/// The role of this server as far as requests of clients are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Prepares and proposes requests, as the leader or as a standalone server.
    Leading,
    /// Forwards writes to the leader.
    Learning,
    /// Has no leader and serves no clients.
    Looking,
    /// Has no leader and serves read-only clients.
    ReadOnly,
}

impl Engine {
    /// Returns whether this server is a member of an ensemble; false for a standalone server.
    pub(super) fn is_member(&self) -> bool {
        self.zab.ensemble().is_some()
    }

    pub(super) fn on_became(
        &mut self,
        now: Now,
        status: Status,
        reason: Option<Reason>,
        out: &mut Vec<Output>,
    ) {
        // Committed writes get their replies before their connections are closed.
        self.apply_ready(now, out);
        match status {
            // An election ended without an established leader. Read-only clients may stay.
            Status::Looking if matches!(self.role, Role::Looking | Role::ReadOnly) => {}
            Status::Looking => self.become_looking(now),
            Status::Leading { epoch } => {
                self.let_go();
                self.role = Role::Leading;
                self.db.set_epoch(epoch);
                self.take_the_lead(now, out);
                let serves = self.db.config.leader_serves;
                self.db.set_serving(if serves { Serving::Yes } else { Serving::No });
            }
            Status::Following { epoch, .. } | Status::Observing { epoch, .. } => {
                self.let_go();
                self.role = Role::Learning;
                self.db.set_epoch(epoch);
                self.sessions.begin_reports(now);
                self.db.set_serving(Serving::Yes);
            }
        }
        out.push(Output::Peers(ToPeers::Role { status, reason }));
    }

    pub(super) fn become_looking(&mut self, now: Now) {
        self.db.set_serving(Serving::No);
        self.let_go();
        self.role = Role::Looking;
        self.sessions.global.clear();
        let wait_ms = READ_ONLY_AFTER_MS_MIN.max(self.db.config.tick_ms);
        let read_only = self.db.config.read_only_enabled;
        self.read_only_at_ms = read_only.then(|| now.mono_ms + wait_ms);
    }

    /// Accepts read-only clients if no leader was found in time.
    pub(super) fn on_read_only_timer(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.read_only_at_ms.is_some_and(|at_ms| at_ms <= now.mono_ms) {
            self.read_only_at_ms = None;
            self.apply_ready(now, out);
            self.role = Role::ReadOnly;
            self.db.set_serving(Serving::ReadOnly);
        }
    }

    /// Closes all connections that have or await a session, and drops the requests that wait for a
    /// reply.
    pub(super) fn let_go(&mut self) {
        self.read_only_at_ms = None;
        let reason = CloseReason::RoleChanged;
        for conn in self.sessions.clear() {
            conn.cut(reason, &mut self.wakes);
        }
        for waiting in self.local_writes.abandon() {
            waiting.conn.cut(reason, &mut self.wakes);
            self.request_done();
        }
    }

    /// Initializes the state that only a leader has: the overlay, the reaper and the expiry of
    /// sessions. Closes sessions of which only ephemeral nodes are left.
    fn take_the_lead(&mut self, now: Now, out: &mut Vec<Output>) {
        let db = std::sync::Arc::clone(&self.db);
        let state = db.read();
        let hasher = Hasher::with_seed(db.config.tree.hash_seed);
        self.overlay = Overlay::new(state.tree.digest(), hasher);
        self.reaper = Reaper::new(db.config.container, now);
        self.sessions.track_all(now, &state.sessions);
        // A fuzzy snapshot can contain ephemeral nodes of sessions that have ended.
        let orphaned: Vec<SessionId> = state
            .tree
            .ephemeral_sessions()
            .filter(|session| !state.sessions.contains(*session))
            .collect();
        for session in orphaned {
            self.close_anyway(now, &state, session, 0, out);
        }
    }

    /// Counts transactions whose digest did not match the tree.
    pub(super) fn note_mismatches(&self, count: u64) {
        self.db.stats.digest_mismatches.fetch_add(count, Relaxed);
    }
}
