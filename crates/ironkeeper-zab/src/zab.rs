//! The ZAB state machine of one server: its present role and the transitions between roles.
//!
//! ```text
//!            ┌──────────── any reason ────────────┐
//!            ▼                                    │
//!        Settling ──► Looking ──► Leading / Following / Observing
//! ```
//! *Settling*: a server does not vote before all its durable steps have completed and its state is
//! at the end of its log. Otherwise a step of the old role that completes during the election would
//! make the vote wrong.

//!
//! A standalone server is the only voter of its ensemble. It leads from the beginning and for ever:
//! it needs no election, no epochs on disk, no links and no timers, and its own flush is a quorum.

use std::collections::BTreeMap;

use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerMessage};
use ironkeeper_proto::{Epoch, Membership, Packet, ServerId, Zxid};

use crate::choice::Choice;
use crate::election::{Election, Vote};
use crate::ensemble::Ensemble;
use crate::history::History;
use crate::io::{
    Durable, DurableStep, Input, LinkId, LinkOp, MembersChange, Output, Port, Reason, Status,
    Upcall,
};
use crate::leader::{Leader, LearnerView, Proposer};
use crate::learner::{Kind, Learner};
use crate::ledger::Ledger;
use crate::mesh::Mesh;
use crate::quorum_port::EarlyLearner;
use crate::reconfig::ReconfigRefused;
use crate::settings::{Bug, Settings};
use crate::shared::{Context, Epochs, Next, Recovered, Shared};
use crate::timers::Timer;

/// The id of a standalone server in its own ensemble. It is sent to no other server.
const STANDALONE: ServerId = ServerId(0);

#[derive(Debug)]
pub(crate) enum Role {
    /// Before the first input.
    New,
    Settling,
    Looking(Election),
    Learning(Box<Learner>),
    Leading(Box<Leader>),
}

/// The ZAB state machine of one server, see the head of this file.
#[derive(Debug)]
pub struct Zab {
    pub(crate) shared: Shared,
    pub(crate) ledger: Ledger,
    pub(crate) mesh: Mesh,
    /// The election round (logical clock). Reset to 0 when another membership is adopted.
    pub(crate) round: i64,
    pub(crate) role: Role,
    /// When each non-voter was last sent our vote during an election. Bounded by the mesh.
    pub(crate) strangers_told: BTreeMap<ServerId, u64>,
    /// The provisional leader; used until it is confirmed.
    pub(crate) choice: Option<Choice>,
    /// Learners that connected before this server knows whether it leads. Bounded by the driver's
    /// limit on connections.
    pub(crate) early: BTreeMap<LinkId, EarlyLearner>,
}

impl Zab {
    /// Creates a standalone server that continues after `last`, the last transaction in its log.
    pub fn standalone(last: Zxid) -> Zab {
        let epochs = Epochs { accepted: last.epoch(), current: last.epoch() };
        let (settings, ensemble) = (Settings::default(), Ensemble::of_one(STANDALONE));
        let mut shared = Shared::new(STANDALONE, settings, ensemble, epochs, 0);
        shared.is_standalone = true;
        // No learner will need a history.
        let ledger = Ledger::new(last, last, History::new(last, 0, 0));
        let role = Role::Leading(Box::new(Leader::standalone(&shared, &ledger)));
        Zab::in_role(role, shared, ledger)
    }

    /// Creates a member of an ensemble; the first input starts it. `seed` randomizes delays so that
    /// servers do not act at the same time; agreement does not depend on it.
    pub fn member(
        me: ServerId,
        settings: Settings,
        ensemble: Ensemble,
        recovered: Recovered,
        seed: u64,
    ) -> Zab {
        let Recovered { epochs, last, log_from, history: txns, history_base } = recovered;
        let (count_max, bytes_max) = (settings.history_count_max, settings.history_bytes_max);
        let mut history = History::new(history_base, count_max, bytes_max);
        for (zxid, txn) in txns {
            history.push(zxid, &txn);
        }
        if history.last() != last {
            history.restart(last);
        }
        let ledger = Ledger::new(last, log_from, history);
        let shared = Shared::new(me, settings, ensemble, epochs, seed);
        Zab::in_role(Role::New, shared, ledger)
    }

    fn in_role(role: Role, shared: Shared, ledger: Ledger) -> Zab {
        Zab {
            mesh: Mesh::new(shared.me),
            shared,
            ledger,
            round: 0,
            role,
            strangers_told: BTreeMap::new(),
            choice: None,
            early: BTreeMap::new(),
        }
    }

    // Views.

