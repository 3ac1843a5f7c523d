//! The leader: it agrees on an epoch with a quorum, synchronizes its learners, then broadcasts.
//!
//! ```text
//! Discovering ─► WritingAccepted ─► Promising ─► WritingCurrent ─► Synchronizing ─► Established
//! FOLLOWERINFO   (acceptedEpoch)    LEADERINFO,  (currentEpoch)    DIFF.. NEWLEADER  UPTODATE,
//! of a quorum                       ACKEPOCH                       ACK of a quorum   proposals
//!                                   of a quorum
//! ```
//! Learners that connect later go through the same steps on their own. The phases are in
//! [`discovery`], [`sync`] and [`broadcast`]; leadership confirmation is in [`confirmation`].

mod broadcast;
mod confirmation;
mod discovery;
mod proposer;
mod sync;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ironkeeper_proto::quorum_packet::LeaderMessage;
use ironkeeper_proto::{Epoch, Membership, Packet, ServerId, Zxid};

use crate::io::{Hangup, LinkId, LinkOp, Output, Reason, Status, Upcall};
use crate::learner::Kind;
use crate::ledger::Ledger;
use crate::plan::LogRead;
use crate::quorum::Quorum;
use crate::reconfig::ReconfigRefused;
use crate::shared::{Context, Next, Shared};
use crate::timers::Timer;
use broadcast::DeliveredReply;
use confirmation::Confirmations;
use discovery::Claim;

pub use proposer::Proposer;

/// The state of a learner as its leader sees it, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnerView {
    /// Negative for a learner without an id of its own.
    pub id: ServerId,
    /// Whether the learner is an observer.
    pub observes: bool,
    /// Whether the learner is synchronized and serves clients.
    pub is_up_to_date: bool,
    /// The last transaction that the learner has acknowledged; observers do not acknowledge.
    pub acknowledged: Option<Zxid>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Discovering,
    WritingAccepted,
    Promising,
    WritingCurrent,
    Synchronizing,
    Established,
}

/// The progress of one learner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The learner has not been admitted under an id.
    Accepted,
    /// FOLLOWERINFO or OBSERVERINFO received; the learner waits for the epoch.
    Greeted,
    /// LEADERINFO sent.
    Told,
    /// ACKEPOCH received; the learner's history ends at this zxid.
    Promised(Zxid),
    /// The log on disk is being read for the learner, after this zxid.
    ReadingLog(Zxid),
    /// History and NEWLEADER are sent. From here on the learner receives all proposals and commits.
    Synced,
    /// NEWLEADER acknowledged; the learner waits until a quorum has acknowledged it.
    Acked,
    Live,
}

#[derive(Debug)]
struct Peer {
    id: ServerId,
    kind: Kind,
    stage: Stage,
    heard_ms: u64,
    /// The last transaction that the peer has acknowledged as durable.
    acked: Zxid,
    /// A proposal that the peer has not acknowledged, and the time since which its ack is awaited.
    unacked: Option<(Zxid, u64)>,
    /// The number of the last confirmation ping that the peer has answered.
    answered: u64,
    /// The number of the last probe that the peer has answered.
    probed: u64,
    /// The peer's acceptedEpoch is larger than our epoch: it waits for an epoch that it can follow.
    waits_for_epoch: bool,
    /// The id that the peer claims, while another link of that server may still be alive. Until
    /// that is decided the peer stays at [`Stage::Accepted`], without an id.
    claim: Option<Claim>,
}

impl Peer {
    /// Returns whether the peer receives proposals and commits.
    fn hears(&self) -> bool {
        self.stage >= Stage::Synced
    }
}

