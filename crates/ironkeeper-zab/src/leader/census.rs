//! Who has come to a leader, for administrators.

use super::{Leader, Peer, Stage};
use crate::ensemble::Ensemble;
use crate::learner::Kind;

/// The learners of a leader, and what they wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Census {
    /// All that have said who they are.
    pub learners: usize,
    /// Voters that are up to date.
    pub synced_followers: usize,
    /// Followers without a vote that are up to date.
    pub synced_non_voting_followers: usize,
    /// Observers that are up to date.
    pub synced_observers: usize,
    /// `sync`s that are not answered yet.
    pub pending_syncs: usize,
}

impl Leader {
    pub(crate) fn census(&self, ensemble: &Ensemble) -> Census {
        let synced = |counts: &dyn Fn(&Peer) -> bool| {
            self.peers.values().filter(|peer| peer.stage == Stage::Live && counts(peer)).count()
        };
        Census {
            learners: self.peers.values().filter(|peer| peer.stage > Stage::Accepted).count(),
            synced_followers: synced(&|peer| {
                peer.kind == Kind::Follower && ensemble.may_vote(peer.id)
            }),
            synced_non_voting_followers: synced(&|peer| {
                peer.kind == Kind::Follower && !ensemble.may_vote(peer.id)
            }),
            synced_observers: synced(&|peer| peer.kind == Kind::Observer),
            pending_syncs: self.syncs.len(),
        }
    }
}
