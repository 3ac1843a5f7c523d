//! A member of an ensemble: its present role and the transitions between roles.
//!
//! ```text
//!            ┌──────────── any reason ────────────┐
//!            ▼                                    │
//!        Settling ──► Looking ──► Leading / Following / Observing
//! ```
//! *Settling*: a server does not vote before all its durable steps have completed and its state is
//! at the end of its log. Otherwise a step of the old role that completes during the election would
//! make the vote wrong.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ironkeeper_proto::election::PeerState;
use ironkeeper_proto::membership;
use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerMessage};
use ironkeeper_proto::{Epoch, Membership, Notification, Packet, ServerId, Zxid};

use crate::LearnerView;
use crate::choice::Choice;
use crate::election::{Election, Reaction, Vote};
use crate::ensemble::Ensemble;
use crate::io::{
    Durable, DurableStep, Hangup, Input, LinkId, LinkOp, MembersChange, Output, Port, Reason,
    Status, Upcall, push_members_committed,
};
use crate::leader::Leader;
use crate::learner::{Kind, Learner};
use crate::ledger::Ledger;
use crate::mesh::Mesh;
use crate::reconfig::ReconfigRefused;
use crate::renewals::Renewals;
use crate::settings::{Bug, Settings};
use crate::timers::{Timer, Timers};

/// The epochs of a server, as they are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Epochs {
    /// acceptedEpoch: the latest epoch in which this server has agreed to follow a leader.
    pub accepted: Epoch,
    /// currentEpoch: the latest epoch with whose leader this server has synchronized.
    pub current: Epoch,
}

/// The state from which a member starts. The tree was rebuilt from the whole log, and the log was
/// synced once, because recovery may have read it from the page cache.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub epochs: Epochs,
    /// The last transaction in the log, or the zxid of the snapshot if the log has none after it.
    pub last: Zxid,
    /// The zxid after which the log has no gap: a snapshot that came from a leader, or the
    /// beginning.
    pub log_from: Zxid,
    /// The last transactions, up to `last`, without a gap.
    pub history: Vec<(Zxid, Bytes)>,
    /// The zxid before the first transaction of `history`.
    pub history_base: Zxid,
}

/// The state that all roles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) me: ServerId,
    pub(crate) settings: Settings,
    pub(crate) ensemble: Ensemble,
    pub(crate) epochs: Epochs,
    pub(crate) timers: Timers,
    pub(crate) now_ms: u64,
    /// The largest acceptedEpoch that a member has sent.
    pub(crate) accepted_seen: Epoch,
    /// Servers that are LOOKING, by their last vote on the link between the election ports. Bounded
    /// by the mesh.
    pub(crate) looking: BTreeSet<ServerId>,
    pub(crate) renewals: Renewals,
    /// The number of durable steps other than appends that are not complete.
    pub(crate) steps_open: usize,
    /// The result of the last election; also the reply to other servers' notifications.
    pub(crate) vote: Vote,
    /// Our history cannot be repaired with DIFF or TRUNC.
    pub(crate) needs_snapshot: bool,
    random: u64,
}

/// The maximum difference between the epochs of two servers of an ensemble: more than any number of
/// elections that a server can have missed. A larger difference is an error or an attack, and would
/// use up the epoch numbers.
const EPOCH_LEAP: i64 = 1 << 20;

impl Shared {
    /// Returns the largest epoch that is accepted from another server.
    pub(crate) fn epoch_in_reach(&self) -> Epoch {
        Epoch(self.epochs.accepted.0.saturating_add(EPOCH_LEAP))
    }
}

/// The state and the outputs that a role works with.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) out: &'a mut Vec<Output>,
}

