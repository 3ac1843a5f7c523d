//! A follower or an observer: it connects to its leader, synchronizes with the leader's history,
//! then receives proposals and commits.
//!
//! ```text
//! Dialing ─► Greeted ─► Promising ─► Promised ─► Receiving ─► Syncing ─► TakingOver ─► Acked ─► Live
//!            FOLLOWER-  (accepted-   ACKEPOCH    (SNAP only)  DIFF, ..   NEWLEADER:    ACK      UPTODATE
//!            INFO       Epoch)                                           all durable
//! ```
//! An acknowledgement is sent after the state that it refers to is durable: ACKEPOCH after
//! acceptedEpoch, the ACK of NEWLEADER after the history and then currentEpoch, the ACK of a
//! proposal after the transaction. (The leader does not count observers: they store both epochs at
//! UPTODATE.) No transaction is delivered before UPTODATE, that is before a quorum has the history.
//! A truncation or an installed snapshot replaces the state earlier, but clients are served only
//! after UPTODATE.

use std::collections::VecDeque;

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::{LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Membership, Packet, ServerId, Zxid};

use crate::io::{
    DurableStep, Hangup, LinkId, LinkOp, MembersChange, Output, Port, Reason, Status, Upcall,
    push_members_committed,
};
use crate::reconfig::members_in;
use crate::settings::Bug;
use crate::shared::{Context, Next, Shared};
use crate::timers::Timer;

/// Matches the packets of learners, which a leader does not send.
macro_rules! learner_packet {
    () => {
        Packet::FollowerInfo { .. }
            | Packet::ObserverInfo { .. }
            | Packet::AckEpoch { .. }
            | Packet::Ack { .. }
            | Packet::Pong { .. }
            | Packet::Learner(_)
    };
}

/// The kind of a learner. A follower receives and acknowledges proposals; an observer receives
/// transactions when they are committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Follower,
    Observer,
}

/// How often the elected server may close the link before LEADERINFO. At this count the learner
/// returns to LOOKING.
const HANG_UPS_MAX: u32 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Dialing,
    Greeted,
    /// acceptedEpoch is being stored.
    Promising,
    Promised,
    /// A snapshot is being received.
    Receiving,
    Syncing,
    /// NEWLEADER received: the history is made durable, then currentEpoch.
    TakingOver,
    WritingCurrent,
    Acked,
    Live,
}

/// How the leader synchronizes this learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
enum Mode {
    #[default]
    Diff,
    Trunc,
    Snap,
}

/// The state of the synchronization, until UPTODATE.
#[derive(Debug, Default)]
struct Catchup {
    /// The zxid after which the leader sends transactions: the end of our log, the end after TRUNC,
    /// or the zxid of the snapshot.
    base: Zxid,
    /// The last proposal received.
    last: Zxid,
    /// The last commit received.
    committed: Zxid,
    /// `committed` when NEWLEADER arrived: the end of the history that its ACK covers. The ACK does
    /// not wait for later commits: under load there would be no end to them.
    history_end: Zxid,
    /// Proposals that are not in our log yet, in order. Bounded by the history that the leader
    /// keeps in memory or reads from its log for us.
    buffer: VecDeque<(Zxid, Bytes)>,
    mode: Mode,
    /// A truncation or the installation of a snapshot is in progress.
    rebuilding: bool,
    /// The leader's membership, in force when the leader is established.
    config: Option<Membership>,
}

#[derive(Debug)]
pub(crate) struct Learner {
    kind: Kind,
    leader: ServerId,
    link: Option<LinkId>,
    stage: Stage,
    tries: u32,
    /// How often the elected server has closed the link before LEADERINFO.
    hang_ups: u32,
    /// The link to the elected server's election port broke, or could not be established, since the
    /// election.
    is_leader_away: bool,
    epoch: Epoch,
    catchup: Catchup,
    /// Appended proposals without an ACK. Each gets its own ACK, because Apache's leaders count
    /// ACKs.
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

