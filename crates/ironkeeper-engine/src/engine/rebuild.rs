//! Another tree in the place of ours: the log was cut, or the leader's tree installed.

use std::sync::Arc;

use ironkeeper_zab::Durable;

use super::{Engine, Ready};
use crate::recover::Recovered;
use crate::time::Now;

impl Engine {
    /// Exchanges the tree, then tells the broadcast. Nobody is served meanwhile, and nobody watches:
    /// connections end with the role in which they began.
    pub(super) fn rebuild(&mut self, now: Now, recovered: Recovered, done: Durable) {
        self.become_looking(now);
        // What was on its way to the old tree is in the new one, or has never been.
        self.ready.clear();
        let Recovered { tree, sessions, digest_mismatches, digests, awaits_digest } = recovered;
        self.delivered = tree.last_zxid();
        let db = Arc::clone(&self.db);
        let mut state = db.write(&mut self.token);
        let old_tree = std::mem::replace(&mut state.tree, tree);
        let old_sessions = std::mem::replace(&mut state.sessions, sessions);
        state.digests = digests;
        state.long_lists.clear();
        drop(state);
        // These may be large.
        drop((old_tree, old_sessions));
        self.note_mismatches(digest_mismatches);
        self.awaits_digest = awaits_digest;
        if let Some(ensemble) = self.zab.ensemble() {
            self.ready.push_back(Ready::Members(Box::new(ensemble.committed().clone())));
        }
        let done = ironkeeper_zab::Input::Done(done);
        self.zab.step(now.mono_ms, done, &mut self.zab_out);
    }
}
