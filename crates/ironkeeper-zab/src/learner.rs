//! A follower or an observer: it finds its leader, takes over its history and then listens.
//!
//! ```text
//! Dialing ─► Greeted ─► Promising ─► Promised ─► Receiving ─► Syncing ─► TakingOver ─► Acked ─► Live
//!            FOLLOWER-  (accepted-   ACKEPOCH    (SNAP only)  DIFF, ..   NEWLEADER:    ACK      UPTODATE
//!            INFO       Epoch)                                           all durable
//! ```
//! What a promise stands on is durable before the promise leaves: the epoch before ACKEPOCH, the history
//! and then its epoch before the ACK of NEWLEADER, a transaction before its ACK. (Observers promise
//! nothing: they write the epochs down at UPTODATE.) The tree sees nothing of
//! a leader's history before UPTODATE, that is before a quorum has it.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Membership, Packet, ServerId, Zxid};

use crate::history::follows;
use crate::io::{Hangup, LinkId, Output, Port, Reason, Status};
use crate::member::{Context, Next};
use crate::reconfig::members_in;
use crate::settings::Bug;
use crate::timers::Timer;

/// Observers hear of transactions when they are history; followers are asked before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Follower,
    Observer,
}

/// After so many hang-ups a chosen server is not dialled again.
const HANG_UPS_MAX: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Dialing,
    Greeted,
    /// The promise is being written down.
    Promising,
    Promised,
    /// The leader's tree is on its way.
    Receiving,
    Syncing,
    /// NEWLEADER has come: the history is made durable, then its epoch.
    TakingOver,
    WritingCurrent,
    Acked,
    Live,
}

/// How the leader brings us to its history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Diff,
    Trunc,
    Snap,
}

/// What came before UPTODATE.
#[derive(Debug, Default)]
struct Catchup {
    /// Where the leader's history begins for us.
    base: Zxid,
    /// The last proposal heard of.
    last: Zxid,
    /// The last commit heard of.
    committed: Zxid,
    /// The last commit heard of before NEWLEADER: where the history ends that it asks us to take over. What is
    /// committed while we do is not waited for: under load there would be no end to it.
    history_end: Zxid,
    /// Proposals that are not in our log yet, in order. Bounded by what the leader keeps in memory or
    /// reads from its log for us.
    buffer: VecDeque<(Zxid, Bytes)>,
    mode: Mode,
    /// A truncation or an installation is under way.
    rebuilding: bool,
    /// The leader's members, in force when it is established.
    config: Option<Membership>,
}

#[derive(Debug)]
pub(crate) struct Learner {
    kind: Kind,
    leader: ServerId,
    link: Option<LinkId>,
    stage: Stage,
    tries: u32,
    /// How often the chosen server has hung up instead of telling its epoch.
    hang_ups: u32,
    /// The connection with the chosen server's election port broke, or could not be made, since it
    /// was chosen.
    is_leader_away: bool,
    epoch: Epoch,
    catchup: Catchup,
    /// Appended and to be acknowledged one by one, as Apache's leaders count them.
    unacked: VecDeque<Zxid>,
}

impl Learner {
    pub(crate) fn begin(cx: &mut Context<'_>, kind: Kind, leader: ServerId) -> Learner {
        let mut learner = Learner {
            kind,
            leader,
            link: None,
            stage: Stage::Dialing,
            tries: 0,
            hang_ups: 0,
            is_leader_away: false,
            epoch: Epoch(0),
            catchup: Catchup::default(),
            unacked: VecDeque::new(),
        };
        learner.dial(cx);
        learner
    }

    /// Lets go of everything. What is being written will still be waited for.
    pub(crate) fn end(self, cx: &mut Context<'_>) {
        if let Some(link) = self.link {
            cx.hang_up(link, Hangup::RoleEnded);
        }
    }

    /// The version of the members the leader has told us with NEWLEADER.
    pub(crate) fn told_config(&self) -> Option<i64> {
        self.catchup.config.as_ref().map(|config| config.version)
    }

    pub(crate) fn status(&self) -> Status {
        match (self.stage, self.kind) {
            (Stage::Live, Kind::Follower) => {
                Status::Following { leader: self.leader, epoch: self.epoch }
            }
            (Stage::Live, Kind::Observer) => {
                Status::Observing { leader: self.leader, epoch: self.epoch }
            }
            _ => Status::Looking,
        }
    }