    /// Closes the link. Steps that the log thread still executes are waited for afterwards.
    pub(crate) fn end(self, cx: &mut Context<'_>) {
        if let Some(link) = self.link {
            cx.hang_up(link, Hangup::RoleEnded);
        }
    }

    /// Returns the version of the membership that came with NEWLEADER.
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

    pub(crate) fn state_name(&self) -> String {
        format!("Learning: {:?}", self.stage)
    }

    /// Returns whether the elected server has not sent LEADERINFO yet.
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
        cx.out.push(Output::Link(LinkOp::Dial {
            peer: self.leader,
            port: Port::Quorum,
            hint: None,
        }));
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

    /// Dials again after a pause: an elected server may not know yet that it was elected.
    fn dial_later(&mut self, cx: &mut Context<'_>) -> Next {
        self.tries += 1;
        if self.tries >= cx.shared.settings.dial_tries || self.is_leader_away {
            return Next::Look(Reason::LeaderUnreachable);
        }
        self.stage = Stage::Dialing;
        cx.set_timer(Timer::Dial, cx.shared.settings.dial_retry_ms);
        Next::Stay
    }

    /// Handles a server whose election port cannot be reached. If the quorum port of the elected
    /// server cannot be reached either, that server has failed.
    pub(crate) fn on_away(&mut self, shared: &Shared, peer: ServerId) -> Next {
        if peer != self.leader || !self.is_unconfirmed() {
            return Next::Stay;
        }
        self.is_leader_away = true;
        match shared.timers.is_set(Timer::Dial) {
            true => Next::Look(Reason::LeaderUnreachable),
            false => Next::Stay,
        }
    }

    /// Notes that a server has sent a vote, so it is reachable.
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

    /// Handles a link that was closed before LEADERINFO: the elected server runs, but does not
    /// lead. The first time it may be about to lead. (An Apache server in this state refuses
    /// connections instead.)
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