impl Context<'_> {
    pub(crate) fn send(&mut self, link: LinkId, packet: Packet) {
        self.out.push(Output::Link(LinkOp::Send { link, packet }));
    }

    pub(crate) fn hang_up(&mut self, link: LinkId, reason: Hangup) {
        self.out.push(Output::Link(LinkOp::Hangup { link, reason }));
    }

    pub(crate) fn write_accepted(&mut self, epoch: Epoch) {
        self.shared.steps_open += 1;
        self.out.push(Output::Durable(DurableStep::WriteAcceptedEpoch(epoch)));
    }

    pub(crate) fn write_current(&mut self, epoch: Epoch) {
        self.shared.steps_open += 1;
        self.out.push(Output::Durable(DurableStep::WriteCurrentEpoch(epoch)));
    }

    pub(crate) fn set_timer(&mut self, timer: Timer, in_ms: u64) {
        let at_ms = self.shared.now_ms + in_ms;
        self.shared.timers.set(timer, at_ms);
    }
}

/// Whether a role continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Look(Reason),
}

#[derive(Debug)]
enum Role {
    /// Before the first input.
    New,
    Settling,
    Looking(Election),
    Learning(Box<Learner>),
    Leading(Box<Leader>),
}

#[derive(Debug)]
pub(crate) struct Member {
    shared: Shared,
    mesh: Mesh,
    /// The election round (logical clock). Reset to 0 when another membership is adopted.
    round: i64,
    role: Role,
    /// When each non-voter was last sent our vote during an election. Bounded by the mesh.
    strangers_told: BTreeMap<ServerId, u64>,
    /// The provisional leader; used until it is confirmed.
    choice: Option<Choice>,
    /// Learners that connected before this server knows whether it leads. Bounded by the driver's
    /// limit on connections.
    early: BTreeMap<LinkId, EarlyLearner>,
}

/// A link that was accepted on the quorum port during an election: this server may be about to
/// lead. (An Apache server refuses such a connection, and its learners try again; a learner whose
/// link is closed starts a new election.)
#[derive(Debug)]
struct EarlyLearner {
    until_ms: u64,
    /// FOLLOWERINFO or OBSERVERINFO. The learner sends nothing more before it gets a reply.
    greeting: Option<Packet>,
}

/// How long the link of an early learner is kept.
const EARLY_LEARNER_MS: u64 = 500;

impl Member {
    pub(crate) fn new(
        me: ServerId,
        settings: Settings,
        ensemble: Ensemble,
        epochs: Epochs,
        seed: u64,
    ) -> Member {
        let nobody = Vote {
            leader: ServerId::NOBODY,
            zxid: Zxid::ZERO,
            round: 0,
            peer_epoch: epochs.current,
        };
        let shared = Shared {
            me,
            settings,
            ensemble,
            epochs,
            accepted_seen: epochs.accepted,
            looking: BTreeSet::new(),
            renewals: Renewals::default(),
            timers: Timers::default(),
            now_ms: 0,
            steps_open: 0,
            vote: nobody,
            needs_snapshot: false,
            random: seed | 1,
        };
        let (mesh, strangers_told) = (Mesh::new(me), BTreeMap::new());
        let (choice, early) = (None, BTreeMap::new());
        Member { shared, mesh, round: 0, role: Role::New, strangers_told, choice, early }
    }

    pub(crate) fn deadline_ms(&self) -> u64 {
        match self.role {
            Role::New => 0,
            _ => self.shared.timers.deadline_ms().min(self.early_until_ms()),
        }
    }

    /// Returns when the first early learner times out.
    fn early_until_ms(&self) -> u64 {
        self.early.values().map(|early| early.until_ms).min().unwrap_or(u64::MAX)
    }

    pub(crate) fn ensemble(&self) -> &Ensemble {
        &self.shared.ensemble
    }

    pub(crate) fn epochs(&self) -> Epochs {
        self.shared.epochs
    }

    pub(crate) fn status(&self) -> Status {
        match &self.role {
            Role::New | Role::Settling | Role::Looking(_) => Status::Looking,
            Role::Learning(learner) => learner.status(),
            Role::Leading(leader) => leader.status(),
        }
    }