    /// Returns when [`Input::Timer`] is due next; `u64::MAX` is never.
    pub fn deadline_ms(&self) -> u64 {
        match self.role {
            Role::New => 0,
            Role::Settling | Role::Looking(_) | Role::Learning(_) | Role::Leading(_) => {
                self.shared.timers.deadline_ms().min(self.early_until_ms())
            }
        }
    }

    pub fn last_proposed(&self) -> Zxid {
        self.ledger.last_proposed
    }

    /// Returns the last transaction that this server has received or proposed. Requests that arrive
    /// from now on are ordered after it.
    #[inline]
    pub fn appended(&self) -> Zxid {
        self.ledger.appended
    }

    /// Returns the number of proposals that are not committed yet.
    pub fn outstanding(&self) -> usize {
        self.ledger.pending.len()
    }

    /// Returns the role of this server.
    pub fn status(&self) -> Status {
        match &self.role {
            Role::New | Role::Settling | Role::Looking(_) => Status::Looking,
            Role::Learning(learner) => learner.status(),
            Role::Leading(leader) => leader.status(),
        }
    }

    /// Returns the name of the present state, for the transition table in the tests.
    #[doc(hidden)]
    pub fn state_name(&self) -> String {
        match &self.role {
            Role::New => "New".to_owned(),
            Role::Settling => "Settling".to_owned(),
            Role::Looking(_) => "Looking".to_owned(),
            Role::Learning(learner) => learner.state_name(),
            Role::Leading(leader) => leader.state_name(),
        }
    }

    /// Returns the membership as this server knows it; `None` on a standalone server.
    pub fn ensemble(&self) -> Option<&Ensemble> {
        (!self.shared.is_standalone).then_some(&self.shared.ensemble)
    }

    /// Returns acceptedEpoch and currentEpoch; `None` on a standalone server.
    pub fn epochs(&self) -> Option<Epochs> {
        (!self.shared.is_standalone).then_some(self.shared.epochs)
    }

    /// Returns the learners of this server, if it leads.
    pub fn learners(&self) -> Vec<LearnerView> {
        self.role.leader().map_or_else(Vec::new, Leader::learners)
    }

    /// Returns the replies that wait on this leader for leadership confirmation, oldest first.
    pub fn unconfirmed(&self) -> impl Iterator<Item = &LeaderMessage> {
        self.role.leader().into_iter().flat_map(Leader::unconfirmed)
    }

    /// Returns whether the state contains only committed transactions, so that no later leader
    /// undoes part of a snapshot of it.
    pub fn may_snapshot(&self) -> bool {
        self.status() != Status::Looking
    }

    /// Returns whether [`Zab::proposer`] returns one.
    pub fn accepts_proposals(&self) -> bool {
        let leader = self.role.leader();
        leader.is_some_and(|leader| leader.next_zxid(&self.shared, &self.ledger).is_some())
    }

    /// Checks whether a reconfig to this membership could be proposed now. The transaction, of type
    /// `reconfig` with the text of the new configuration, is then proposed like any other.
    pub fn may_reconfigure(&self, next: &Membership) -> Result<(), ReconfigRefused> {
        let leader = self.role.leader().ok_or(ReconfigRefused::NotLeading)?;
        leader.may_reconfigure(&self.shared, &self.ledger, next)
    }

    // Calls of the layer above.

