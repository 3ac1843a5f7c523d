//! The election port: votes of other servers, and our own vote as it is sent to them.

use ironkeeper_proto::election::PeerState;
use ironkeeper_proto::{Membership, Notification, ServerId, Zxid, membership};

use crate::choice::Choice;
use crate::election::{Reaction, Vote};
use crate::io::{LinkId, Output, Reason, push_members_committed};
use crate::settings::Bug;
use crate::shared::{Next, Shared};
use crate::zab::{Role, Zab};

impl Zab {
    pub(crate) fn on_notification(
        &mut self,
        link: LinkId,
        notification: &Notification,
        out: &mut Vec<Output>,
    ) {
        let Some(from) = self.mesh.peer_of(link) else { return };
        if matches!(self.role, Role::Looking(_)) && self.adopt_config(from, notification, out) {
            return self.become_looking(out);
        }
        if notification.state == PeerState::Looking {
            self.shared.looking.insert(from);
        } else {
            self.shared.looking.remove(&from);
        }
        let ensemble = &self.shared.ensemble;
        if !ensemble.may_vote(from) {
            if notification.state != PeerState::Looking {
                return;
            }
            // Its vote is not counted, but it needs a reply to find the leader. A server that
            // considers itself a voter would reply to our vote while we are LOOKING, and we to its
            // reply: so the rate of these replies is limited.
            if matches!(self.role, Role::Looking(_)) && !self.may_tell_stranger(from) {
                return;
            }
            let vote = Vote { round: self.round, ..self.current_vote() };
            return self.tell(from, vote, out);
        }
        if self.is_choice_lost(|choice| choice.on_vote(from, notification)) {
            return self.become_settling(Reason::ChoiceLost, out);
        }
        let ensemble = &self.shared.ensemble;
        match &mut self.role {
            Role::New | Role::Settling => {}
            Role::Looking(election) => {
                let Shared { ensemble, settings, timers, now_ms, .. } = &mut self.shared;
                let reaction = election.on_notification(
                    from,
                    notification,
                    ensemble,
                    settings,
                    *now_ms,
                    timers,
                );
                let (vote, round) = (election.proposal(), election.round());
                self.round = round;
                self.react(from, vote, reaction, out);
            }
            Role::Learning(_) | Role::Leading(_) => {
                if let Role::Learning(learner) = &mut self.role {
                    learner.on_vote(from);
                }
                // A non-voter does not reply. Its vote would not be counted; and Apache's voters
                // reply to non-voters in any case, so the exchange would never end.
                if notification.state == PeerState::Looking && ensemble.may_vote(self.shared.me) {
                    self.tell(from, self.shared.vote, out);
                }
            }
        }
    }

    /// Handles a follower that closed its link before this leader is established. Without it a
    /// quorum may have become impossible.
    pub(crate) fn on_follower_left(&mut self, id: ServerId, out: &mut Vec<Output>) {
        if self.is_choice_lost(|choice| choice.on_left(id)) {
            self.become_settling(Reason::ChoiceLost, out);
        }
    }

    /// Passes an event to the provisional leader and returns whether it cannot lead any more.
    pub(crate) fn is_choice_lost(&mut self, happens: impl FnOnce(&mut Choice)) -> bool {
        let (is_unconfirmed, leader) = match &self.role {
            Role::Learning(learner) => (learner.is_unconfirmed(), None),
            Role::Leading(leader) => (leader.is_unconfirmed(), Some(leader)),
            Role::New | Role::Settling | Role::Looking(_) => (false, None),
        };
        let Some(choice) = self.choice.as_mut().filter(|_| is_unconfirmed) else { return false };
        happens(choice);
        let follows = |id| leader.is_some_and(|leader| leader.has_greeted(id));
        let (me, chosen, mesh) = (self.shared.me, self.shared.vote.leader, &self.mesh);
        let is_away = |id: ServerId| id != me && id != chosen && !mesh.is_linked(id);
        choice.is_lost(&self.shared.ensemble, follows, is_away)
            && !self.shared.settings.has(Bug::KeepChoice)
    }

    fn may_tell_stranger(&mut self, id: ServerId) -> bool {
        let (now_ms, pause_ms) = (self.shared.now_ms, self.shared.settings.notification_min_ms);
        self.strangers_told.retain(|_, told_ms| now_ms.saturating_sub(*told_ms) < pause_ms);
        let is_new = !self.strangers_told.contains_key(&id);
        if is_new {
            self.strangers_told.insert(id, now_ms);
        }
        is_new
    }