    pub(crate) fn learners(&self) -> Vec<LearnerView> {
        match &self.role {
            Role::Leading(leader) => leader.learners(),
            _ => Vec::new(),
        }
    }

    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = &LeaderMessage> {
        let leader = match &self.role {
            Role::Leading(leader) => Some(leader),
            Role::New | Role::Settling | Role::Looking(_) | Role::Learning(_) => None,
        };
        leader.into_iter().flat_map(|leader| leader.unconfirmed())
    }

    pub(crate) fn accepts_proposals(&self, ledger: &Ledger) -> bool {
        match &self.role {
            Role::Leading(leader) => leader.accepts_proposals(&self.shared, ledger),
            _ => false,
        }
    }

    pub(crate) fn step(
        &mut self,
        ledger: &mut Ledger,
        now_ms: u64,
        input: Input,
        out: &mut Vec<Output>,
    ) {
        // Time never goes back: it would only make deadlines later.
        self.shared.now_ms = self.shared.now_ms.max(now_ms);
        if matches!(self.role, Role::New) {
            self.become_settling(ledger, Reason::Started, out);
        }
        let served = self.status() != Status::Looking;
        match input {
            Input::Timer => {}
            Input::Dialed { peer, port: Port::Election, link } => {
                self.mesh.on_dialed(peer, link, out);
                // A server with a link is reachable, whether or not a dial failed.
                if link.is_none() && !self.mesh.is_linked(peer) {
                    self.on_away(ledger, peer, out);
                }
            }
            Input::Dialed { peer, port: Port::Quorum, link } => {
                self.on_dialed(ledger, peer, link, out);
            }
            Input::Opened { link, opening, from_its_address } => {
                let is_member = self.shared.ensemble.is_member(opening.from);
                self.mesh.on_opened(link, &opening, is_member, from_its_address, out);
            }
            Input::Notification { link, notification } => {
                self.on_notification(ledger, link, &notification, out);
            }
            Input::Accepted { link } => self.on_accepted(link, out),
            Input::Packet { link, packet } => self.on_packet(ledger, link, packet, out),
            Input::SnapshotReceived { link } => self.in_role(ledger, out, |role, cx| match role {
                Role::Learning(learner) => learner.on_snapshot_received(cx, link),
                _ => Next::Stay,
            }),
            Input::TreeMoved { link } => self.in_role(ledger, out, |role, cx| {
                match role {
                    Role::Learning(learner) => learner.on_tree_moved(cx, link),
                    Role::Leading(leader) => leader.on_tree_moved(cx.shared, link),
                    _ => {}
                }
                Next::Stay
            }),
            Input::LogRead { link, read } => self.in_role(ledger, out, |role, cx| match role {
                Role::Leading(leader) => leader.on_log_read(cx, link, &read),
                _ => Next::Stay,
            }),
            Input::Closed { link } => match self.mesh.on_closed(link) {
                Some(peer) => {
                    self.shared.looking.remove(&peer);
                    self.on_away(ledger, peer, out);
                }
                None => {
                    self.early.remove(&link);
                    let leaves = match &self.role {
                        Role::Leading(leader) => leader.unconfirmed_follower(link),
                        _ => None,
                    };
                    self.in_role(ledger, out, |role, cx| match role {
                        Role::Learning(learner) => learner.on_closed(cx, link),
                        Role::Leading(leader) => leader.on_closed(cx, link),
                        _ => Next::Stay,
                    });
                    if let Some(id) = leaves {
                        self.on_follower_left(ledger, id, out);
                    }
                }
            },
            Input::Done(done) => self.on_done(ledger, done, out),
        }
        self.on_timers(ledger, out);
        if !served && self.status() != Status::Looking {
            self.tell_those_who_look(out);
        }
    }

