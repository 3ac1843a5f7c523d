//! Fast leader election: one round of it, as a pure state machine.
//!
//! Every server proposes itself, adopts any better proposal it receives, and stops when a quorum
//! proposes the same server and no better proposal has arrived for `finalize_wait_ms`. Better is: a
//! larger peer epoch (the epoch whose history the server holds), then a larger zxid, then a larger
//! id. The wait is skipped if all voters that do not agree are known to be unreachable: servers
//! that have just lost their leader need not wait for its vote.
//!
//! Servers that already follow or lead reply with their vote. A quorum of such votes, one of them
//! from the leader itself, is enough to join.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_proto::election::PeerState;
use ironkeeper_proto::{Epoch, Notification, ServerId, Zxid};

use crate::ensemble::Ensemble;
use crate::settings::{Bug, Settings};
use crate::timers::{Timer, Timers};

/// A proposed leader, with the values by which votes are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    pub leader: ServerId,
    pub zxid: Zxid,
    pub round: i64,
    pub peer_epoch: Epoch,
}

impl Vote {
    fn of(notification: &Notification) -> Vote {
        Vote {
            leader: notification.leader,
            zxid: notification.zxid,
            round: notification.round,
            peer_epoch: notification.peer_epoch,
        }
    }
}

/// The vote of a server that is not LOOKING any more.
#[derive(Clone, Copy, Debug)]
struct Settled {
    vote: Vote,
    state: PeerState,
    format: i32,
}

/// The outputs of the state machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reaction {
    /// Send the current proposal to all voters.
    pub(crate) broadcast: bool,
    /// Send the current proposal to the sender: it is behind, or new in this round.
    pub(crate) reply: bool,
    /// Send the current proposal to the voters without a connection: another server has a leader,
    /// and they may know of it by now.
    pub(crate) ask_away: bool,
    /// The election has ended with this vote.
    pub(crate) elected: Option<Vote>,
}

#[derive(Debug)]
pub(crate) struct Election {
    me: ServerId,
    /// Our own vote at the start of a round.
    initial: Vote,
    proposal: Vote,
    /// The votes of the round. Bounded by the voters, as votes of other servers are ignored.
    received: BTreeMap<ServerId, Vote>,
    /// Votes of servers that follow or lead, of any round.
    settled: BTreeMap<ServerId, Settled>,
    /// Voters that could not be reached, or whose connection broke, and that have sent nothing
    /// since.
    away: BTreeSet<ServerId>,
    /// The interval after which the vote is sent to all again, and the time of the next.
    poll_ms: u64,
    poll_at_ms: u64,
}

/// The maximum interval after which voters without a connection are dialled again. It does not grow
/// with the time for which they are unreachable: a server that is reachable again need not wait for
/// as long once more.
const AWAY_RETRY_MS: u64 = 500;

impl Election {
    /// Begins a round. The caller sends the proposal to all voters.
    pub(crate) fn start(
        me: ServerId,
        initial: Vote,
        ensemble: &Ensemble,
        settings: &Settings,
        now_ms: u64,
        timers: &mut Timers,
    ) -> (Election, Option<Vote>) {
        let mut election = Election {
            me,
            initial,
            proposal: initial,
            received: BTreeMap::new(),
            settled: BTreeMap::new(),
            away: BTreeSet::new(),
            poll_ms: settings.notification_min_ms,
            poll_at_ms: now_ms + settings.notification_min_ms,
        };
        election.set_poll_timer(now_ms, timers);
        election.record_own(ensemble);
        let elected = election.judge(ensemble, settings, now_ms, timers);
        (election, elected)
    }

    pub(crate) fn proposal(&self) -> Vote {
        self.proposal
    }

    pub(crate) fn round(&self) -> i64 {
        self.proposal.round
    }

    /// Returns whether the vote is to be sent again to all voters (true; the interval doubles each
    /// time) or only to voters without a connection (false).
    pub(crate) fn on_poll(
        &mut self,
        settings: &Settings,
        now_ms: u64,
        timers: &mut Timers,
    ) -> bool {
        let to_all = now_ms >= self.poll_at_ms;
        if to_all {
            self.poll_ms = (self.poll_ms * 2).min(settings.notification_max_ms);
            self.poll_at_ms = now_ms + self.poll_ms;
        }
        self.set_poll_timer(now_ms, timers);
        to_all
    }

    fn set_poll_timer(&self, now_ms: u64, timers: &mut Timers) {
        timers.set(Timer::Poll, self.poll_at_ms.min(now_ms + AWAY_RETRY_MS));
    }

