//! The committed membership and, while a reconfig is in progress, the proposed one.

use bytes::Bytes;
use ironkeeper_proto::membership::{Member, PeerAddress, PeerRole};
use ironkeeper_proto::{Membership, ServerId, Zxid};

use crate::quorum::{Joint, Quorum};

#[derive(Clone, Debug)]
pub struct Ensemble {
    committed: Membership,
    /// Newer than the committed membership, and not yet committed.
    proposed: Option<Membership>,
    joint: Joint,
    /// The committed membership as text, as notifications contain it.
    text: Bytes,
}

impl Ensemble {
    pub fn new(committed: Membership, proposed: Option<Membership>) -> Ensemble {
        let joint =
            Joint { committed: Quorum::of(&committed), next: proposed.as_ref().map(Quorum::of) };
        let text = Bytes::from(committed.to_string());
        Ensemble { committed, proposed, joint, text }
    }

    /// Creates the ensemble of a standalone server: it is the only voter.
    pub(crate) fn of_one(me: ServerId) -> Ensemble {
        let address =
            PeerAddress { host: "localhost".to_owned(), quorum_port: 0, election_port: 0 };
        let member = Member {
            addresses: vec![address],
            role: PeerRole::Participant,
            client: None,
            secure_client: None,
        };
        Ensemble::new(Membership { members: [(me, member)].into(), ..Membership::default() }, None)
    }

    pub fn committed(&self) -> &Membership {
        &self.committed
    }

    pub fn proposed(&self) -> Option<&Membership> {
        self.proposed.as_ref()
    }

    /// Returns the newest membership received.
    pub fn last_seen(&self) -> &Membership {
        self.proposed.as_ref().unwrap_or(&self.committed)
    }

    /// Returns the committed membership as text.
    pub fn text(&self) -> Bytes {
        self.text.clone()
    }

    /// Returns the quorum for leadership, and for commits while a reconfig is in progress.
    pub fn joint(&self) -> &Joint {
        &self.joint
    }

    /// Returns the quorum for an epoch, and for commits otherwise.
    pub fn quorum(&self) -> &Quorum {
        &self.joint.committed
    }

    /// Records a proposed membership. Returns false if its version is not newer than the known
    /// ones.
    pub fn propose(&mut self, next: Membership) -> bool {
        if next.version <= self.last_seen().version {
            return false;
        }
        *self = Ensemble::new(std::mem::take(&mut self.committed), Some(next));
        true
    }

    /// Records a committed membership. Returns false if its version is not newer.
    pub fn commit(&mut self, next: Membership) -> bool {
        if next.version <= self.committed.version {
            return false;
        }
        let proposed = self.proposed.take().filter(|proposed| proposed.version > next.version);
        *self = Ensemble::new(next, proposed);
        true
    }

    /// Drops a proposed membership other than `version`, after synchronization with an established
    /// leader that knows of `version`: any other one was never committed.
    pub(crate) fn keep_only(&mut self, version: i64) -> bool {
        let gone = self.proposed.as_ref().is_some_and(|next| next.version != version);
        if gone {
            *self = Ensemble::new(std::mem::take(&mut self.committed), None);
        }
        gone
    }

    /// Drops a membership proposed after `last`, to which the log was truncated: it was never
    /// committed.
    pub(crate) fn withdraw_after(&mut self, last: Zxid) -> bool {
        let gone = self.proposed.as_ref().is_some_and(|next| next.version > last.0);
        if gone {
            *self = Ensemble::new(std::mem::take(&mut self.committed), None);
        }
        gone
    }

    /// Returns the voters of both memberships.
    pub fn all_voters(&self) -> impl Iterator<Item = ServerId> {
        let proposed = self.proposed.iter().flat_map(Membership::voters);
        self.committed.voters().chain(proposed.filter(|id| !self.committed.is_voter(*id)))
    }

    pub fn may_vote(&self, id: ServerId) -> bool {
        self.committed.is_voter(id) || self.proposed.as_ref().is_some_and(|next| next.is_voter(id))
    }

    /// Returns whether the server may lead. A voter of weight zero may not. While a reconfig is in
    /// progress, only voters of the committed membership may: a server that has not received the
    /// change accepts no vote for another one, and a quorum of old voters has everything that is
    /// committed.
    pub fn may_lead(&self, id: ServerId) -> bool {
        self.committed.is_voter(id) && self.committed.weight(id) != 0
    }

    /// Returns whether the server is an observer, and a voter in neither membership.
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
