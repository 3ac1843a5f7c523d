//! Discovery: agreement on an epoch that no quorum has accepted from another leader.
//!
//! Only voters of the membership in force count, each of them once. Observers and joining servers
//! are served, but discovery does not wait for them.

use ironkeeper_proto::quorum_packet::{EPOCH_MAX, LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Packet, ServerId, Zxid};

use super::{Leader, Peer, Phase, Stage};
use crate::io::{Hangup, LinkId, Reason};
use crate::learner::Kind;
use crate::settings::Bug;
use crate::shared::{Context, Next};
use crate::timers::Timer;

/// The id and the acceptedEpoch that a learner has sent, before the leader admits it under this id.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    id: ServerId,
    kind: Kind,
    accepted: Epoch,
    /// If the server replies to this probe on its other link, the other link is the genuine one.
    probe: u64,
}

/// The upper end of the zxids of probes. A probe is a ping whose number is used by no transaction
/// and no leadership confirmation (see `confirmation`); learners return the number unchanged. Any
/// other packet on a link may have been sent before its server abandoned the link.
const PROBES_BELOW: i64 = i64::MIN / 2;

fn probe(number: u64) -> Packet {
    Packet::Ping { zxid: Zxid(PROBES_BELOW - number as i64) }
}

impl Leader {
    pub(super) fn on_info(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        kind: Kind,
        accepted: Epoch,
        info: LearnerInfo,
    ) -> Next {
        let peer = &self.peers[&link];
        let refuse = if peer.stage != Stage::Accepted || peer.claim.is_some() {
            Some(Hangup::Protocol("it said twice who it is"))
        } else if info.protocol < PROTOCOL_VERSION {
            Some(Hangup::Protocol("its version is too old"))
        } else if info.config_version > cx.shared.ensemble.committed().version {
            Some(Hangup::NewerConfig)
        } else if accepted >= EPOCH_MAX {
            Some(Hangup::Protocol("there is no epoch after its own"))
        } else if accepted > cx.shared.epoch_in_reach() {
            Some(Hangup::Protocol("its epoch is beyond reach"))
        } else if info.server == Some(cx.shared.me) {
            Some(Hangup::OwnId)
        } else {
            None
        };
        if let Some(reason) = refuse {
            return self.drop_peer(cx, link, reason);
        }
        let id = info.server.filter(|id| *id != ServerId::ANONYMOUS && id.0 >= 0);
        let id = id.unwrap_or_else(|| {
            self.next_stranger -= 1;
            ServerId(self.next_stranger + 1)
        });
        self.probes += 1;
        let claim = Claim { id, kind, accepted, probe: self.probes };
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.claim = Some(claim);
        }
        // If the server already has a link and the link is alive, it replies to this probe there.
        if let Some((old, peer)) = self.connection_of(id)
            && peer.stage == Stage::Live
        {
            cx.send(old, probe(self.probes));
        }
        self.decide_claims(cx)
    }

    /// Probes a learner that is now up to date, and therefore replies to pings, if another link
    /// claims its id.
    pub(super) fn probe_newcomer(&self, cx: &mut Context<'_>, link: LinkId) {
        let Some(peer) = self.peers.get(&link) else { return };
        let is_for_it = |other: &Peer| other.claim.is_some_and(|claim| claim.id == peer.id);
        if self.peers.values().any(is_for_it) {
            cx.send(link, probe(self.probes));
        }
    }

    pub(super) fn on_probe_answer(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        echo: Zxid,
    ) -> Next {
        let number = PROBES_BELOW.checked_sub(echo.0).and_then(|number| u64::try_from(number).ok());
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        match number.filter(|number| (1..=self.probes).contains(number)) {
            Some(number) => {
                peer.probed = peer.probed.max(number);
                self.decide_claims(cx)
            }
            None => Next::Stay,
        }
    }

    /// Returns the link on which this server was admitted, as opposed to links that only claim its
    /// id.
    fn connection_of(&self, id: ServerId) -> Option<(LinkId, &Peer)> {
        let is_its = |peer: &Peer| peer.id == id && peer.stage > Stage::Accepted;
        self.peers.iter().find(|(_, peer)| is_its(peer)).map(|(link, peer)| (*link, peer))
    }

    /// Decides on the links that claim an id. If the server has no other link, the claim is
    /// admitted. If the server replies to the probe on its existing link, the claim is another
    /// server's and is rejected. If the existing link is closed, or without packets for a tick, the
    /// server has restarted, and the new link replaces the old one.
    pub(super) fn decide_claims(&mut self, cx: &mut Context<'_>) -> Next {
        let (now_ms, tick_ms) = (cx.shared.now_ms, cx.shared.settings.tick_ms);
        let claims = self.peers.iter().filter_map(|(link, peer)| Some((*link, peer.claim?)));
        for (link, claim) in claims.collect::<Vec<_>>() {
            if let Some((old, peer)) = self.connection_of(claim.id) {
                if peer.probed >= claim.probe {
                    self.drop_peer(cx, link, Hangup::Connected);
                    continue;
                }
                if now_ms.saturating_sub(peer.heard_ms) < tick_ms {
                    continue;
                }
                self.drop_peer(cx, old, Hangup::Replaced);
            }
            if let Next::Look(reason) = self.admit(cx, link, claim) {
                return Next::Look(reason);
            }
        }
        Next::Stay
    }

    /// Admits a learner under the id that it has claimed.
    fn admit(&mut self, cx: &mut Context<'_>, link: LinkId, claim: Claim) -> Next {
        let Claim { id, kind, accepted, .. } = claim;
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        (peer.id, peer.kind, peer.stage, peer.claim) = (id, kind, Stage::Greeted, None);
        // The acceptedEpoch of a non-member is ignored.
        let is_member = cx.shared.ensemble.is_member(id);
        if is_member {
            cx.shared.accepted_seen = cx.shared.accepted_seen.max(accepted);
        }
        if self.phase == Phase::Discovering {
            if is_member {
                self.accepted_max = self.accepted_max.max(accepted);
            }
            if kind == Kind::Follower && cx.shared.ensemble.committed().is_voter(id) {
                self.greeted.insert(id);
            }
            return self.try_epoch(cx);
        }
        let voter = kind == Kind::Follower && cx.shared.ensemble.may_vote(id);
        if voter && accepted > self.epoch {
            peer.waits_for_epoch = true;
            return self.try_renew(cx);
        }
        if self.phase >= Phase::Promising {
            self.tell_epoch(cx, link);
        }
        Next::Stay
    }

    /// Begins a new epoch for a voter whose acceptedEpoch is larger than ours, because it accepted
    /// the epoch of a server that was never established. The voter cannot follow in our epoch,
    /// however long we lead. A new epoch interrupts service, so there are two conditions; without
    /// them any server that reaches our port could force one epoch after the other. The voter must
    /// be LOOKING by its own vote, received on the link between the election ports; and there is a
    /// minimum time between two renewals. Until both hold, the voter waits.
    pub(super) fn try_renew(&mut self, cx: &mut Context<'_>) -> Next {
        let (now_ms, pause_ms) = (cx.shared.now_ms, cx.shared.settings.init_ms());
        let waits = |peer: &Peer| peer.waits_for_epoch && cx.shared.looking.contains(&peer.id);
        if !self.peers.values().any(waits)
            || !cx.shared.renewals.is_due(now_ms, pause_ms)
            || cx.shared.settings.has(Bug::KeepEpoch)
        {
            return Next::Stay;
        }
        cx.shared.renewals.note(now_ms, pause_ms);
        Next::Look(Reason::LaterEpochPromised)
    }

    pub(crate) fn try_epoch(&mut self, cx: &mut Context<'_>) -> Next {
        let enough = cx.shared.ensemble.quorum().holds(|id| self.greeted.contains(&id));
        if self.phase == Phase::Discovering && enough {
            self.phase = Phase::WritingAccepted;
            self.epoch = Epoch(self.accepted_max.0 + 1);
            cx.write_accepted(self.epoch);
        }
        Next::Stay
    }

    /// Sends LEADERINFO. From here on the epoch is fixed, whatever learners that connect later have
    /// accepted.
    pub(super) fn on_epoch_accepted(&mut self, cx: &mut Context<'_>) -> Next {
        self.phase = Phase::Promising;
        cx.set_timer(Timer::Patience, cx.shared.settings.init_ms());
        let waiting: Vec<LinkId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.stage == Stage::Greeted && !peer.waits_for_epoch)
            .map(|(link, _)| *link)
            .collect();
        for link in waiting {
            self.tell_epoch(cx, link);
        }
        self.try_promised(cx)
    }

    fn tell_epoch(&mut self, cx: &mut Context<'_>, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.stage = Stage::Told;
            let protocol = PROTOCOL_VERSION;
            cx.send(link, Packet::LeaderInfo { epoch: self.epoch, protocol });
        }
    }

    pub(super) fn on_ack_epoch(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        last: Zxid,
        current: Option<Epoch>,
    ) -> Next {
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        if peer.stage != Stage::Told {
            return self.drop_peer(cx, link, Hangup::Protocol("it promised out of turn"));
        }
        peer.stage = Stage::Promised(last);
        let voter = peer.kind == Kind::Follower && cx.shared.ensemble.committed().is_voter(peer.id);
        if self.phase == Phase::Promising {
            if let Some(current) = current {
                if (current, last) > self.own {
                    return self.drop_peer(cx, link, Hangup::LearnerAhead);
                }
                if voter && last != Zxid(-1) {
                    self.promised.insert(peer.id);
                }
            }
            return self.try_promised(cx);
        }
        if self.phase >= Phase::Synchronizing {
            self.begin_sync(cx, link, last);
        }
        Next::Stay
    }

    /// Stores currentEpoch once a quorum has accepted the epoch: no server of the quorum follows an
    /// older leader any more, and none has a longer history than ours.
    fn try_promised(&mut self, cx: &mut Context<'_>) -> Next {
        let enough = cx.shared.ensemble.quorum().holds(|id| self.promised.contains(&id));
        if self.phase == Phase::Promising && enough {
            self.phase = Phase::WritingCurrent;
            cx.write_current(self.epoch);
        }
        Next::Stay
    }
}