    /// Returns the elected vote: no better proposal arrived before `Timer::Finalize`.
    pub(crate) fn on_finalize(&self) -> Vote {
        self.proposal
    }

    /// Records that a voter cannot be reached; the election may have waited only for this voter.
    pub(crate) fn on_away(
        &mut self,
        id: ServerId,
        ensemble: &Ensemble,
        settings: &Settings,
        now_ms: u64,
        timers: &mut Timers,
    ) -> Option<Vote> {
        if !ensemble.may_vote(id) {
            return None;
        }
        self.away.insert(id);
        // Its last vote may be older than its failure.
        self.settled.remove(&id);
        self.judge(ensemble, settings, now_ms, timers)
    }

    pub(crate) fn on_notification(
        &mut self,
        from: ServerId,
        notification: &Notification,
        ensemble: &Ensemble,
        settings: &Settings,
        now_ms: u64,
        timers: &mut Timers,
    ) -> Reaction {
        if !ensemble.may_vote(from) || !ensemble.may_vote(notification.leader) {
            return Reaction::default();
        }
        self.away.remove(&from);
        match notification.state {
            PeerState::Looking => {
                self.on_looking(from, notification, ensemble, settings, now_ms, timers)
            }
            PeerState::Following | PeerState::Leading => {
                let before = self.settled.get(&from).map(|settled| settled.vote);
                let elected = self.on_settled(from, notification, ensemble);
                let ask_away = elected.is_none() && before != Some(Vote::of(notification));
                Reaction { elected, ask_away, ..Reaction::default() }
            }
            PeerState::Observing => Reaction::default(),
        }
    }

    fn on_looking(
        &mut self,
        from: ServerId,
        notification: &Notification,
        ensemble: &Ensemble,
        settings: &Settings,
        now_ms: u64,
        timers: &mut Timers,
    ) -> Reaction {
        // A server without a database that must not start with an empty one does not vote.
        if notification.zxid == Zxid(-1) || self.initial.zxid == Zxid(-1) {
            return Reaction::default();
        }
        let vote = Vote::of(notification);
        let mut broadcast = false;
        // A server that cannot lead and has seen no other candidate has no valid proposal, and its
        // votes are ignored: it joins any round, or two rounds would never meet.
        let has_none = !ensemble.may_lead(self.proposal.leader);
        if vote.round > self.proposal.round || (has_none && ensemble.may_lead(vote.leader)) {
            self.received.clear();
            let initial = Vote { round: vote.round, ..self.initial };
            self.proposal = if beats(&vote, &initial, ensemble, settings) { vote } else { initial };
            broadcast = true;
        } else if vote.round < self.proposal.round {
            // A non-voter is always sent a reply to its notification, so it must not reply itself:
            // two servers that reply to each other would never stop.
            return Reaction { reply: ensemble.may_vote(self.me), ..Reaction::default() };
        } else if beats(&vote, &self.proposal, ensemble, settings) {
            self.proposal = vote;
            broadcast = true;
        }
        if broadcast {
            timers.clear(Timer::Finalize);
            self.record_own(ensemble);
        }
        // A server that is LOOKING again has no leader that we could join.
        self.settled.remove(&from);
        let is_first = self.received.insert(from, vote).is_none();
        let elected = self.judge(ensemble, settings, now_ms, timers);
        // Our proposal may have reached that server before it was LOOKING; then it was not
        // recorded.
        let reply = is_first && ensemble.may_vote(self.me);
        Reaction { broadcast, reply, ask_away: false, elected }
    }

    /// Checks whether a quorum agrees. If all reachable voters do, the election ends without
    /// waiting.
    fn judge(
        &self,
        ensemble: &Ensemble,
        settings: &Settings,
        now_ms: u64,
        timers: &mut Timers,
    ) -> Option<Vote> {
        let agrees = |id: ServerId| self.received.get(&id) == Some(&self.proposal);
        if !ensemble.may_lead(self.proposal.leader) || !ensemble.joint().holds(agrees) {
            timers.clear(Timer::Finalize);
            return None;
        }
        if ensemble.all_voters().all(|id| agrees(id) || self.away.contains(&id)) {
            return Some(self.proposal);
        }
        if !timers.is_set(Timer::Finalize) {
            timers.set(Timer::Finalize, now_ms + settings.finalize_wait_ms);
        }
        None
    }

