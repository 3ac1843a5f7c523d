//! Replacement of the tree: after a truncation of the log or the installation of the leader's
//! snapshot.

use std::sync::Arc;

use ironkeeper_zab::Durable;

use super::{Engine, Ready};
use crate::recover::Recovered;
use crate::time::Now;

impl Engine {
    /// Passes the report of the log thread to ZAB. If the step recovered a tree, the engine
    /// replaces its own first.
    pub(super) fn on_durable(&mut self, now: Now, done: Durable<Box<Recovered>>) {
        let done = match done {
            // The most frequent report: one per flush.
            Durable::Flushed(zxid) => return self.zab.on_flushed(zxid, &mut self.zab_out),
            Durable::Truncated { zxid, state } => {
                self.rebuild(now, *state);
                Durable::Truncated { zxid, state: () }
            }
            Durable::Installed { zxid, state } => {
                self.rebuild(now, *state);
                Durable::Installed { zxid, state: () }
            }
            Durable::CannotTruncate(zxid) => Durable::CannotTruncate(zxid),
            Durable::AcceptedEpoch(epoch) => Durable::AcceptedEpoch(epoch),
            Durable::CurrentEpoch(epoch) => Durable::CurrentEpoch(epoch),
        };
        self.zab.step(now.mono_ms, ironkeeper_zab::Input::Done(done), &mut self.zab_out);
    }

    /// Replaces the tree. There are no clients and no watches meanwhile: connections are closed
    /// when the role changes.
    fn rebuild(&mut self, now: Now, recovered: Recovered) {
        self.become_looking(now);
        // These transactions are contained in the new tree or were never committed.
        self.ready.clear();
        let Recovered { state, digest_mismatches } = recovered;
        self.delivered = state.applied();
        let db = Arc::clone(&self.db);
        // The old state may be large: it is dropped after the gate is unlocked.
        let old = db.write(&mut self.token).replace(state);
        drop(old);
        self.note_mismatches(digest_mismatches);
        if let Some(ensemble) = self.zab.ensemble() {
            self.ready.push_back(Ready::Members(Box::new(ensemble.committed().clone())));
        }
    }
}