#[derive(Debug)]
pub(crate) struct Leader {
    phase: Phase,
    epoch: Epoch,
    /// currentEpoch and the last zxid of our log when this role began.
    own: (Epoch, Zxid),
    /// Bounded by the driver's limit on connections.
    peers: BTreeMap<LinkId, Peer>,
    /// The largest acceptedEpoch of this server and of all members that have connected.
    accepted_max: Epoch,
    /// Voters that are connected and have sent FOLLOWERINFO.
    greeted: BTreeSet<ServerId>,
    /// Voters that have sent ACKEPOCH.
    promised: BTreeSet<ServerId>,
    /// Voters that have acknowledged NEWLEADER.
    taken_over: BTreeSet<ServerId>,
    half_ticks: u64,
    /// The id of the next learner without an id of its own; negative.
    next_stranger: i64,
    /// The number of the last probe.
    probes: u64,
    confirmations: Confirmations,
    /// Replies that wait for the delivery of transactions, in order. Bounded by the limit on
    /// connections of the learners.
    delivered_replies: VecDeque<DeliveredReply>,
    /// Buffer of `advance`, kept to be reused.
    acks: Vec<(ServerId, Zxid)>,
}

impl Leader {
    fn new(shared: &Shared, ledger: &Ledger) -> Leader {
        Leader {
            phase: Phase::Discovering,
            epoch: Epoch(0),
            own: (shared.epochs.current, ledger.appended),
            peers: BTreeMap::new(),
            accepted_max: shared.epochs.accepted.max(shared.accepted_seen),
            greeted: BTreeSet::from([shared.me]),
            promised: BTreeSet::from([shared.me]),
            taken_over: BTreeSet::new(),
            half_ticks: 0,
            next_stranger: -1,
            probes: 0,
            confirmations: Confirmations::default(),
            delivered_replies: VecDeque::new(),
            acks: Vec::new(),
        }
    }

    /// Returns the leader of a standalone server. It is established: it has the whole history of
    /// its only voter.
    pub(crate) fn standalone(shared: &Shared, ledger: &Ledger) -> Leader {
        let epoch = ledger.last_proposed.epoch();
        Leader { phase: Phase::Established, epoch, ..Leader::new(shared, ledger) }
    }

    pub(crate) fn begin(cx: &mut Context<'_>) -> (Leader, Next) {
        let mut leader = Leader::new(cx.shared, cx.ledger);
        cx.set_timer(Timer::Patience, cx.shared.settings.init_ms());
        cx.set_timer(Timer::HalfTick, cx.shared.settings.tick_ms / 2);
        let next = leader.try_epoch(cx);
        (leader, next)
    }

    pub(crate) fn end(self, cx: &mut Context<'_>) {
        for link in self.peers.into_keys() {
            cx.hang_up(link, Hangup::RoleEnded);
        }
    }

    pub(crate) fn may_reconfigure(
        &self,
        shared: &Shared,
        ledger: &Ledger,
        next: &Membership,
    ) -> Result<(), ReconfigRefused> {
        if !shared.settings.reconfig_enabled {
            return Err(ReconfigRefused::Disabled);
        }
        if self.next_zxid(shared, ledger).is_none() {
            return Err(ReconfigRefused::NotLeading);
        }
        if shared.ensemble.proposed().is_some() {
            return Err(ReconfigRefused::InProgress);
        }
        if next.voters().next().is_none() {
            return Err(ReconfigRefused::NoVoters);
        }
        // A new voter counts if it is connected as a follower. A present observer does not: it has
        // to connect again as a follower first.
        let here = |id: ServerId| {
            let observes = shared.ensemble.is_observer(id);
            id == shared.me
                || !observes
                    && self.peers.values().any(|peer| {
                        peer.id == id && peer.kind == Kind::Follower && peer.stage == Stage::Live
                    })
        };
        if Quorum::of(next).holds(here) { Ok(()) } else { Err(ReconfigRefused::NoQuorum) }
    }

    pub(crate) fn learners(&self) -> Vec<LearnerView> {
        let greeted = self.peers.values().filter(|peer| peer.stage > Stage::Accepted);
        greeted
            .map(|peer| LearnerView {
                id: peer.id,
                observes: peer.kind == Kind::Observer,
                is_up_to_date: peer.stage == Stage::Live,
                acknowledged: Some(peer.acked).filter(|acked| acked.0 > 0),
            })
            .collect()
    }

    pub(crate) fn unconfirmed(&self) -> impl Iterator<Item = &LeaderMessage> {
        self.confirmations.replies()
    }

    pub(crate) fn status(&self) -> Status {
        match self.phase {
            Phase::Established => Status::Leading { epoch: self.epoch },
            _ => Status::Looking,
        }
    }

