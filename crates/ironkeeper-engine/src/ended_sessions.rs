//! Sessions that have ended recently.
//!
//! Where sessions can be local, a leader accepts writes of sessions it does not know: they may be
//! local sessions of other servers. A write of a global session may still be in flight when the
//! session ends, through a server from which its client has disconnected: it must not be mistaken
//! for a write of a local session.

use std::collections::VecDeque;

use hashbrown::HashSet;
use ironkeeper_proto::SessionId;

use crate::database::Hasher;

/// More sessions than can end while a write is in flight: a leader closes the links of learners
/// that time out.
const ENDED_MAX: usize = 1 << 16;

/// The last `ENDED_MAX` global sessions that ended; see the module documentation.
#[derive(Debug)]
pub(crate) struct EndedSessions {
    oldest_first: VecDeque<SessionId>,
    all: HashSet<SessionId, Hasher>,
}

impl EndedSessions {
    pub(crate) fn new(hasher: Hasher) -> EndedSessions {
        EndedSessions { oldest_first: VecDeque::new(), all: HashSet::with_hasher(hasher) }
    }

    pub(crate) fn add(&mut self, session: SessionId) {
        if self.all.insert(session) {
            self.oldest_first.push_back(session);
            if self.oldest_first.len() > ENDED_MAX
                && let Some(oldest) = self.oldest_first.pop_front()
            {
                self.all.remove(&oldest);
            }
        }
    }

    pub(crate) fn contains(&self, session: SessionId) -> bool {
        self.all.contains(&session)
    }

    pub(crate) fn clear(&mut self) {
        self.oldest_first.clear();
        self.all.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_are_forgotten_when_there_are_too_many() {
        let mut ended = EndedSessions::new(Hasher::with_seed(1));
        let all = ENDED_MAX as i64 + 2;
        for id in 0..all {
            ended.add(SessionId(id));
            ended.add(SessionId(id));
        }
        assert!(!ended.contains(SessionId(1)) && ended.contains(SessionId(2)));
        assert_eq!((ended.all.len(), ended.oldest_first.len()), (ENDED_MAX, ENDED_MAX));
        ended.clear();
        assert!(!ended.contains(SessionId(all - 1)));
    }
}