    /// Records the vote of a server that has a leader.
    fn on_settled(
        &mut self,
        from: ServerId,
        notification: &Notification,
        ensemble: &Ensemble,
    ) -> Option<Vote> {
        let (vote, format) = (Vote::of(notification), notification.format);
        let settled = Settled { vote, state: notification.state, format };
        self.settled.insert(from, settled);
        let same = |other: &Settled| {
            let comparable = (other.format == 0) == (format == 0);
            other.vote.leader == vote.leader
                && (!comparable || other.vote.peer_epoch == vote.peer_epoch)
        };
        // In the same round, votes of servers that are LOOKING count as well if they are equal.
        let in_round = |id: ServerId| match self.settled.get(&id) {
            Some(other) => other.vote.round == self.proposal.round && same(other),
            None => self.received.get(&id) == Some(&vote),
        };
        let outside = |id: ServerId| self.settled.get(&id).is_some_and(same);
        // The committed membership is enough: a change that we know and the others do not may never
        // have been committed, and following a leader does not yet count as a vote for it.
        let by_round = vote.round == self.proposal.round && ensemble.quorum().holds(in_round);
        if !by_round && !ensemble.quorum().holds(outside) {
            return None;
        }
        let leader_agrees = if vote.leader == self.me {
            // Servers that have not noticed the restart of a leader still name it. It may lead only
            // if it was elected in this round.
            vote.round == self.proposal.round
        } else {
            let leader = self.settled.get(&vote.leader);
            leader.is_some_and(|leader| leader.state == PeerState::Leading && same(leader))
        };
        leader_agrees.then_some(vote)
    }

    fn record_own(&mut self, ensemble: &Ensemble) {
        if ensemble.may_vote(self.me) {
            self.received.insert(self.me, self.proposal);
        }
    }
}

