//! From one part in the ensemble to the next.
//!
//! Whoever loses its part lets go of all its clients: what they asked for and was not answered may
//! have happened or not, and they learn that by the loss of the connection. Their sessions live on,
//! at whichever server they come back to.

use std::sync::atomic::Ordering::Relaxed;

use ironkeeper_proto::SessionId;
use ironkeeper_zab::{Reason, Status};

use super::Engine;
use crate::conn::CloseReason;
use crate::containers::Reaper;
use crate::database::{Hasher, Serving, State};
use crate::io::Output;
use crate::overlay::Overlay;
use crate::time::Now;

/// How long a server looks for a leader before it serves reads without one.
const READ_ONLY_AFTER_MS_MIN: u64 = 2000;

/// What a server does with what clients ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It decides, as a leader or on its own.
    Leading,
    /// It asks its leader.
    Learning,
    /// It has no leader and serves nobody ...
    Looking,
    /// ... but those who only want to read.
    ReadOnly,
}

impl Engine {
    /// Whether there are other servers.
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
        // What is committed may still be answered.
        self.apply_ready(now, out);
        match status {
            // It was chosen to lead, or to follow, and nothing came of it. Readers may stay.
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
                self.told_leader_ms = now.mono_ms;
                self.db.set_serving(Serving::Yes);
            }
        }
        out.push(Output::Role { status, reason });
    }

    pub(super) fn become_looking(&mut self, now: Now) {
        self.db.set_serving(Serving::No);
        self.let_go();
        self.role = Role::Looking;
        self.expiry.clear();
        let wait_ms = READ_ONLY_AFTER_MS_MIN.max(self.db.config.tick_ms);
        let read_only = self.db.config.read_only_enabled;
        self.read_only_at_ms = read_only.then(|| now.mono_ms + wait_ms);
    }

    /// No leader was found in time: those who only want to read are served.
    pub(super) fn on_read_only_timer(&mut self, now: Now, out: &mut Vec<Output>) {
        if self.read_only_at_ms.is_some_and(|at_ms| at_ms <= now.mono_ms) {
            self.read_only_at_ms = None;
            self.apply_ready(now, out);
            self.role = Role::ReadOnly;
            self.db.set_serving(Serving::ReadOnly);
        }
    }

    /// Ends all connections with a session, and with them whatever waits for an answer.
    pub(super) fn let_go(&mut self) {
        self.read_only_at_ms = None;
        let reason = CloseReason::RoleChanged;
        self.last_clients.clear();
        for (_, attached) in self.attached.drain() {
            attached.conn.cut(reason, &mut self.wakes);
        }
        for (_, waiting) in self.revalidations.drain() {
            for waiting in waiting {
                waiting.conn.cut(reason, &mut self.wakes);
            }
        }
        for waiting in self.local_writes.abandon() {
            waiting.conn.cut(reason, &mut self.wakes);
            self.request_done();
        }
        self.local_expiry.clear();
        self.owners.clear();
        self.opening.clear();
        self.closing.clear();
        self.ended.clear();
    }

    /// What a leader has to know that nobody tells it: the tree as it is, and when the sessions end.
    fn take_the_lead(&mut self, now: Now, out: &mut Vec<Output>) {
        let db = std::sync::Arc::clone(&self.db);
        let state = db.read();
        let hasher = Hasher::with_seed(db.config.tree.hash_seed);
        self.overlay = Overlay::new(state.tree.digest(), hasher);
        self.reaper = Reaper::new(db.config.container, now);
        self.track_all(now, &state);
        // Trees that were not written in one moment may hold nodes of sessions that have ended.
        let orphaned: Vec<SessionId> = state
            .tree
            .ephemeral_sessions()
            .filter(|session| !state.sessions.contains(*session))
            .collect();
        for session in orphaned {
            self.close_anyway(now, &state, session, 0, out);
        }
    }

    /// Every session gets its full time: nobody could give a sign of life meanwhile.
    pub(super) fn track_all(&mut self, now: Now, state: &State) {
        self.expiry.clear();
        for (session, timeout_ms) in state.sessions.sorted() {
            self.expiry.track(session, timeout_ms, now.mono_ms);
        }
    }

    /// How many of the digests that came with transactions were not those of our tree.
    pub(super) fn note_mismatches(&self, count: u64) {
        self.db.stats.digest_mismatches.fetch_add(count, Relaxed);
    }
}
