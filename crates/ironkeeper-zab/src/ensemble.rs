//! The members: those in force, and those proposed while a change is under way.

use bytes::Bytes;
use ironkeeper_proto::membership::PeerRole;
use ironkeeper_proto::{Membership, ServerId, Zxid};

use crate::quorum::{Joint, Quorum};

#[derive(Clone, Debug)]
pub struct Ensemble {
    committed: Membership,
    /// Newer than the committed one, and not yet committed.
    proposed: Option<Membership>,
    joint: Joint,
    /// The committed one as text, as notifications carry it.
    text: Bytes,
}

impl Ensemble {
    pub fn new(committed: Membership, proposed: Option<Membership>) -> Ensemble {
        let joint =
            Joint { committed: Quorum::of(&committed), next: proposed.as_ref().map(Quorum::of) };
        let text = Bytes::from(committed.to_string());
        Ensemble { committed, proposed, joint, text }
    }

    pub fn committed(&self) -> &Membership {
        &self.committed
    }

    pub fn proposed(&self) -> Option<&Membership> {
        self.proposed.as_ref()
    }

    /// The newest one anybody has told us of.
    pub fn last_seen(&self) -> &Membership {
        self.proposed.as_ref().unwrap_or(&self.committed)
    }

    /// The committed one as text.
    pub fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// What is needed for leadership, and for commits while a change is under way.
    pub fn joint(&self) -> &Joint {
        &self.joint
    }

    /// What is needed for an epoch, and for commits otherwise.
    pub fn quorum(&self) -> &Quorum {
        &self.joint.committed
    }

    /// A change is proposed. Older ones than what is known are not news.
    pub fn propose(&mut self, next: Membership) -> bool {
        if next.version <= self.last_seen().version {
            return false;
        }
        *self = Ensemble::new(std::mem::take(&mut self.committed), Some(next));
        true
    }

    /// A configuration is in force.
    pub fn commit(&mut self, next: Membership) -> bool {
        if next.version <= self.committed.version {
            return false;
        }
        let proposed = self.proposed.take().filter(|proposed| proposed.version > next.version);
        *self = Ensemble::new(next, proposed);
        true
    }

    /// An established leader's history is ours, and so is what it knows of: another change than that
    /// has never been.
    pub(crate) fn keep_only(&mut self, version: i64) -> bool {
        let gone = self.proposed.as_ref().is_some_and(|next| next.version != version);
        if gone {
            *self = Ensemble::new(std::mem::take(&mut self.committed), None);
        }
        gone
    }

    /// The log has gone back to `last`: a change proposed behind that has never been.
    pub(crate) fn withdraw_after(&mut self, last: Zxid) -> bool {
        let gone = self.proposed.as_ref().is_some_and(|next| next.version > last.0);
        if gone {
            *self = Ensemble::new(std::mem::take(&mut self.committed), None);
        }
        gone
    }

    /// Everybody who votes in one of the two.
    pub fn all_voters(&self) -> impl Iterator<Item = ServerId> {
        let proposed = self.proposed.iter().flat_map(Membership::voters);
        self.committed.voters().chain(proposed.filter(|id| !self.committed.is_voter(*id)))
    }

    pub fn may_vote(&self, id: ServerId) -> bool {
        self.committed.is_voter(id) || self.proposed.as_ref().is_some_and(|next| next.is_voter(id))
    }

    /// Whoever weighs nothing may agree but not lead. And while a change is under way only those lead
    /// who vote already: a server that has not heard of the change would take no vote for another one,
    /// and an old voter has everything that is committed.
    pub fn may_lead(&self, id: ServerId) -> bool {
        self.committed.is_voter(id) && self.committed.weight(id) != 0
    }

    /// Whether it only listens. Whoever votes in one of the two does not.
    pub fn is_observer(&self, id: ServerId) -> bool {
        let observes = |membership: &Membership| {
            membership.members.get(&id).is_some_and(|member| member.role == PeerRole::Observer)
        };
        !self.may_vote(id) && observes(&self.committed)
    }

    pub fn is_member(&self, id: ServerId) -> bool {
        self.committed.members.contains_key(&id)
            || self.proposed.as_ref().is_some_and(|next| next.members.contains_key(&id))
    }
}
