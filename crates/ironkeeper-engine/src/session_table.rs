//! The global sessions: part of the replicated state, contained in snapshots.
//!
//! Expiry is not decided here but by the leader (see `expiry.rs`), and takes effect by a
//! transaction.

use hashbrown::HashMap;
use ironkeeper_proto::SessionId;

use crate::database::Hasher;

/// Session ids and their timeouts.
#[derive(Debug)]
pub struct SessionTable {
    timeouts_ms: HashMap<SessionId, i32, Hasher>,
}

impl SessionTable {
    pub fn new(hasher: Hasher) -> SessionTable {
        SessionTable { timeouts_ms: HashMap::with_hasher(hasher) }
    }

    pub fn open(&mut self, session: SessionId, timeout_ms: i32) {
        self.timeouts_ms.insert(session, timeout_ms);
    }

    pub fn close(&mut self, session: SessionId) -> bool {
        self.timeouts_ms.remove(&session).is_some()
    }

    pub fn contains(&self, session: SessionId) -> bool {
        self.timeouts_ms.contains_key(&session)
    }

    pub fn timeout_ms(&self, session: SessionId) -> Option<i32> {
        self.timeouts_ms.get(&session).copied()
    }

    pub fn len(&self) -> usize {
        self.timeouts_ms.len()
    }

    pub fn is_empty(&self) -> bool {
        self.timeouts_ms.is_empty()
    }

    /// Returns all sessions in the order of their ids.
    pub fn sorted(&self) -> Vec<(SessionId, i32)> {
        let mut sessions: Vec<_> = self.timeouts_ms.iter().map(|(id, ms)| (*id, *ms)).collect();
        sessions.sort_unstable();
        sessions
    }
}