    /// Sends our vote to all LOOKING servers when this server has got a leader. Before, they
    /// received a vote of the election, or of the previous epoch, which they cannot count together
    /// with the leader's vote. Without this they would ask again only when their timer is due.
    fn tell_those_who_look(&mut self, out: &mut Vec<Output>) {
        let may_answer = self.shared.ensemble.may_vote(self.shared.me);
        if !may_answer || self.shared.settings.has(Bug::OnlyAnswer) {
            return;
        }
        for to in self.shared.looking.clone() {
            self.tell(to, self.shared.vote, out);
        }
    }

    /// Runs `act` on the role and leaves the role if `act` returns [`Next::Look`].
    fn in_role(
        &mut self,
        ledger: &mut Ledger,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Role, &mut Context<'_>) -> Next,
    ) {
        let mut cx = Context { shared: &mut self.shared, ledger, out };
        if let Next::Look(reason) = act(&mut self.role, &mut cx) {
            self.become_settling(ledger, reason, out);
        }
    }

    fn on_timers(&mut self, ledger: &mut Ledger, out: &mut Vec<Output>) {
        let now_ms = self.shared.now_ms;
        if self.early_until_ms() <= now_ms {
            self.hang_up_early(|early| early.until_ms <= now_ms, out);
        }
        if self.shared.timers.deadline_ms() > now_ms {
            return;
        }
        if self.shared.timers.take(Timer::Delay, now_ms) {
            self.try_look(ledger, out);
        }
        if let Role::Looking(election) = &mut self.role {
            let timers = &mut self.shared.timers;
            if timers.take(Timer::Finalize, now_ms) {
                let vote = election.on_finalize();
                return self.become_elected(ledger, vote, out);
            }
            if timers.take(Timer::Poll, now_ms) {
                let to_all = election.on_poll(&self.shared.settings, now_ms, timers);
                let vote = election.proposal();
                match to_all {
                    true => self.broadcast(vote, out),
                    false => self.ask_away(vote, out),
                }
            }
        }
        self.in_role(ledger, out, |role, cx| match role {
            Role::Learning(learner) => learner.on_timers(cx),
            Role::Leading(leader) => leader.on_timers(cx),
            _ => Next::Stay,
        });
    }

    // Durable steps.

    pub(crate) fn on_flushed(&mut self, ledger: &mut Ledger, zxid: Zxid, out: &mut Vec<Output>) {
        // A report can be late: the log may have been truncated since.
        ledger.flushed = ledger.flushed.max(zxid.min(ledger.appended));
        self.in_role(ledger, out, |role, cx| match role {
            Role::Learning(learner) => learner.on_durable(cx),
            Role::Leading(leader) => leader.on_durable(cx),
            _ => Next::Stay,
        });
        self.try_look(ledger, out);
    }

    fn on_done(&mut self, ledger: &mut Ledger, done: Durable, out: &mut Vec<Output>) {
        match done {
            Durable::Flushed(zxid) => return self.on_flushed(ledger, zxid, out),
            Durable::Truncated { zxid, state: () } => {
                ledger.truncated(zxid);
                self.withdraw_config(zxid, out);
            }
            Durable::CannotTruncate(_) => self.shared.needs_snapshot = true,
            Durable::Installed { zxid, state: () } => {
                ledger.installed(zxid);
                self.shared.needs_snapshot = false;
                self.withdraw_config(zxid, out);
            }
            Durable::AcceptedEpoch(epoch) => self.shared.epochs.accepted = epoch,
            Durable::CurrentEpoch(epoch) => self.shared.epochs.current = epoch,
        }
        self.shared.steps_open = self.shared.steps_open.saturating_sub(1);
        self.in_role(ledger, out, |role, cx| match role {
            Role::Learning(learner) => learner.on_durable(cx),
            Role::Leading(leader) => leader.on_durable(cx),
            _ => Next::Stay,
        });
        self.try_look(ledger, out);
    }

