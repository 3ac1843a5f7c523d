//! A leader: it agrees on an epoch, hands over its history, and then broadcasts.
//!
//! ```text
//! Discovering ─► WritingAccepted ─► Promising ─► WritingCurrent ─► Synchronizing ─► Established
//! FOLLOWERINFO   (acceptedEpoch)    LEADERINFO,  (currentEpoch)    DIFF.. NEWLEADER  UPTODATE,
//! of a quorum                       ACKEPOCH                       ACK of a quorum   proposals
//!                                   of a quorum
//! ```
//! Learners that come later go through the same steps on their own. The three parts are in files of
//! their own: [`discovery`], [`sync`], [`broadcast`]; so is what a client's `sync` takes, [`still_leading`].

mod broadcast;
mod discovery;
mod still_leading;
mod sync;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ironkeeper_proto::{Epoch, Membership, Packet, ServerId, Zxid};

use crate::LearnerView;
use crate::io::{Hangup, LinkId, Output, Reason, Status};
use crate::learner::Kind;
use crate::ledger::Ledger;
use crate::member::{Context, Next, Shared};
use crate::plan::LogRead;
use crate::quorum::Quorum;
use crate::reconfig::ReconfigRefused;
use crate::timers::Timer;
use broadcast::Revalidation;
use discovery::Claim;
use still_leading::Words;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Discovering,
    WritingAccepted,
    Promising,
    WritingCurrent,
    Synchronizing,
    Established,
}

/// How far a learner has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// It has not said who it is.
    Accepted,
    /// It waits for the epoch.
    Greeted,
    /// It has been told the epoch.
    Told,
    /// It has promised; its history ends there.
    Promised(Zxid),
    /// The log on disk is read for it.
    ReadingLog(Zxid),
    /// History and NEWLEADER are on their way. From here on it gets everything that is proposed.
    Synced,
    /// It has the history and waits until a quorum has it.
    Acked,
    Live,
}

#[derive(Debug)]
struct Peer {
    id: ServerId,
    kind: Kind,
    stage: Stage,
    heard_ms: u64,
    /// The last transaction it has made durable.
    acked: Zxid,
    /// A proposal it has not acknowledged, and since when.
    unacked: Option<(Zxid, u64)>,
    /// The last question whether it still follows that it has answered.
    answered: u64,
    /// The last probe that it has answered.
    probed: u64,
    /// It has promised a later epoch than ours and waits for one that it can follow.
    waits_for_epoch: bool,
    /// Who it says to be, while another connection of that server may still be alive. Until that is
    /// decided it has no name, at [`Stage::Accepted`].
    claim: Option<Claim>,
}

impl Peer {
    /// Whether it gets what is proposed.
    fn hears(&self) -> bool {
        self.stage >= Stage::Synced
    }
}

#[derive(Debug)]
pub(crate) struct Leader {
    phase: Phase,
    epoch: Epoch,
    /// Epoch and end of the history we lead with.
    own: (Epoch, Zxid),
    /// Bounded by the driver's limit on connections.
    peers: BTreeMap<LinkId, Peer>,
    /// The largest epoch any learner has promised before.
    accepted_max: Epoch,
    /// Voters that have presented themselves and are connected, have promised, have taken over the
    /// history.
    greeted: BTreeSet<ServerId>,
    promised: BTreeSet<ServerId>,
    taken_over: BTreeSet<ServerId>,
    half_ticks: u64,
    /// What learners without an id are called.
    next_stranger: i64,
    /// How many probes were sent.
    probes: u64,
    words: Words,
    /// Bounded by the limit on connections of the learners.
    revalidations: VecDeque<Revalidation>,
    /// Where acknowledgements are put together; kept to be filled again.
    acks: Vec<(ServerId, Zxid)>,
}

