//! Expiry of sessions. A leader (or a standalone server) runs it for all global sessions, every
//! server for its own local sessions.
//!
//! Time is divided into ticks; a session that was not touched for its timeout expires at the next
//! tick boundary, together with all others of that tick. A touch costs one store: it only records
//! the time, and the recorded time of a due session is checked before the session expires.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hashbrown::HashMap;
use ironkeeper_proto::SessionId;

use crate::database::Hasher;
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The time of a session's last touch, shared with the connection that receives its requests.
#[derive(Debug, Default)]
pub struct SessionClock {
    heard_ms: AtomicU64,
}

impl SessionClock {
    pub fn hear(&self, now_ms: u64) {
        self.heard_ms.fetch_max(now_ms, Relaxed);
    }

    pub fn heard_ms(&self) -> u64 {
        self.heard_ms.load(Relaxed)
    }
}

#[derive(Debug)]
struct Entry {
    timeout_ms: u64,
    clock: Arc<SessionClock>,
    due_ms: u64,
}

/// The tracked sessions; see the module documentation.
#[derive(Debug)]
pub struct Expiry {
    tick_ms: u64,
    entries: HashMap<SessionId, Entry, Hasher>,
    due: BTreeMap<u64, BTreeSet<SessionId>>,
}

impl Expiry {
    pub fn new(tick_ms: u64, hasher: Hasher) -> Expiry {
        Expiry {
            tick_ms: tick_ms.max(1),
            entries: HashMap::with_hasher(hasher),
            due: BTreeMap::new(),
        }
    }

    fn boundary(&self, heard_ms: u64, timeout_ms: u64) -> u64 {
        ((heard_ms + timeout_ms) / self.tick_ms + 1) * self.tick_ms
    }

    /// Starts or renews the tracking of a session; a re-attached session may have another timeout.
    pub fn track(&mut self, session: SessionId, timeout_ms: i32, now_ms: u64) -> Arc<SessionClock> {
        self.track_by(session, timeout_ms, now_ms, None)
    }

    /// Does the same as [`Expiry::track`], with an existing clock.
    pub fn track_by(
        &mut self,
        session: SessionId,
        timeout_ms: i32,
        now_ms: u64,
        clock: Option<Arc<SessionClock>>,
    ) -> Arc<SessionClock> {
        let timeout_ms = u64::try_from(timeout_ms).unwrap_or(0);
        let due_ms = self.boundary(now_ms, timeout_ms);
        let clock = match self.entries.get(&session) {
            Some(entry) => {
                let (clock, due_before) = (Arc::clone(&entry.clock), entry.due_ms);
                self.take_from(due_before, session);
                clock
            }
            None => clock.unwrap_or_default(),
        };
        clock.hear(now_ms);
        let entry = Entry { timeout_ms, clock: Arc::clone(&clock), due_ms };
        self.entries.insert(session, entry);
        self.due.entry(due_ms).or_default().insert(session);
        clock
    }

    /// Touches a session on behalf of another server. Ignores sessions that are not tracked.
    pub fn touch(&mut self, session: SessionId, timeout_ms: i32, now_ms: u64) {
        let Some(entry) = self.entries.get(&session) else { return };
        if i32::try_from(entry.timeout_ms) == Ok(timeout_ms) {
            entry.clock.hear(now_ms);
        } else {
            self.track(session, timeout_ms, now_ms);
        }
    }

    pub fn contains(&self, session: SessionId) -> bool {
        self.entries.contains_key(&session)
    }

    /// Stops the tracking of all sessions.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.due.clear();
    }

    pub fn forget(&mut self, session: SessionId) {
        if let Some(entry) = self.entries.remove(&session) {
            self.take_from(entry.due_ms, session);
        }
    }

    fn take_from(&mut self, due_ms: u64, session: SessionId) {
        if let Some(sessions) = self.due.get_mut(&due_ms) {
            sessions.remove(&session);
            if sessions.is_empty() {
                self.due.remove(&due_ms);
            }
        }
    }

    /// Extends all deadlines by the time in which no ping could be received. Due sessions are
    /// checked again in any case.
    pub fn give_back(&mut self, lost_ms: u64, now_ms: u64) {
        for entry in self.entries.values() {
            let heard_ms = entry.clock.heard_ms();
            entry.clock.hear(heard_ms.saturating_add(lost_ms).min(now_ms));
        }
    }

    /// Returns the next moment at which [`Expiry::expire`] has sessions to check.
    pub fn deadline_ms(&self) -> Option<u64> {
        self.due.keys().next().copied()
    }

    /// Returns the expired sessions and stops tracking them.
    pub fn expire(&mut self, now_ms: u64) -> Vec<SessionId> {
        let mut over = Vec::new();
        while let Some((due_ms, sessions)) = self.due.first_key_value() {
            if *due_ms > now_ms {
                break;
            }
            let (due_ms, sessions) = (*due_ms, sessions.clone());
            self.due.remove(&due_ms);
            for session in sessions {
                let Some(entry) = self.entries.get(&session) else { continue };
                let heard = entry.clock.heard_ms.load(Relaxed);
                let renewed = self.boundary(heard, entry.timeout_ms);
                if renewed > now_ms {
                    if let Some(entry) = self.entries.get_mut(&session) {
                        entry.due_ms = renewed;
                    }
                    self.due.entry(renewed).or_default().insert(session);
                } else {
                    self.entries.remove(&session);
                    over.push(session);
                }
            }
        }
        over
    }

    /// Returns the tick boundaries and the sessions that expire at each unless they are touched,
    /// for `dump`.
    pub fn schedule(&self) -> BTreeMap<u64, BTreeSet<SessionId>> {
        let mut schedule: BTreeMap<u64, BTreeSet<SessionId>> = BTreeMap::new();
        for (session, entry) in &self.entries {
            let heard = entry.clock.heard_ms.load(Relaxed);
            let due = self.boundary(heard, entry.timeout_ms);
            schedule.entry(due).or_default().insert(*session);
        }
        schedule
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SessionId = SessionId(1);

    fn expiry() -> Expiry {
        Expiry::new(2000, Hasher::with_seed(7))
    }

    #[test]
    fn a_silent_session_ends_at_the_tick_after_its_timeout() {
        let mut expiry = expiry();
        expiry.track(ONE, 4000, 1000);
        assert_eq!(expiry.deadline_ms(), Some(6000));
        assert!(expiry.expire(5999).is_empty());
        assert_eq!(expiry.expire(6000), [ONE]);
        assert!(expiry.is_empty() && expiry.deadline_ms().is_none());
    }

    #[test]
    fn a_sign_of_life_moves_the_end() {
        let mut expiry = expiry();
        let clock = expiry.track(ONE, 4000, 1000);
        clock.hear(5000);
        assert!(expiry.expire(6000).is_empty());
        assert_eq!(expiry.deadline_ms(), Some(10_000));
        assert_eq!(expiry.expire(10_000), [ONE]);
    }

    #[test]
    fn a_reattached_session_takes_the_new_timeout_and_the_same_clock() {
        let mut expiry = expiry();
        let before = expiry.track(ONE, 40_000, 0);
        let after = expiry.track(ONE, 4000, 1000);
        assert!(Arc::ptr_eq(&before, &after));
        assert_eq!(expiry.expire(6000), [ONE]);
    }

    #[test]
    fn a_forgotten_session_never_expires() {
        let mut expiry = expiry();
        expiry.track(ONE, 4000, 0);
        expiry.forget(ONE);
        assert!(expiry.expire(u64::MAX - 1).is_empty());
    }
}
