//! Sessions that have ended lately.
//!
//! Where sessions can be local, a leader takes writes of sessions it does not know: they may be local ones of
//! other servers. But a write of a session that everybody knew may have been on its way when the session
//! ended, through a server its client had left before: it must not be taken for one of those.

use std::collections::{HashSet, VecDeque};

use ironkeeper_proto::SessionId;

use crate::database::Hasher;

/// More than can end while a write is on its way: a leader gives up on learners it does not hear of.
const ENDED_MAX: usize = 1 << 16;

/// See the head of this file.
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