impl Leader {
    pub(crate) fn begin(cx: &mut Context<'_>) -> (Leader, Next) {
        let mut leader = Leader {
            phase: Phase::Discovering,
            epoch: Epoch(0),
            own: (cx.shared.epochs.current, cx.ledger.appended),
            peers: BTreeMap::new(),
            accepted_max: cx.shared.epochs.accepted.max(cx.shared.accepted_seen),
            greeted: BTreeSet::from([cx.shared.me]),
            promised: BTreeSet::from([cx.shared.me]),
            taken_over: BTreeSet::new(),
            half_ticks: 0,
            next_stranger: -1,
            probes: 0,
            words: Words::default(),
            revalidations: VecDeque::new(),
            acks: Vec::new(),
        };
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
        if !self.accepts_proposals(shared, ledger) {
            return Err(ReconfigRefused::NotLeading);
        }
        if shared.ensemble.proposed().is_some() {
            return Err(ReconfigRefused::InProgress);
        }
        if next.voters().next().is_none() {
            return Err(ReconfigRefused::NoVoters);
        }
        // New voters come as followers first; whoever observes now has to come again before it counts.
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

    pub(crate) fn pending_syncs(&self) -> usize {
        self.words.syncs()
    }

    pub(crate) fn status(&self) -> Status {
        match self.phase {
            Phase::Established => Status::Leading { epoch: self.epoch },
            _ => Status::Looking,
        }
    }

    pub(crate) fn accepts_proposals(&self, shared: &Shared, ledger: &Ledger) -> bool {
        self.phase == Phase::Established
            && ledger.last_proposed.counter() < shared.settings.counter_max
    }

    pub(crate) fn has(&self, link: LinkId) -> bool {
        self.peers.contains_key(&link)
    }

    pub(crate) fn on_accepted(&mut self, shared: &Shared, link: LinkId) {
        self.peers.insert(
            link,
            Peer {
                id: ServerId::NOBODY,
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

    /// Whether no quorum has taken over our history yet.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.phase != Phase::Established
    }

    /// The voter at the other end, if it has come to follow us and an epoch is not agreed on yet.
    /// (Later it may hang up to ask for our whole tree, and is back at once.)
    pub(crate) fn unconfirmed_follower(&self, link: LinkId) -> Option<ServerId> {
        let peer = self.peers.get(&link)?;
        let follows = peer.kind == Kind::Follower && peer.stage > Stage::Accepted;
        (self.phase <= Phase::Promising && follows).then_some(peer.id)
    }

    /// Whether this voter has come to follow us and is still connected.
    pub(crate) fn has_greeted(&self, id: ServerId) -> bool {
        self.peers.values().any(|peer| {
            peer.id == id && peer.kind == Kind::Follower && peer.stage > Stage::Accepted
        })
    }

    /// A learner takes in the tree it is sent.
    pub(crate) fn on_tree_moved(&mut self, shared: &Shared, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.heard_ms = shared.now_ms;
        }
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
            // An epoch is agreed on with those who are there. A promise stays one.
            self.greeted.remove(&peer.id);
        }
        Some(peer)
    }

    pub(crate) fn on_packet(&mut self, cx: &mut Context<'_>, link: LinkId, packet: Packet) -> Next {
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        peer.heard_ms = cx.shared.now_ms;
        let (from, stage) = (peer.id, peer.stage);
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
            Packet::Pong { zxid, touches } => {
                if !touches.is_empty() && self.phase == Phase::Established {
                    cx.out.push(Output::Touched { from, touches });
                }
                self.on_pong(cx, link, zxid);
                self.on_probe_answer(cx, link, zxid)
            }
            Packet::Request(_) | Packet::Revalidate { .. } if stage != Stage::Live => {
                self.drop_peer(cx, link, Hangup::Protocol("it is not up to date"))
            }
            Packet::Request(request) => {
                cx.out.push(Output::Request { link, from, request });
                Next::Stay
            }
            Packet::Revalidate { session, timeout_ms } => {
                cx.out.push(Output::Revalidate { link, from, session, timeout_ms });
                Next::Stay
            }
            _ => self.drop_peer(cx, link, Hangup::Protocol("only a leader sends that")),
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
            _ => Next::Stay,
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

    /// Pings, and every second time a look at who is still there.
    fn on_half_tick(&mut self, cx: &mut Context<'_>) -> Next {
        let (now_ms, init_ms, sync_ms) =
            (cx.shared.now_ms, cx.shared.settings.init_ms(), cx.shared.settings.sync_ms());
        let silent = |peer: &Peer| {
            // Before they are up to date, learners neither answer pings nor acknowledge proposals.
            if peer.stage != Stage::Live {
                return now_ms.saturating_sub(peer.heard_ms) > init_ms + sync_ms;
            }
            // A peer that answers pings but acknowledges nothing holds everybody up.
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
                cx.out.push(Output::Send { link: *link, packet: Packet::Ping { zxid } });
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
            // Voters of a change that is under way may come until the leader is established.
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