/// Returns whether a vote is better than another one.
fn beats(new: &Vote, current: &Vote, ensemble: &Ensemble, settings: &Settings) -> bool {
    if !ensemble.may_lead(new.leader) {
        return false;
    }
    if !ensemble.may_lead(current.leader) {
        return true;
    }
    if settings.has(Bug::VoteOrder) {
        return (new.leader, new.peer_epoch, new.zxid)
            > (current.leader, current.peer_epoch, current.zxid);
    }
    (new.peer_epoch, new.zxid, new.leader) > (current.peer_epoch, current.zxid, current.leader)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::Membership;

    struct Table {
        election: Election,
        ensemble: Ensemble,
        settings: Settings,
        timers: Timers,
    }

    fn ensemble(text: &str) -> Ensemble {
        Ensemble::new(Membership::parse(text).unwrap(), None)
    }

    const THREE: &str = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2";

    /// Returns a table in which server 2 begins round 5 with zxid 1:7 of epoch 1.
    fn table(text: &str) -> Table {
        let (ensemble, settings, mut timers) =
            (ensemble(text), Settings::default(), Timers::default());
        let initial = vote(2, 7, 5, 1);
        let (election, elected) =
            Election::start(ServerId(2), initial, &ensemble, &settings, 0, &mut timers);
        assert_eq!(elected, None);
        Table { election, ensemble, settings, timers }
    }

    fn vote(leader: i64, counter: u32, round: i64, epoch: i64) -> Vote {
        let zxid = Zxid::new(Epoch(1), counter);
        Vote { leader: ServerId(leader), zxid, round, peer_epoch: Epoch(epoch) }
    }

    impl Table {
        fn hears(&mut self, from: i64, state: PeerState, vote: Vote) -> Reaction {
            let Vote { leader, zxid, round, peer_epoch } = vote;
            let config = bytes::Bytes::new();
            let notification =
                Notification { state, leader, zxid, round, peer_epoch, format: 2, config };
            self.election.on_notification(
                ServerId(from),
                &notification,
                &self.ensemble,
                &self.settings,
                0,
                &mut self.timers,
            )
        }

        fn looking(&mut self, from: i64, vote: Vote) -> Reaction {
            self.hears(from, PeerState::Looking, vote)
        }
    }

    #[test]
    fn epoch_counts_more_than_log_and_log_more_than_id() {
        for (better, worse) in [
            (vote(1, 1, 5, 2), vote(3, 9, 5, 1)),
            (vote(1, 9, 5, 1), vote(3, 8, 5, 1)),
            (vote(3, 9, 5, 1), vote(1, 9, 5, 1)),
        ] {
            let ensemble = ensemble(THREE);
            assert!(beats(&better, &worse, &ensemble, &Settings::default()));
            assert!(!beats(&worse, &better, &ensemble, &Settings::default()));
        }
        let weighted =
            ensemble("server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\ngroup.1=1:2:3\nweight.3=0");
        assert!(!beats(&vote(3, 9, 5, 9), &vote(1, 1, 5, 1), &weighted, &Settings::default()));
    }

    #[test]
    fn a_better_vote_is_taken_over_and_a_quorum_waits_for_better_ones() {
        let mut table = table(THREE);
        let better = vote(3, 8, 5, 1);
        assert!(table.looking(3, better).broadcast);
        assert_eq!(table.election.proposal(), better);
        assert!(table.timers.is_set(Timer::Finalize), "two of three agree");
        let best = vote(1, 9, 5, 1);
        assert!(table.looking(1, best).broadcast);
        assert_eq!(table.election.on_finalize(), best);
        assert_eq!(table.looking(3, best).elected, Some(best), "all agree: nobody to wait for");
    }

    #[test]
    fn those_who_are_away_are_not_waited_for_until_they_speak() {
        let mut table = table(THREE);
        let away = |table: &mut Table, id: i64| {
            let Table { election, ensemble, settings, timers } = table;
            election.on_away(ServerId(id), ensemble, settings, 0, timers)
        };
        let mine = vote(2, 7, 5, 1);
        assert_eq!(away(&mut table, 3), None, "one is no quorum, whoever is away");
        assert_eq!(table.looking(1, mine).elected, Some(mine));

        let mut table = self::table(THREE);
        assert_eq!(table.looking(1, mine).elected, None, "the third may still speak");
        assert_eq!(away(&mut table, 3), Some(mine));

        let mut table = self::table(THREE);
        assert_eq!(away(&mut table, 3), None);
        assert_eq!(table.looking(3, vote(3, 6, 5, 1)).elected, None);
        assert_eq!(table.looking(1, mine).elected, None, "it is back, and has not agreed yet");
    }

    #[test]
    fn later_rounds_start_over_and_earlier_ones_are_told() {
        let mut table = table(THREE);
        assert!(table.looking(1, vote(1, 9, 4, 1)).reply);
        assert_eq!(table.election.proposal(), vote(2, 7, 5, 1));
        let reaction = table.looking(1, vote(1, 3, 8, 1));
        assert!(reaction.broadcast);
        assert_eq!(table.election.proposal(), vote(2, 7, 8, 1), "our own is better, in that round");
    }

    #[test]
    fn who_does_not_vote_does_not_answer_votes() {
        let mut table = table("server.1=a:1:2\nserver.2=b:1:2:observer\nserver.3=c:1:2");
        assert!(table.looking(1, vote(1, 3, 8, 1)).broadcast, "it asks in the round of the others");
        assert_eq!(table.looking(3, vote(3, 3, 7, 1)), Reaction::default());
    }

    /// ZOOKEEPER-1732, 1805, 1818.
    #[test]
    fn an_established_leader_is_joined_once_it_speaks_itself() {
        let mut table = table(THREE);
        let established = vote(3, 0, 2, 4);
        let from_follower = table.hears(1, PeerState::Following, established);
        assert_eq!(from_follower.elected, None);
        let from_leader = table.hears(3, PeerState::Leading, established);
        assert_eq!(from_leader.elected, Some(established));
    }

    #[test]
    fn followers_alone_do_not_make_a_leader() {
        let mut table = table(
            "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2\n\
            server.5=e:1:2",
        );
        let dead = vote(3, 0, 2, 4);
        for follower in [1, 4, 5] {
            assert_eq!(table.hears(follower, PeerState::Following, dead).elected, None);
        }
    }

    /// ZOOKEEPER-1419, 1514.
    #[test]
    fn a_restarted_leader_does_not_take_up_an_office_of_another_round() {
        let mut table = table(THREE);
        let mine = vote(2, 7, 3, 1);
        assert_eq!(table.hears(1, PeerState::Following, mine).elected, None);
        assert_eq!(table.hears(3, PeerState::Following, mine).elected, None);
    }

    #[test]
    fn votes_of_and_for_outsiders_are_ignored() {
        let mut table = table("server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2:observer");
        assert_eq!(table.looking(3, vote(3, 9, 9, 9)), Reaction::default());
        assert_eq!(table.looking(1, vote(3, 9, 9, 9)), Reaction::default());
        assert_eq!(table.looking(7, vote(1, 9, 9, 9)), Reaction::default());
        assert_eq!(table.election.proposal(), vote(2, 7, 5, 1));
    }
}