    /// Returns the right to propose the next transaction if this server is an established leader
    /// and its epoch has a zxid left.
    #[inline]
    pub fn proposer(&mut self) -> Option<Proposer<'_>> {
        match &mut self.role {
            Role::Leading(leader) => leader.proposer(&mut self.shared, &mut self.ledger),
            Role::New | Role::Settling | Role::Looking(_) | Role::Learning(_) => None,
        }
    }

    /// Sends a message of the layer above from a learner to its leader. Returns false if there is
    /// no leader.
    pub fn send_to_leader(&mut self, message: LearnerMessage, out: &mut Vec<Output>) -> bool {
        let Role::Learning(learner) = &self.role else { return false };
        let Some(link) = learner.live_link() else { return false };
        out.push(Output::Link(LinkOp::Send { link, packet: Packet::Learner(message) }));
        true
    }

    /// On the leader: replies to a learner as soon as everything proposed until now is delivered.
    pub fn reply_delivered(&mut self, to: LinkId, reply: LeaderMessage, out: &mut Vec<Output>) {
        if let Role::Leading(leader) = &mut self.role {
            let (shared, ledger) = (&mut self.shared, &mut self.ledger);
            leader.reply_delivered(&mut Context { shared, ledger, out }, to, reply);
        }
    }

    /// On the leader: replies as soon as everything proposed until now is delivered and a quorum
    /// has confirmed the leadership (Raft's ReadIndex): to a learner if a link is given, else with
    /// [`Upcall::FromLeader`]. Replies are sent in the order of these calls, and before the first
    /// commit that was proposed after the call.
    pub fn reply_confirmed(
        &mut self,
        to: Option<LinkId>,
        reply: LeaderMessage,
        out: &mut Vec<Output>,
    ) {
        if let Role::Leading(leader) = &mut self.role {
            let (shared, ledger) = (&mut self.shared, &mut self.ledger);
            leader.reply_confirmed(&mut Context { shared, ledger, out }, to, reply);
        }
    }

    // Inputs.

    /// Processes one input. The first input starts the state machine.
    pub fn step(&mut self, now_ms: u64, input: Input, out: &mut Vec<Output>) {
        // Time never goes back: it would only make deadlines later.
        self.shared.now_ms = self.shared.now_ms.max(now_ms);
        if matches!(self.role, Role::New) {
            self.become_settling(Reason::Started, out);
        }
        let served = self.status() != Status::Looking;
        match input {
            Input::Timer => {}
            Input::Dialed { peer, port: Port::Election, link } => {
                self.mesh.on_dialed(peer, link, out);
                // A server with a link is reachable, whether or not a dial failed.
                if link.is_none() && !self.mesh.is_linked(peer) {
                    self.on_away(peer, out);
                }
            }
            Input::Dialed { peer, port: Port::Quorum, link } => {
                self.on_dialed(peer, link, out);
            }
            Input::Opened { link, opening, from_its_address } => {
                let is_member = self.shared.ensemble.is_member(opening.from);
                self.mesh.on_opened(link, &opening, is_member, from_its_address, out);
            }
            Input::Notification { link, notification } => {
                self.on_notification(link, &notification, out);
            }
            Input::Accepted { link } => self.on_accepted(link, out),
            Input::Packet { link, packet } => self.on_packet(link, packet, out),
            Input::SnapshotReceived { link } => {
                self.act(out, |role, cx| match role {
                    Role::Learning(learner) => learner.on_snapshot_received(cx, link),
                    Role::New | Role::Settling | Role::Looking(_) | Role::Leading(_) => Next::Stay,
                });
            }
            Input::TreeMoved { link } => self.act(out, |role, cx| match role {
                Role::Learning(learner) => learner.on_tree_moved(cx, link),
                Role::Leading(leader) => leader.on_tree_moved(cx.shared, link),
                Role::New | Role::Settling | Role::Looking(_) => Next::Stay,
            }),
            Input::LogRead { link, read } => self.act(out, |role, cx| match role {
                Role::Leading(leader) => leader.on_log_read(cx, link, &read),
                Role::New | Role::Settling | Role::Looking(_) | Role::Learning(_) => Next::Stay,
            }),
            Input::Closed { link } => match self.mesh.on_closed(link) {
                Some(peer) => {
                    self.shared.looking.remove(&peer);
                    self.on_away(peer, out);
                }
                None => {
                    self.early.remove(&link);
                    let leader = self.role.leader();
                    let leaves = leader.and_then(|leader| leader.unconfirmed_follower(link));
                    self.act(out, |role, cx| match role {
                        Role::Learning(learner) => learner.on_closed(cx, link),
                        Role::Leading(leader) => leader.on_closed(cx, link),
                        Role::New | Role::Settling | Role::Looking(_) => Next::Stay,
                    });
                    if let Some(id) = leaves {
                        self.on_follower_left(id, out);
                    }
                }
            },
            Input::Done(done) => self.on_done(done, out),
        }
        self.on_timers(out);
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
    pub(crate) fn act(
        &mut self,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Role, &mut Context<'_>) -> Next,
    ) {
        let mut cx = Context { shared: &mut self.shared, ledger: &mut self.ledger, out };
        if let Next::Look(reason) = act(&mut self.role, &mut cx) {
            self.become_settling(reason, out);
        }
    }

    fn on_timers(&mut self, out: &mut Vec<Output>) {
        let now_ms = self.shared.now_ms;
        if self.early_until_ms() <= now_ms {
            self.hang_up_early(|early| early.until_ms <= now_ms, out);
        }
        if self.shared.timers.deadline_ms() > now_ms {
            return;
        }
        if self.shared.timers.take(Timer::Delay, now_ms) {
            self.try_look(out);
        }
        if let Role::Looking(election) = &mut self.role {
            let timers = &mut self.shared.timers;
            if timers.take(Timer::Finalize, now_ms) {
                let vote = election.on_finalize();
                return self.become_elected(vote, out);
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
        self.act(out, |role, cx| match role {
            Role::Learning(learner) => learner.on_timers(cx),
            Role::Leading(leader) => leader.on_timers(cx),
            Role::New | Role::Settling | Role::Looking(_) => Next::Stay,
        });
    }

    /// Notes that the log is durable up to `zxid`: [`Zab::step`] with [`Durable::Flushed`], without
    /// the timers, for the most frequent input.
    pub fn on_flushed(&mut self, zxid: Zxid, out: &mut Vec<Output>) {
        // A report can be late: the log may have been truncated since.
        self.ledger.flushed = self.ledger.flushed.max(zxid.min(self.ledger.appended));
        self.act(out, |role, cx| match role {
            Role::Learning(learner) => learner.on_durable(cx),
            Role::Leading(leader) => leader.on_durable(cx),
            Role::New | Role::Settling | Role::Looking(_) => Next::Stay,
        });
        self.try_look(out);
    }

    fn on_done(&mut self, done: Durable, out: &mut Vec<Output>) {
        match done {
            Durable::Flushed(zxid) => return self.on_flushed(zxid, out),
            Durable::Truncated { zxid, state: () } => {
                self.ledger.truncated(zxid);
                self.withdraw_config(zxid, out);
            }
            Durable::CannotTruncate(_) => self.shared.needs_snapshot = true,
            Durable::Installed { zxid, state: () } => {
                self.ledger.installed(zxid);
                self.shared.needs_snapshot = false;
                self.withdraw_config(zxid, out);
            }
            Durable::AcceptedEpoch(epoch) => self.shared.epochs.accepted = epoch,
            Durable::CurrentEpoch(epoch) => self.shared.epochs.current = epoch,
        }
        self.shared.steps_open = self.shared.steps_open.saturating_sub(1);
        self.act(out, |role, cx| match role {
            Role::Learning(learner) => learner.on_durable(cx),
            Role::Leading(leader) => leader.on_durable(cx),
            Role::New | Role::Settling | Role::Looking(_) => Next::Stay,
        });
        self.try_look(out);
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

    // Changes of role.

    pub(crate) fn become_settling(&mut self, reason: Reason, out: &mut Vec<Output>) {
        let role = std::mem::replace(&mut self.role, Role::Settling);
        let is_new = matches!(role, Role::New);
        let mut cx = Context { shared: &mut self.shared, ledger: &mut self.ledger, out };
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
            let delay = self.shared.random() % (delay_max + 1);
            self.shared.timers.set(Timer::Delay, self.shared.now_ms + delay);
        }
        self.try_look(out);
    }

    /// Begins an election once all durable steps have completed.
    fn try_look(&mut self, out: &mut Vec<Output>) {
        if !matches!(self.role, Role::Settling) {
            return;
        }
        let is_settled = self.ledger.is_flushed() && self.shared.steps_open == 0;
        if is_settled && !self.shared.timers.is_set(Timer::Delay) {
            if self.shared.settings.has(Bug::SkipFastForward) {
                self.ledger.pending.clear();
            }
            self.ledger.fast_forward(out);
            self.ledger.last_proposed = self.ledger.appended;
            self.become_looking(out);
        }
    }

    pub(crate) fn become_looking(&mut self, out: &mut Vec<Output>) {
        self.round += 1;
        let Shared { me, epochs, ensemble, settings, timers, now_ms, .. } = &mut self.shared;
        let (me, now_ms) = (*me, *now_ms);
        let nothing = ensemble.is_observer(me);
        let initial = Vote {
            leader: if ensemble.may_lead(me) { me } else { ServerId::NONE },
            zxid: if nothing { Zxid(i64::MIN) } else { self.ledger.appended },
            round: self.round,
            peer_epoch: if nothing { Epoch(i64::MIN) } else { epochs.current },
        };
        let (election, elected) = Election::start(me, initial, ensemble, settings, now_ms, timers);
        self.role = Role::Looking(election);
        self.broadcast(initial, out);
        if let Some(vote) = elected {
            self.become_elected(vote, out);
        }
    }

    pub(crate) fn become_elected(&mut self, vote: Vote, out: &mut Vec<Output>) {
        self.round = vote.round;
        self.shared.vote = vote;
        self.shared.timers.clear_all();
        self.choice = Some(Choice::new(&vote));
        let mut cx = Context { shared: &mut self.shared, ledger: &mut self.ledger, out };
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
            return self.become_settling(reason, out);
        }
        if vote.leader != self.shared.me {
            return self.hang_up_early(|_| true, out);
        }
        for (link, early) in std::mem::take(&mut self.early) {
            self.on_accepted(link, out);
            if let Some(packet) = early.greeting {
                self.on_packet(link, packet, out);
            }
        }
    }
}

impl Role {
    pub(crate) fn leader(&self) -> Option<&Leader> {
        match self {
            Role::Leading(leader) => Some(leader),
            Role::New | Role::Settling | Role::Looking(_) | Role::Learning(_) => None,
        }
    }
}