    /// Restarts the timeout of the leader.
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
            // No packet is valid here: a leader waits for ACKEPOCH, and a snapshot does not consist
            // of packets.
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
            // The leader does not count an observer's acceptedEpoch. It is stored when the leader
            // is established, so that it never excludes a leader that is.
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
        // Counter 0 in an epoch after the leader's makes every leader send a snapshot. It is sent
        // only without `current`: with `current` the leader compares `last` with its own history.
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
                cx.out.push(Output::Durable(DurableStep::Truncate(zxid)));
                zxid
            }
            Packet::Snap { zxid } => {
                self.catchup.mode = Mode::Snap;
                self.stage = Stage::Receiving;
                cx.out.push(Output::Link(LinkOp::ReceiveSnapshot { link }));
                zxid
            }
            Packet::LeaderInfo { .. }
            | Packet::NewLeader { .. }
            | Packet::UpToDate
            | Packet::Proposal { .. }
            | Packet::Commit { .. }
            | Packet::Inform { .. }
            | Packet::CommitAndActivate { .. }
            | Packet::InformAndActivate { .. }
            | Packet::Ping { .. }
            | Packet::Leader(_)
            | learner_packet!() => return unexpected("it did not begin to synchronize"),
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

    /// Restarts the timeout, as a part of the snapshot arrived. The whole snapshot has no time
    /// limit.
    pub(crate) fn on_tree_moved(&mut self, cx: &mut Context<'_>, link: LinkId) -> Next {
        if self.link == Some(link) {
            self.heard(cx);
        }
        Next::Stay
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
            // No reply: the leader would take it for the ACK that it waits for.
            Packet::Ping { .. } => Next::Stay,
            Packet::Leader(_) => Next::Stay,
            Packet::CommitAndActivate { .. } | Packet::InformAndActivate { .. } => {
                // A learner that is not up to date has no membership to activate: with the next
                // leader it starts from the new membership.
                Next::Look(Reason::Reconfigured)
            }
            Packet::LeaderInfo { .. }
            | Packet::Diff { .. }
            | Packet::Trunc { .. }
            | Packet::Snap { .. }
            | learner_packet!() => {
                unexpected("it sent what does not belong into a synchronization")
            }
        }
    }

    fn buffer(&mut self, cx: &mut Context<'_>, zxid: Zxid, txn: Bytes) -> Next {
        let catchup = &mut self.catchup;
        if zxid <= catchup.base {
            // It is already in our log or in the snapshot.
            return Next::Stay;
        }
        if !zxid.follows(catchup.last) {
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
                cx.out.push(Output::Durable(DurableStep::WriteMembers(MembersChange::Proposed(
                    Box::new(config.clone()),
                ))));
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
            cx.out.push(Output::Durable(DurableStep::InstallSnapshot {
                zxid: self.catchup.base,
                snapshot: link,
            }));
        }
        self.take_over(cx);
        Next::Stay
    }

    /// Starts the next step towards the ACK of NEWLEADER, if the previous one is durable.
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

    /// Appends the history up to `history_end`. Later proposals wait until UPTODATE, when the epoch
    /// is stored, and are acknowledged one by one.
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
            cx.out.push(Output::Durable(DurableStep::WriteMembers(MembersChange::Withdrawn)));
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
            // The membership of a reconfig that is not committed yet is not in force.
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
        cx.out.push(Output::Up(Upcall::Became { status: self.status(), reason: None }));
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

    /// Activates a membership. Returns whether this server changes between voter and observer.
    fn activate(&mut self, cx: &mut Context<'_>, config: Membership) -> bool {
        let observes = |cx: &Context<'_>| cx.shared.ensemble.is_observer(cx.shared.me);
        let observed = observes(cx);
        if !cx.shared.ensemble.commit(config.clone()) {
            return false;
        }
        push_members_committed(cx.out, config);
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
            cx.out.push(Output::Durable(DurableStep::WriteMembers(MembersChange::Proposed(
                Box::new(next),
            ))));
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
                    // Some Apache releases propose an unreadable request with the zxid of the last
                    // proposal.
                    return Next::Stay;
                }
                if !zxid.follows(cx.ledger.appended) {
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
                if !zxid.follows(cx.ledger.appended) {
                    return unexpected("its transactions have a hole");
                }
                self.append_live(cx, zxid, txn);
                self.on_commit(cx, zxid)
            }
            Packet::Ping { zxid } => {
                if let Some(link) = self.link {
                    cx.out.push(Output::Up(Upcall::Pong { link, zxid }));
                }
                Next::Stay
            }
            Packet::Leader(message) => {
                cx.out.push(Output::Up(Upcall::FromLeader(message)));
                Next::Stay
            }
            Packet::Proposal { .. } | Packet::Commit { .. } | Packet::Inform { .. } => Next::Stay,
            Packet::CommitAndActivate { zxid, leader } => self.on_activate(cx, zxid, leader),
            Packet::InformAndActivate { zxid, leader, txn } => {
                if zxid <= cx.ledger.delivered {
                    return Next::Stay;
                }
                if !zxid.follows(cx.ledger.appended) {
                    return unexpected("its transactions have a hole");
                }
                self.append_live(cx, zxid, txn);
                self.on_activate(cx, zxid, leader)
            }
            Packet::UpToDate => Next::Stay,
            Packet::LeaderInfo { .. }
            | Packet::Diff { .. }
            | Packet::Trunc { .. }
            | Packet::Snap { .. }
            | Packet::NewLeader { .. }
            | learner_packet!() => unexpected("it sent what does not belong into the broadcast"),
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
                    // Request a snapshot on a new link.
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
            Stage::Dialing
            | Stage::Greeted
            | Stage::Promising
            | Stage::Promised
            | Stage::Receiving
            | Stage::WritingCurrent
            | Stage::Acked
            | Stage::Live => {}
        }
        if let Some(link) = self.link {
            while let Some(zxid) = self.unacked.pop_front_if(|zxid| *zxid <= cx.ledger.flushed) {
                cx.send(link, Packet::Ack { zxid });
            }
        }
        Next::Stay
    }

    /// Reconnects to the same leader to request a snapshot. acceptedEpoch is stored now, so the
    /// next ACKEPOCH is sent without `current` and can request one.
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
