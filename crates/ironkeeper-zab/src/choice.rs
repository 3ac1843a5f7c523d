//! The provisional leader, and the votes against it.
//!
//! A server may end its election before the vote of a better candidate has arrived, while the
//! others elect that candidate. Until the provisional leader sends LEADERINFO (or, if this server
//! elected itself, until a quorum has acknowledged NEWLEADER), later votes are compared with the
//! elected server. A vote is against it if it names another leader or belongs to a later round. The
//! election is abandoned as soon as the elected server's own vote is against itself, or the voters
//! that are not against it form no quorum. A follower whose link was closed counts like such a
//! vote; one that is connected does not count, whatever its vote.

use std::collections::BTreeSet;

use ironkeeper_proto::election::PeerState;
use ironkeeper_proto::{Notification, ServerId};

use crate::election::Vote;
use crate::ensemble::Ensemble;

#[derive(Debug)]
pub(crate) struct Choice {
    leader: ServerId,
    round: i64,
    /// Voters whose latest vote names another leader.
    against: BTreeSet<ServerId>,
}

impl Choice {
    pub(crate) fn new(vote: &Vote) -> Choice {
        Choice { leader: vote.leader, round: vote.round, against: BTreeSet::new() }
    }

    /// Records a voter's vote.
    pub(crate) fn on_vote(&mut self, from: ServerId, vote: &Notification) {
        // The first vote on a new connection may be an old one, sent again.
        let is_old = vote.round < self.round;
        let is_chosen = from == self.leader;
        let against = match vote.state {
            PeerState::Looking if is_old => return,
            // A server that is LOOKING in a later round has abandoned the leader of this one.
            PeerState::Looking if vote.round > self.round => true,
            PeerState::Following if is_old && !is_chosen => return,
            PeerState::Leading if is_old => return,
            PeerState::Observing => return,
            _ => vote.leader != self.leader,
        };
        if against {
            self.against.insert(from);
        } else {
            self.against.remove(&from);
        }
    }

    /// Records that a voter which had begun to follow closed its link before the provisional leader
    /// was established.
    pub(crate) fn on_left(&mut self, id: ServerId) {
        self.against.insert(id);
    }

    /// Returns whether the provisional leader cannot lead. `follows` is true for voters that follow
    /// it regardless of their vote, `is_away` for voters that are not connected: if there are votes
    /// against it, it does not wait for them.
    pub(crate) fn is_lost(
        &self,
        ensemble: &Ensemble,
        follows: impl Fn(ServerId) -> bool,
        is_away: impl Fn(ServerId) -> bool,
    ) -> bool {
        let is_against = |id: ServerId| self.against.contains(&id) && !follows(id);
        let may_come = |id: ServerId| follows(id) || !is_against(id) && !is_away(id);
        let has_doubt = self.against.iter().any(|id| is_against(*id));
        is_against(self.leader) || has_doubt && !ensemble.quorum().holds(may_come)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::{Epoch, Membership, Zxid};

    const FIVE: &str =
        "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2\nserver.5=e:1:2";

    fn vote(state: PeerState, leader: i64, round: i64) -> Notification {
        Notification {
            state,
            leader: ServerId(leader),
            zxid: Zxid(0),
            round,
            peer_epoch: Epoch(1),
            format: 2,
            config: bytes::Bytes::new(),
        }
    }

    /// Returns whether these votes end the provisional leadership of server 2, elected in round 5.
    fn is_lost(votes: &[(i64, PeerState, i64, i64)]) -> bool {
        let ensemble = Ensemble::new(Membership::parse(FIVE).unwrap(), None);
        let (zxid, peer_epoch) = (Zxid(0), Epoch(1));
        let mut choice = Choice::new(&Vote { leader: ServerId(2), zxid, round: 5, peer_epoch });
        for (from, state, leader, round) in votes {
            choice.on_vote(ServerId(*from), &vote(*state, *leader, *round));
        }
        choice.is_lost(&ensemble, |_| false, |_| false)
    }

    use PeerState::{Following, Leading, Looking};

    #[test]
    fn the_chosen_servers_own_vote_ends_it() {
        assert!(is_lost(&[(2, Looking, 3, 5)]), "it prefers another one");
        assert!(is_lost(&[(2, Following, 3, 5)]), "it follows another one");
        assert!(is_lost(&[(2, Following, 3, 4)]), "of an earlier round");
        assert!(is_lost(&[(2, Looking, 2, 6)]), "it has begun another round");
        assert!(!is_lost(&[(2, Looking, 2, 5)]), "it has not finished");
        assert!(!is_lost(&[(2, Leading, 2, 5)]));
        assert!(!is_lost(&[(2, Looking, 3, 4)]), "sent again on a new connection");
    }

    #[test]
    fn so_do_the_votes_of_so_many_that_the_rest_is_no_quorum() {
        let two = [(3, Looking, 5, 5), (5, Looking, 5, 5)];
        assert!(!is_lost(&two), "three of five are left");
        assert!(is_lost(&[two[0], two[1], (4, Following, 5, 5)]));
        assert!(!is_lost(&[two[0], two[1], (4, Following, 5, 4)]), "an old one");
        assert!(!is_lost(&[two[0], two[1], (4, Looking, 5, 5), (3, Looking, 2, 5)]));
        let later = [(3, Looking, 2, 6), (4, Looking, 2, 6), (5, Looking, 2, 7)];
        assert!(!is_lost(&later[..2]));
        assert!(is_lost(&later), "they have begun another round");
    }
}