    fn withdraw_config(&mut self, last: Zxid, out: &mut Vec<Output>) {
        // The membership that came with NEWLEADER may have the first zxid of the epoch as its
        // version, which is after `last`: it stays.
        if let Role::Learning(learner) = &self.role
            && learner.told_config() == self.shared.ensemble.proposed().map(|next| next.version)
        {
            return;
        }
        if self.shared.ensemble.withdraw_after(last) {
            out.push(Output::Durable(DurableStep::WriteMembers(MembersChange::Withdrawn)));
        }
    }

    pub(crate) fn may_reconfigure(
        &self,
        ledger: &Ledger,
        next: &Membership,
    ) -> Result<(), ReconfigRefused> {
        match &self.role {
            Role::Leading(leader) => leader.may_reconfigure(&self.shared, ledger, next),
            _ => Err(ReconfigRefused::NotLeading),
        }
    }

    // Changes of role.

    fn become_settling(&mut self, ledger: &mut Ledger, reason: Reason, out: &mut Vec<Output>) {
        let role = std::mem::replace(&mut self.role, Role::Settling);
        let is_new = matches!(role, Role::New);
        let mut cx = Context { shared: &mut self.shared, ledger, out };
        match role {
            Role::Learning(learner) => learner.end(&mut cx),
            Role::Leading(leader) => leader.end(&mut cx),
            Role::New | Role::Settling | Role::Looking(_) => {}
        }
        self.shared.timers.clear_all();
        // Pushed even if the old role served no clients: the reason explains why there is no
        // leader.
        out.push(Output::Up(Upcall::Became { status: Status::Looking, reason: Some(reason) }));
        let delay_max = self.shared.settings.observer_delay_ms_max;
        if !is_new && delay_max > 0 && self.shared.ensemble.is_observer(self.shared.me) {
            let delay = self.random() % (delay_max + 1);
            self.shared.timers.set(Timer::Delay, self.shared.now_ms + delay);
        }
        self.try_look(ledger, out);
    }

    /// Begins an election once all durable steps have completed.
    fn try_look(&mut self, ledger: &mut Ledger, out: &mut Vec<Output>) {
        let settled = ledger.is_flushed() && self.shared.steps_open == 0;
        let delayed = self.shared.timers.is_set(Timer::Delay);
        if matches!(self.role, Role::Settling) && settled && !delayed {
            if self.shared.settings.has(Bug::SkipFastForward) {
                ledger.pending.clear();
            }
            ledger.fast_forward(out);
            ledger.last_proposed = ledger.appended;
            self.become_looking(ledger, out);
        }
    }

    fn become_looking(&mut self, ledger: &mut Ledger, out: &mut Vec<Output>) {
        self.round += 1;
        let Shared { me, epochs, ensemble, settings, timers, now_ms, .. } = &mut self.shared;
        let (me, now_ms) = (*me, *now_ms);
        let nothing = ensemble.is_observer(me);
        let initial = Vote {
            leader: if ensemble.may_lead(me) { me } else { ServerId::NOBODY },
            zxid: if nothing { Zxid(i64::MIN) } else { ledger.appended },
            round: self.round,
            peer_epoch: if nothing { Epoch(i64::MIN) } else { epochs.current },
        };
        let (election, elected) = Election::start(me, initial, ensemble, settings, now_ms, timers);
        self.role = Role::Looking(election);
        self.broadcast(initial, out);
        if let Some(vote) = elected {
            self.become_elected(ledger, vote, out);
        }
    }