    /// Whether the chosen server has not shown yet that it leads.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        matches!(self.stage, Stage::Dialing | Stage::Greeted)
    }

    pub(crate) fn live_link(&self) -> Option<LinkId> {
        self.link.filter(|_| self.stage == Stage::Live)
    }

    // Finding the leader.

    fn dial(&mut self, cx: &mut Context<'_>) {
        self.stage = Stage::Dialing;
        cx.set_timer(Timer::Patience, cx.shared.settings.init_ms());
        cx.out.push(Output::Dial { peer: self.leader, port: Port::Quorum, hint: None });
    }

    pub(crate) fn on_dialed(
        &mut self,
        cx: &mut Context<'_>,
        peer: ServerId,
        link: Option<LinkId>,
    ) -> Next {
        if peer != self.leader || self.stage != Stage::Dialing || self.link.is_some() {
            if let Some(link) = link {
                cx.hang_up(link, Hangup::RoleEnded);
            }
            return Next::Stay;
        }
        let Some(link) = link else { return self.dial_later(cx) };
        self.link = Some(link);
        self.stage = Stage::Greeted;
        self.heard(cx);
        let accepted = cx.shared.epochs.accepted;
        let info = LearnerInfo {
            server: Some(cx.shared.me),
            protocol: PROTOCOL_VERSION,
            config_version: cx.shared.ensemble.committed().version,
        };
        cx.send(
            link,
            match self.kind {
                Kind::Follower => Packet::FollowerInfo { accepted, info },
                Kind::Observer => Packet::ObserverInfo { accepted, info },
            },
        );
        Next::Stay
    }

    /// A chosen leader may need a moment until it knows.
    fn dial_later(&mut self, cx: &mut Context<'_>) -> Next {
        self.tries += 1;
        if self.tries >= cx.shared.settings.dial_tries || self.is_leader_away {
            return Next::Look(Reason::LeaderUnreachable);
        }
        self.stage = Stage::Dialing;
        cx.set_timer(Timer::Dial, cx.shared.settings.dial_retry_ms);
        Next::Stay
    }

    /// The connection with a server's election port broke, or could not be made. A chosen server
    /// whose quorum port cannot be reached either is gone.
    pub(crate) fn on_away(&mut self, cx: &Context<'_>, peer: ServerId) -> Next {
        if peer != self.leader || !self.is_unconfirmed() {
            return Next::Stay;
        }
        self.is_leader_away = true;
        match cx.shared.timers.is_set(Timer::Dial) {
            true => Next::Look(Reason::LeaderUnreachable),
            false => Next::Stay,
        }
    }

    /// A server votes: it is there.
    pub(crate) fn on_vote(&mut self, from: ServerId) {
        if from == self.leader {
            self.is_leader_away = false;
        }
    }

    pub(crate) fn on_closed(&mut self, cx: &mut Context<'_>, link: LinkId) -> Next {
        if self.link != Some(link) {
            return Next::Stay;
        }
        self.link = None;
        match self.stage {
            Stage::Greeted => self.on_hung_up(cx),
            _ => Next::Look(Reason::LeaderGone),
        }
    }

    /// A server that accepts the connection and hangs up runs and does not lead. It may be about
    /// to, once. (An Apache server that is about to lead refuses connections instead.)
    fn on_hung_up(&mut self, cx: &mut Context<'_>) -> Next {
        self.hang_ups += 1;
        if self.hang_ups >= HANG_UPS_MAX && !cx.shared.settings.has(Bug::KeepChoice) {
            return Next::Look(Reason::LeaderHangsUp);
        }
        self.dial_later(cx)
    }

    pub(crate) fn on_timers(&mut self, cx: &mut Context<'_>) -> Next {
        let now_ms = cx.shared.now_ms;
        if cx.shared.timers.take(Timer::Patience, now_ms) {
            return Next::Look(match self.link {
                Some(_) => Reason::LeaderSilent,
                None => Reason::LeaderUnreachable,
            });
        }
        if cx.shared.timers.take(Timer::Dial, now_ms) {
            self.dial(cx);
        }
        Next::Stay
    }

    /// A sign of life from the leader.
    fn heard(&mut self, cx: &mut Context<'_>) {
        let settings = &cx.shared.settings;
        let patience = match self.stage {
            Stage::Acked | Stage::Live => settings.sync_ms(),
            _ => settings.init_ms(),
        };
        cx.set_timer(Timer::Patience, patience);
    }

    pub(crate) fn on_packet(&mut self, cx: &mut Context<'_>, link: LinkId, packet: Packet) -> Next {
        if self.link != Some(link) {
            return Next::Stay;
        }
        self.heard(cx);
        match self.stage {
            Stage::Dialing => Next::Stay,
            Stage::Greeted => self.on_leader_info(cx, &packet),
            // A leader that does not wait for our promise is none; a tree is not packets.
            Stage::Promising | Stage::Receiving => unexpected("it did not wait"),
            Stage::Promised => self.on_sync_mode(cx, &packet),
            Stage::Syncing | Stage::TakingOver | Stage::WritingCurrent | Stage::Acked => {
                self.on_catchup(cx, packet)
            }
            Stage::Live => self.on_live(cx, packet),
        }
    }

    // Discovery.

    fn on_leader_info(&mut self, cx: &mut Context<'_>, packet: &Packet) -> Next {
        let Packet::LeaderInfo { epoch, protocol } = *packet else {
            return unexpected("it did not begin with LEADERINFO");
        };
        if protocol < PROTOCOL_VERSION {
            return unexpected("its version is too old");
        }
        let accepted = cx.shared.epochs.accepted;
        if epoch < accepted {
            return Next::Look(Reason::OldEpoch);
        }
        self.epoch = epoch;
        if self.kind == Kind::Observer {
            // Nobody counts on an observer's promise. It is written down when the leader is
            // established, so that it can never stand in the way of one that is.
            let compares = epoch > accepted && !cx.shared.needs_snapshot;
            let current = compares.then_some(cx.shared.epochs.current);
            self.promise(cx, current);
            return Next::Stay;
        }
        if epoch > accepted && !cx.shared.settings.has(Bug::ForgetAcceptedEpoch) {
            self.stage = Stage::Promising;
            cx.write_accepted(epoch);
        } else if epoch > accepted {
            cx.shared.epochs.accepted = epoch;
            self.promise(cx, Some(cx.shared.epochs.current));
        } else {
            self.promise(cx, None);
        }
        Next::Stay
    }

    fn promise(&mut self, cx: &mut Context<'_>, current: Option<Epoch>) {
        let Some(link) = self.link else { return };
        self.stage = Stage::Promised;
        // A counter of zero in an epoch nobody has reached makes every leader send its whole tree. It
        // is said only when it is not compared with the leader's own history.
        let last = match current {
            None if cx.shared.needs_snapshot => Zxid::new(Epoch(self.epoch.0 + 1), 0),
            _ => cx.ledger.appended,
        };
        cx.send(link, Packet::AckEpoch { last, current });
    }

    // Synchronization.

    fn on_sync_mode(&mut self, cx: &mut Context<'_>, packet: &Packet) -> Next {
        let Some(link) = self.link else { return Next::Stay };
        if cx.shared.needs_snapshot && !matches!(packet, Packet::Snap { .. }) {
            return self.redial(cx);
        }
        self.stage = Stage::Syncing;
        let base = match *packet {
            Packet::Diff { .. } => cx.ledger.appended,
            Packet::Trunc { zxid } => {
                self.catchup.mode = Mode::Trunc;
                self.catchup.rebuilding = true;
                cx.shared.steps_open += 1;
                cx.out.push(Output::Truncate(zxid));
                zxid
            }
            Packet::Snap { zxid } => {
                self.catchup.mode = Mode::Snap;
                self.stage = Stage::Receiving;
                cx.out.push(Output::ReceiveSnapshot { link });
                zxid
            }
            _ => return unexpected("it did not begin to synchronize"),
        };
        let catchup = &mut self.catchup;
        (catchup.base, catchup.last, catchup.committed) = (base, base, base);
        Next::Stay
    }

    pub(crate) fn on_snapshot_received(&mut self, cx: &mut Context<'_>, link: LinkId) -> Next {
        if self.link == Some(link) && self.stage == Stage::Receiving {
            self.heard(cx);
            self.stage = Stage::Syncing;
        }
        Next::Stay
    }

    /// Another piece of the leader's tree is here. However large it is, it may take its time.
    pub(crate) fn on_tree_moved(&mut self, cx: &mut Context<'_>, link: LinkId) {
        if self.link == Some(link) {
            self.heard(cx);
        }
    }

    fn on_catchup(&mut self, cx: &mut Context<'_>, packet: Packet) -> Next {
        match packet {
            Packet::Proposal { zxid, txn } => self.buffer(cx, zxid, txn),
            Packet::Commit { zxid } => self.remember_commit(zxid),
            Packet::Inform { zxid, txn } => match self.buffer(cx, zxid, txn) {
                Next::Stay => self.remember_commit(zxid),
                look => look,
            },
            Packet::NewLeader { epoch, config } => self.on_new_leader(cx, epoch, config.as_ref()),
            Packet::UpToDate => self.on_up_to_date(cx),
            // An answer here would be taken for the ACK that the leader waits for.
            Packet::Ping { .. } => Next::Stay,
            Packet::Revalidated { .. } | Packet::Sync => Next::Stay,
            Packet::CommitAndActivate { .. } | Packet::InformAndActivate { .. } => {
                // Whoever is not live has nothing to activate yet: with the next leader it starts from
                // the new members.
                Next::Look(Reason::Reconfigured)
            }
            _ => unexpected("it sent what does not belong into a synchronization"),
        }
    }

    fn buffer(&mut self, cx: &mut Context<'_>, zxid: Zxid, txn: Bytes) -> Next {
        let catchup = &mut self.catchup;
        if zxid <= catchup.base {
            // The tree that was sent has it already.
            return Next::Stay;
        }
        if !follows(catchup.last, zxid) {
            cx.shared.needs_snapshot = true;
            return unexpected("its history has a hole");
        }
        catchup.last = zxid;
        catchup.buffer.push_back((zxid, txn));
        Next::Stay
    }

    fn remember_commit(&mut self, zxid: Zxid) -> Next {
        let catchup = &mut self.catchup;
        if zxid > catchup.last {
            return unexpected("it committed what it had not proposed");
        }
        catchup.committed = catchup.committed.max(zxid);
        Next::Stay
    }

    fn on_new_leader(
        &mut self,
        cx: &mut Context<'_>,
        epoch: Epoch,
        config: Option<&Bytes>,
    ) -> Next {
        if self.stage != Stage::Syncing || epoch != self.epoch {
            return unexpected("its NEWLEADER is not of its epoch");
        }
        if let Some(config) = config
            && cx.shared.settings.reconfig_enabled
        {
            let Ok(config) = Membership::parse(&String::from_utf8_lossy(config)) else {
                return unexpected("its configuration cannot be read");
            };
            if cx.shared.ensemble.propose(config.clone()) {
                cx.out.push(Output::ConfigProposed(Box::new(config.clone())));
            }
            self.catchup.config = Some(config);
        }
        self.stage = Stage::TakingOver;
        self.catchup.history_end = self.catchup.committed;
        if self.catchup.mode == Mode::Snap
            && let Some(link) = self.link
        {
            self.catchup.rebuilding = true;
            cx.shared.steps_open += 1;
            cx.out.push(Output::InstallSnapshot { link, zxid: self.catchup.base });
        }
        self.take_over(cx);
        Next::Stay
    }

    /// The next step of taking over the history, if the one before it is durable.
    fn take_over(&mut self, cx: &mut Context<'_>) {
        if self.stage != Stage::TakingOver || self.catchup.rebuilding {
            return;
        }
        if cx.shared.settings.has(Bug::EarlyNewLeaderAck) && self.kind == Kind::Follower {
            self.stage = Stage::WritingCurrent;
            return cx.write_current(self.epoch);
        }
        self.append_history(cx);
        if !cx.ledger.is_flushed() {
            return;
        }
        if cx.shared.settings.has(Bug::ForgetCurrentEpoch) {
            cx.shared.epochs.current = self.epoch;
        }
        if cx.shared.epochs.current == self.epoch || self.kind == Kind::Observer {
            return self.ack_new_leader(cx);
        }
        self.stage = Stage::WritingCurrent;
        cx.write_current(self.epoch);
    }

    /// The leader's history goes to our log; proposals of its own time wait until its epoch is there, and are
    /// acknowledged one by one.
    fn append_history(&mut self, cx: &mut Context<'_>) {
        let end = self.catchup.history_end;
        while let Some((zxid, txn)) = self.catchup.buffer.pop_front_if(|(zxid, _)| *zxid <= end) {
            cx.ledger.append(zxid, txn, cx.out);
        }
    }

    fn ack_new_leader(&mut self, cx: &mut Context<'_>) {
        let Some(link) = self.link else { return };
        if let Some(version) = self.told_config()
            && cx.shared.ensemble.keep_only(version)
        {
            cx.out.push(Output::ConfigWithdrawn);
        }
        self.stage = Stage::Acked;
        self.heard(cx);
        cx.send(link, Packet::Ack { zxid: Zxid::new(self.epoch, 0) });
    }

    fn on_up_to_date(&mut self, cx: &mut Context<'_>) -> Next {
        let Some(link) = self.link else { return Next::Stay };
        if self.stage != Stage::Acked {
            return unexpected("it said UPTODATE before we were");
        }
        self.stage = Stage::Live;
        let mut role_changed = false;
        if let Some(config) = self.catchup.config.take() {
            // A change that is still under way is not in force because we have come.
            let version = Zxid(config.version);
            if version.counter() == 0 || version <= self.catchup.committed {
                role_changed = self.activate(cx, config);
            }
        }
        cx.send(link, Packet::Ack { zxid: Zxid::new(self.epoch, 0) });
        cx.shared.vote.peer_epoch = self.epoch;
        if self.kind == Kind::Observer {
            if cx.shared.epochs.accepted < self.epoch {
                cx.write_accepted(self.epoch);
            }
            if cx.shared.epochs.current < self.epoch {
                cx.write_current(self.epoch);
            }
        }
        cx.out.push(Output::Became { status: self.status(), reason: None });
        let committed = self.catchup.committed;
        for (zxid, txn) in std::mem::take(&mut self.catchup.buffer) {
            self.append_live(cx, zxid, txn);
        }
        while cx.ledger.pending.front().is_some_and(|(zxid, _)| *zxid <= committed) {
            cx.ledger.commit_first(cx.out);
        }
        self.heard(cx);
        if role_changed { Next::Look(Reason::Reconfigured) } else { Next::Stay }
    }

    // Broadcast.

    /// These members are in force. Whether that changes our own part.
    fn activate(&mut self, cx: &mut Context<'_>, config: Membership) -> bool {
        let observes = |cx: &Context<'_>| cx.shared.ensemble.is_observer(cx.shared.me);
        let observed = observes(cx);
        if !cx.shared.ensemble.commit(config.clone()) {
            return false;
        }
        cx.out.push(Output::ConfigCommitted(Box::new(config)));
        observed != observes(cx)
    }

    fn on_activate(&mut self, cx: &mut Context<'_>, zxid: Zxid, leader: ServerId) -> Next {
        let Some((_, txn)) = cx.ledger.pending.front().filter(|(first, _)| *first == zxid) else {
            return if zxid <= cx.ledger.delivered {
                Next::Stay
            } else {
                unexpected("it committed out of order")
            };
        };
        let Some(next) = members_in(zxid, txn) else {
            return unexpected("its change of the members cannot be read");
        };
        cx.ledger.commit_first(cx.out);
        let role_changed = cx.shared.settings.reconfig_enabled && self.activate(cx, next);
        if role_changed || leader != self.leader {
            return Next::Look(Reason::Reconfigured);
        }
        Next::Stay
    }

    fn append_live(&mut self, cx: &mut Context<'_>, zxid: Zxid, txn: Bytes) {
        if cx.shared.settings.reconfig_enabled
            && let Some(next) = members_in(zxid, &txn)
            && cx.shared.ensemble.propose(next.clone())
        {
            cx.out.push(Output::ConfigProposed(Box::new(next)));
        }
        cx.ledger.append(zxid, txn, cx.out);
        if self.kind == Kind::Follower {
            if cx.shared.settings.has(Bug::AckBeforeFlush)
                && let Some(link) = self.link
            {
                return cx.send(link, Packet::Ack { zxid });
            }
            self.unacked.push_back(zxid);
        }
    }

    fn on_live(&mut self, cx: &mut Context<'_>, packet: Packet) -> Next {
        match packet {
            Packet::Proposal { zxid, txn } if self.kind == Kind::Follower => {
                if zxid == cx.ledger.appended {
                    // Some releases of Apache propose an unreadable request under the last id again.
                    return Next::Stay;
                }
                if !follows(cx.ledger.appended, zxid) {
                    return unexpected("its proposals have a hole");
                }
                self.append_live(cx, zxid, txn);
                Next::Stay
            }
            Packet::Commit { zxid } if self.kind == Kind::Follower => self.on_commit(cx, zxid),
            Packet::Inform { zxid, txn } if self.kind == Kind::Observer => {
                if zxid <= cx.ledger.delivered {
                    return Next::Stay;
                }
                if !follows(cx.ledger.appended, zxid) {
                    return unexpected("its transactions have a hole");
                }
                self.append_live(cx, zxid, txn);
                self.on_commit(cx, zxid)
            }
            Packet::Ping { zxid } => {
                if let Some(link) = self.link {
                    cx.out.push(Output::Pong { link, zxid });
                }
                Next::Stay
            }
            Packet::Revalidated { session, valid } => {
                cx.out.push(Output::Revalidated { session, valid });
                Next::Stay
            }
            Packet::Sync => {
                cx.out.push(Output::SyncDone);
                Next::Stay
            }
            Packet::Proposal { .. } | Packet::Commit { .. } | Packet::Inform { .. } => Next::Stay,
            Packet::CommitAndActivate { zxid, leader } => self.on_activate(cx, zxid, leader),
            Packet::InformAndActivate { zxid, leader, txn } => {
                if zxid <= cx.ledger.delivered {
                    return Next::Stay;
                }
                if !follows(cx.ledger.appended, zxid) {
                    return unexpected("its transactions have a hole");
                }
                self.append_live(cx, zxid, txn);
                self.on_activate(cx, zxid, leader)
            }
            Packet::UpToDate => Next::Stay,
            _ => unexpected("it sent what does not belong into the broadcast"),
        }
    }

    fn on_commit(&mut self, cx: &mut Context<'_>, zxid: Zxid) -> Next {
        if zxid <= cx.ledger.delivered {
            return Next::Stay;
        }
        if cx.ledger.pending.front().map(|(zxid, _)| *zxid) != Some(zxid) {
            return unexpected("it committed out of order");
        }
        cx.ledger.commit_first(cx.out);
        Next::Stay
    }

    // Durable steps.

    pub(crate) fn on_durable(&mut self, cx: &mut Context<'_>) -> Next {
        match self.stage {
            Stage::Promising if cx.shared.epochs.accepted == self.epoch => {
                self.promise(cx, Some(cx.shared.epochs.current));
            }
            Stage::Syncing | Stage::TakingOver => {
                if cx.shared.needs_snapshot && self.catchup.mode == Mode::Trunc {
                    // Say what we need on a new connection.
                    return self.redial(cx);
                }
                if self.catchup.rebuilding
                    && cx.shared.steps_open == 0
                    && cx.ledger.appended == self.catchup.base
                {
                    self.catchup.rebuilding = false;
                }
                self.take_over(cx);
            }
            Stage::WritingCurrent if cx.shared.epochs.current == self.epoch => {
                self.ack_new_leader(cx);
            }
            _ => {}
        }
        if let Some(link) = self.link {
            while let Some(zxid) = self.unacked.pop_front_if(|zxid| *zxid <= cx.ledger.flushed) {
                cx.send(link, Packet::Ack { zxid });
            }
        }
        Next::Stay
    }

    /// Begins anew with the same leader, now that it knows we have promised.
    fn redial(&mut self, cx: &mut Context<'_>) -> Next {
        self.tries += 1;
        if self.tries >= cx.shared.settings.dial_tries {
            return Next::Look(Reason::LeaderProtocol("it does not send its tree when asked to"));
        }
        if let Some(link) = self.link.take() {
            cx.hang_up(link, Hangup::NeedSnapshot);
        }
        self.catchup = Catchup::default();
        self.dial(cx);
        Next::Stay
    }
}

fn unexpected(what: &'static str) -> Next {
    Next::Look(Reason::LeaderProtocol(what))
}