    /// Handles a server that cannot be reached on the election port.
    pub(crate) fn on_away(&mut self, peer: ServerId, out: &mut Vec<Output>) {
        match &mut self.role {
            Role::Looking(election) => {
                let Shared { ensemble, settings, timers, now_ms, .. } = &mut self.shared;
                if let Some(vote) = election.on_away(peer, ensemble, settings, *now_ms, timers) {
                    self.become_elected(vote, out);
                }
            }
            Role::Learning(learner) => {
                if let Next::Look(reason) = learner.on_away(&self.shared, peer) {
                    self.become_settling(reason, out);
                }
            }
            Role::New | Role::Settling | Role::Leading(_) => {}
        }
    }

    fn react(&mut self, from: ServerId, proposal: Vote, reaction: Reaction, out: &mut Vec<Output>) {
        if reaction.broadcast {
            self.broadcast(proposal, out);
        } else if reaction.reply {
            self.tell(from, proposal, out);
        }
        if reaction.ask_away {
            self.ask_away(proposal, out);
        }
        if let Some(vote) = reaction.elected {
            self.become_elected(vote, out);
        }
    }

    /// Adopts a newer membership from a notification; it is in force at the sender. Returns whether
    /// the members differ, so that the election has to restart.
    pub(crate) fn adopt_config(
        &mut self,
        from: ServerId,
        notification: &Notification,
        out: &mut Vec<Output>,
    ) -> bool {
        if !self.shared.settings.reconfig_enabled || notification.config.is_empty() {
            return false;
        }
        // A notification with an unreadable membership still carries a vote.
        let text = String::from_utf8_lossy(&notification.config);
        let Ok(membership) = Membership::parse(&text) else { return false };
        if !self.may_be_ours(from, &membership) {
            return false;
        }
        let same = membership.same_members(self.shared.ensemble.committed());
        if !self.shared.ensemble.commit(membership) {
            return false;
        }
        let committed = self.shared.ensemble.committed().clone();
        push_members_committed(out, committed);
        if same {
            return false;
        }
        self.mesh.restart(out);
        self.shared.looking.clear();
        self.round = 0;
        self.shared.timers.clear_all();
        true
    }

    /// Returns whether a received membership can be a successor of ours. It must have voters, and a
    /// version with a plausible epoch. If the sender is a member of it, at least one of its members
    /// must be known here with one of its addresses. If the sender is not, the sender must be a
    /// member of ours: it may be the only server we know that has received the new membership. Any
    /// program can send a notification, and an adopted membership is stored.
    fn may_be_ours(&self, from: ServerId, next: &Membership) -> bool {
        let known = &self.shared.ensemble.committed().members;
        let is_known = |(id, member): (&ServerId, &membership::Member)| {
            known.get(id).is_some_and(|known| {
                known.addresses.iter().any(|address| member.addresses.contains(address))
            })
        };
        let epoch = Zxid(next.version).epoch();
        let epoch_max = self.shared.epoch_in_reach();
        let is_related = match next.members.contains_key(&from) {
            true => next.members.iter().any(is_known),
            false => known.contains_key(&from),
        };
        is_related && next.voters().next().is_some() && epoch <= epoch_max
    }

    fn current_vote(&self) -> Vote {
        match &self.role {
            Role::Looking(election) => election.proposal(),
            Role::New | Role::Settling | Role::Learning(_) | Role::Leading(_) => self.shared.vote,
        }
    }

    fn notification(&self, vote: Vote) -> Notification {
        let observes = self.shared.ensemble.is_observer(self.shared.me);
        let state = match self.role {
            Role::New | Role::Settling | Role::Looking(_) => PeerState::Looking,
            Role::Leading(_) => PeerState::Leading,
            Role::Learning(_) if observes => PeerState::Observing,
            Role::Learning(_) => PeerState::Following,
        };
        Notification {
            state,
            leader: vote.leader,
            zxid: vote.zxid,
            round: vote.round,
            peer_epoch: vote.peer_epoch,
            format: Notification::FORMAT,
            config: self.shared.ensemble.text(),
        }
    }

    pub(crate) fn tell(&mut self, to: ServerId, vote: Vote, out: &mut Vec<Output>) {
        let notification = self.notification(vote);
        self.mesh.send(to, notification, out);
    }

    pub(crate) fn broadcast(&mut self, vote: Vote, out: &mut Vec<Output>) {
        let notification = self.notification(vote);
        for to in self.shared.ensemble.all_voters() {
            if to != self.shared.me {
                self.mesh.send(to, notification.clone(), out);
            }
        }
    }

    /// Sends the vote to the voters without a link, which makes the mesh dial them.
    pub(crate) fn ask_away(&mut self, vote: Vote, out: &mut Vec<Output>) {
        if self.shared.settings.has(Bug::OnlyAnswer) {
            return;
        }
        let notification = self.notification(vote);
        for to in self.shared.ensemble.all_voters() {
            if to != self.shared.me && !self.mesh.is_linked(to) {
                self.mesh.send(to, notification.clone(), out);
            }
        }
    }
}