    fn become_elected(&mut self, ledger: &mut Ledger, vote: Vote, out: &mut Vec<Output>) {
        self.round = vote.round;
        self.shared.vote = vote;
        self.shared.timers.clear_all();
        self.choice = Some(Choice::new(&vote));
        let mut cx = Context { shared: &mut self.shared, ledger, out };
        let next = if vote.leader == cx.shared.me {
            let (leader, next) = Leader::begin(&mut cx);
            self.role = Role::Leading(Box::new(leader));
            next
        } else {
            let observes = cx.shared.ensemble.is_observer(cx.shared.me);
            let kind = if observes { Kind::Observer } else { Kind::Follower };
            self.role = Role::Learning(Box::new(Learner::begin(&mut cx, kind, vote.leader)));
            Next::Stay
        };
        if let Next::Look(reason) = next {
            return self.become_settling(ledger, reason, out);
        }
        if vote.leader != self.shared.me {
            return self.hang_up_early(|_| true, out);
        }
        for (link, early) in std::mem::take(&mut self.early) {
            self.on_accepted(link, out);
            if let Some(packet) = early.greeting {
                self.on_packet(ledger, link, packet, out);
            }
        }
    }

    /// Closes the links of the early learners that `which` selects.
    fn hang_up_early(&mut self, which: impl Fn(&EarlyLearner) -> bool, out: &mut Vec<Output>) {
        self.early.retain(|link, early| {
            let goes = which(early);
            if goes {
                out.push(Output::Link(LinkOp::Hangup { link: *link, reason: Hangup::NotLeading }));
            }
            !goes
        });
    }

    // The election port.