    pub(crate) fn has(&self, link: LinkId) -> bool {
        self.peers.contains_key(&link)
    }

    pub(crate) fn state_name(&self) -> String {
        format!("Leading: {:?}", self.phase)
    }

    pub(crate) fn on_accepted(&mut self, shared: &Shared, link: LinkId) {
        self.peers.insert(
            link,
            Peer {
                id: ServerId::NONE,
                kind: Kind::Observer,
                stage: Stage::Accepted,
                heard_ms: shared.now_ms,
                acked: Zxid(i64::MIN),
                unacked: None,
                answered: 0,
                probed: 0,
                waits_for_epoch: false,
                claim: None,
            },
        );
    }

    /// Returns whether no quorum has acknowledged NEWLEADER yet.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.phase != Phase::Established
    }

    /// Returns the id of the follower on this link while no quorum has sent ACKEPOCH. (Later a
    /// follower may close its link to request a snapshot, and reconnects at once.)
    pub(crate) fn unconfirmed_follower(&self, link: LinkId) -> Option<ServerId> {
        let peer = self.peers.get(&link)?;
        let follows = peer.kind == Kind::Follower && peer.stage > Stage::Accepted;
        (self.phase <= Phase::Promising && follows).then_some(peer.id)
    }

    /// Returns whether this server is connected as a follower.
    pub(crate) fn has_greeted(&self, id: ServerId) -> bool {
        self.peers.values().any(|peer| {
            peer.id == id && peer.kind == Kind::Follower && peer.stage > Stage::Accepted
        })
    }

    /// Notes that a learner receives the snapshot it is sent.
    pub(crate) fn on_tree_moved(&mut self, shared: &Shared, link: LinkId) -> Next {
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.heard_ms = shared.now_ms;
        }
        Next::Stay
    }

    pub(crate) fn on_closed(&mut self, cx: &mut Context<'_>, link: LinkId) -> Next {
        match self.remove_peer(link) {
            Some(peer) if peer.stage > Stage::Accepted => self.decide_claims(cx),
            _ => Next::Stay,
        }
    }

    fn drop_peer(&mut self, cx: &mut Context<'_>, link: LinkId, reason: Hangup) -> Next {
        if self.remove_peer(link).is_some() {
            cx.hang_up(link, reason);
        }
        Next::Stay
    }

    fn remove_peer(&mut self, link: LinkId) -> Option<Peer> {
        let peer = self.peers.remove(&link)?;
        if peer.stage > Stage::Accepted {
            // The epoch is agreed on with connected voters. An ACKEPOCH stays valid.
            self.greeted.remove(&peer.id);
        }
        Some(peer)
    }

    pub(crate) fn on_packet(&mut self, cx: &mut Context<'_>, link: LinkId, packet: Packet) -> Next {
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        peer.heard_ms = cx.shared.now_ms;
        let stage = peer.stage;
        match packet {
            Packet::FollowerInfo { accepted, info } => {
                self.on_info(cx, link, Kind::Follower, accepted, info)
            }
            Packet::ObserverInfo { accepted, info } => {
                self.on_info(cx, link, Kind::Observer, accepted, info)
            }
            _ if stage == Stage::Accepted => {
                self.drop_peer(cx, link, Hangup::Protocol("it did not say who it is"))
            }
            Packet::AckEpoch { last, current } => self.on_ack_epoch(cx, link, last, current),
            Packet::Ack { zxid } => self.on_ack(cx, link, zxid),
            Packet::Pong { zxid, report } => {
                if !report.is_empty() && self.phase == Phase::Established {
                    cx.out.push(Output::Up(Upcall::Report(report)));
                }
                self.on_pong(cx, link, zxid);
                self.on_probe_answer(cx, link, zxid)
            }
            Packet::Learner(_) if stage != Stage::Live => {
                self.drop_peer(cx, link, Hangup::Protocol("it is not up to date"))
            }
            Packet::Learner(message) => {
                cx.out.push(Output::Up(Upcall::FromLearner { link, message }));
                Next::Stay
            }
            Packet::LeaderInfo { .. }
            | Packet::Diff { .. }
            | Packet::Trunc { .. }
            | Packet::Snap { .. }
            | Packet::NewLeader { .. }
            | Packet::UpToDate
            | Packet::Proposal { .. }
            | Packet::Commit { .. }
            | Packet::Inform { .. }
            | Packet::CommitAndActivate { .. }
            | Packet::InformAndActivate { .. }
            | Packet::Ping { .. }
            | Packet::Leader(_) => {
                self.drop_peer(cx, link, Hangup::Protocol("only a leader sends that"))
            }
        }
    }

    pub(crate) fn on_log_read(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        read: &LogRead,
    ) -> Next {
        if let Some(Peer { stage: Stage::ReadingLog(last), .. }) = self.peers.get(&link) {
            let last = *last;
            self.sync_with_log(cx, link, last, read);
        }
        Next::Stay
    }

    pub(crate) fn on_durable(&mut self, cx: &mut Context<'_>) -> Next {
        match self.phase {
            Phase::WritingAccepted if cx.shared.epochs.accepted == self.epoch => {
                self.on_epoch_accepted(cx)
            }
            Phase::WritingCurrent if cx.shared.epochs.current == self.epoch => {
                self.on_epoch_current(cx)
            }
            Phase::Established => self.advance(cx),
            Phase::Discovering
            | Phase::WritingAccepted
            | Phase::Promising
            | Phase::WritingCurrent
            | Phase::Synchronizing => Next::Stay,
        }
    }

    pub(crate) fn on_timers(&mut self, cx: &mut Context<'_>) -> Next {
        let now_ms = cx.shared.now_ms;
        if cx.shared.timers.take(Timer::Patience, now_ms) && self.phase != Phase::Established {
            return Next::Look(match self.phase {
                Phase::Synchronizing => Reason::NoSyncQuorum,
                _ => Reason::NoEpochQuorum,
            });
        }
        if cx.shared.timers.take(Timer::HalfTick, now_ms) {
            cx.set_timer(Timer::HalfTick, cx.shared.settings.tick_ms / 2);
            return self.on_half_tick(cx);
        }
        Next::Stay
    }

    /// Sends pings, and every second time checks that a quorum is connected.
    fn on_half_tick(&mut self, cx: &mut Context<'_>) -> Next {
        let (now_ms, init_ms, sync_ms) =
            (cx.shared.now_ms, cx.shared.settings.init_ms(), cx.shared.settings.sync_ms());
        let silent = |peer: &Peer| {
            // Learners that are not up to date neither reply to pings nor acknowledge proposals.
            if peer.stage != Stage::Live {
                return now_ms.saturating_sub(peer.heard_ms) > init_ms + sync_ms;
            }
            // A peer that replies to pings but acknowledges nothing can delay all commits.
            now_ms.saturating_sub(peer.heard_ms) > sync_ms
                || peer.unacked.is_some_and(|(_, since)| now_ms.saturating_sub(since) > sync_ms)
        };
        let gone: Vec<LinkId> =
            self.peers.iter().filter(|(_, peer)| silent(peer)).map(|(link, _)| *link).collect();
        for link in gone {
            self.drop_peer(cx, link, Hangup::Silent);
        }
        if let Next::Look(reason) = self.decide_claims(cx) {
            return Next::Look(reason);
        }
        if let Next::Look(reason) = self.try_renew(cx) {
            return Next::Look(reason);
        }
        let zxid = cx.ledger.last_proposed;
        for (link, peer) in &self.peers {
            if peer.hears() {
                cx.out.push(Output::Link(LinkOp::Send {
                    link: *link,
                    packet: Packet::Ping { zxid },
                }));
            }
        }
        self.half_ticks += 1;
        if self.phase > Phase::Discovering && self.half_ticks.is_multiple_of(2) {
            let me = cx.shared.me;
            let here = |id: ServerId| {
                id == me
                    || self.peers.values().any(|peer| {
                        peer.id == id && peer.kind == Kind::Follower && !peer.waits_for_epoch
                    })
            };
            // Voters of a proposed membership may connect until the leader is established.
            let is_quorum = match self.phase {
                Phase::Established => cx.shared.ensemble.joint().holds(here),
                _ => cx.shared.ensemble.quorum().holds(here),
            };
            if !is_quorum {
                return Next::Look(Reason::QuorumLost);
            }
        }
        Next::Stay
    }
}