    fn on_notification(
        &mut self,
        ledger: &mut Ledger,
        link: LinkId,
        notification: &Notification,
        out: &mut Vec<Output>,
    ) {
        let Some(from) = self.mesh.peer_of(link) else { return };
        if matches!(self.role, Role::Looking(_)) && self.adopt_config(from, notification, out) {
            return self.become_looking(ledger, out);
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
            return self.become_settling(ledger, Reason::ChoiceLost, out);
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
                self.react(ledger, from, vote, reaction, out);
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
    fn on_follower_left(&mut self, ledger: &mut Ledger, id: ServerId, out: &mut Vec<Output>) {
        if self.is_choice_lost(|choice| choice.on_left(id)) {
            self.become_settling(ledger, Reason::ChoiceLost, out);
        }
    }

    /// Passes an event to the provisional leader and returns whether it cannot lead any more.
    fn is_choice_lost(&mut self, happens: impl FnOnce(&mut Choice)) -> bool {
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
    fn on_away(&mut self, ledger: &mut Ledger, peer: ServerId, out: &mut Vec<Output>) {
        match &mut self.role {
            Role::Looking(election) => {
                let Shared { ensemble, settings, timers, now_ms, .. } = &mut self.shared;
                if let Some(vote) = election.on_away(peer, ensemble, settings, *now_ms, timers) {
                    self.become_elected(ledger, vote, out);
                }
            }
            Role::Learning(_) => self.in_role(ledger, out, |role, cx| match role {
                Role::Learning(learner) => learner.on_away(cx, peer),
                _ => Next::Stay,
            }),
            Role::New | Role::Settling | Role::Leading(_) => {}
        }
    }

    fn react(
        &mut self,
        ledger: &mut Ledger,
        from: ServerId,
        proposal: Vote,
        reaction: Reaction,
        out: &mut Vec<Output>,
    ) {
        if reaction.broadcast {
            self.broadcast(proposal, out);
        } else if reaction.reply {
            self.tell(from, proposal, out);
        }
        if reaction.ask_away {
            self.ask_away(proposal, out);
        }
        if let Some(vote) = reaction.elected {
            self.become_elected(ledger, vote, out);
        }
    }

    /// Adopts a newer membership from a notification; it is in force at the sender. Returns whether
    /// the members differ, so that the election has to restart.
    fn adopt_config(
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
            _ => self.shared.vote,
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

    fn tell(&mut self, to: ServerId, vote: Vote, out: &mut Vec<Output>) {
        let notification = self.notification(vote);
        self.mesh.send(to, notification, out);
    }

    fn broadcast(&mut self, vote: Vote, out: &mut Vec<Output>) {
        let notification = self.notification(vote);
        for to in self.shared.ensemble.all_voters() {
            if to != self.shared.me {
                self.mesh.send(to, notification.clone(), out);
            }
        }
    }

    /// Sends the vote to the voters without a link, which makes the mesh dial them.
    fn ask_away(&mut self, vote: Vote, out: &mut Vec<Output>) {
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

    // The quorum port.

    fn on_accepted(&mut self, link: LinkId, out: &mut Vec<Output>) {
        match &mut self.role {
            Role::Leading(leader) => leader.on_accepted(&self.shared, link),
            Role::Learning(_) => {
                out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::NotLeading }));
            }
            Role::New | Role::Settling | Role::Looking(_) => {
                let until_ms = self.shared.now_ms + EARLY_LEARNER_MS;
                self.early.insert(link, EarlyLearner { until_ms, greeting: None });
            }
        }
    }

    fn on_packet(
        &mut self,
        ledger: &mut Ledger,
        link: LinkId,
        packet: Packet,
        out: &mut Vec<Output>,
    ) {
        if let Some(early) = self.early.get_mut(&link) {
            if early.greeting.replace(packet).is_some() {
                self.early.remove(&link);
                let reason = Hangup::Protocol("it did not wait for an answer");
                out.push(Output::Link(LinkOp::Hangup { link, reason }));
            }
            return;
        }
        self.in_role(ledger, out, |role, cx| match role {
            Role::Learning(learner) => learner.on_packet(cx, link, packet),
            Role::Leading(leader) => leader.on_packet(cx, link, packet),
            _ => Next::Stay,
        });
    }

    fn on_dialed(
        &mut self,
        ledger: &mut Ledger,
        peer: ServerId,
        link: Option<LinkId>,
        out: &mut Vec<Output>,
    ) {
        self.in_role(ledger, out, |role, cx| match role {
            Role::Learning(learner) => learner.on_dialed(cx, peer, link),
            _ => {
                if let Some(link) = link {
                    cx.hang_up(link, Hangup::RoleEnded);
                }
                Next::Stay
            }
        });
    }

    // Calls of the engine.

    pub(crate) fn propose(
        &mut self,
        ledger: &mut Ledger,
        zxid: Zxid,
        txn: Bytes,
        out: &mut Vec<Output>,
    ) {
        let Role::Leading(leader) = &mut self.role else {
            panic!("only a leader proposes");
        };
        leader.propose(&mut Context { shared: &mut self.shared, ledger, out }, zxid, txn);
    }

    pub(crate) fn send_to_leader(&self, message: LearnerMessage, out: &mut Vec<Output>) -> bool {
        let Role::Learning(learner) = &self.role else { return false };
        let Some(link) = learner.live_link() else { return false };
        let packet = Packet::Learner(message);
        out.push(Output::Link(LinkOp::Send { link, packet }));
        true
    }

    pub(crate) fn reply_delivered(
        &mut self,
        ledger: &mut Ledger,
        to: LinkId,
        reply: LeaderMessage,
        out: &mut Vec<Output>,
    ) {
        if let Role::Leading(leader) = &mut self.role {
            let cx = &mut Context { shared: &mut self.shared, ledger, out };
            leader.reply_delivered(cx, to, reply);
        }
    }

    pub(crate) fn reply_confirmed(
        &mut self,
        ledger: &mut Ledger,
        to: Option<LinkId>,
        reply: LeaderMessage,
        out: &mut Vec<Output>,
    ) {
        if let Role::Leading(leader) = &mut self.role {
            let cx = &mut Context { shared: &mut self.shared, ledger, out };
            leader.reply_confirmed(cx, to, reply);
        }
    }

    /// Returns a random number (xorshift; nothing depends on its quality).
    fn random(&mut self) -> u64 {
        let random = &mut self.shared.random;
        *random ^= *random << 13;
        *random ^= *random >> 7;
        *random ^= *random << 17;
        *random
    }
}
