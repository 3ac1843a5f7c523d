//! Agreeing on an epoch that no quorum has promised to anybody else.
//!
//! Only voters of the configuration in force count, and only once; observers and joiners are served but
//! never waited for.

use ironkeeper_proto::quorum_packet::{EPOCH_MAX, LearnerInfo, PROTOCOL_VERSION};
use ironkeeper_proto::{Epoch, Packet, ServerId, Zxid};

use super::{Leader, Peer, Phase, Stage};
use crate::io::{Hangup, LinkId, Reason};
use crate::learner::Kind;
use crate::member::{Context, Next};
use crate::settings::Bug;
use crate::timers::Timer;

/// Who a learner says to be, and what it says to have promised.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    id: ServerId,
    kind: Kind,
    accepted: Epoch,
    /// If the server answers this probe on another connection, that one is its own.
    probe: u64,
}

/// Probes are pings with a number that no transaction and no question has (see `still_leading`),
/// which learners send back as it is. Whatever else comes on a connection may have been sent before
/// its server left it.
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
        // If it is connected already and that connection is alive, an answer to this comes.
        if let Some((old, peer)) = self.connection_of(id)
            && peer.stage == Stage::Live
        {
            cx.send(old, probe(self.probes));
        }
        self.decide_claims(cx)
    }

    /// A learner is up to date from now on and answers pings: whether it is alive may be asked for.
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

    /// The connection on which a server is known, which is another one than those that only claim
    /// it.
    fn connection_of(&self, id: ServerId) -> Option<(LinkId, &Peer)> {
        let is_its = |peer: &Peer| peer.id == id && peer.stage > Stage::Accepted;
        self.peers.iter().find(|(_, peer)| is_its(peer)).map(|(link, peer)| (*link, peer))
    }

    /// Goes through the connections whose server may be connected already. One that comes after its
    /// server's restart takes the place of the old connection when that is closed, or silent for a
    /// tick. One whose server answers a probe on the old connection is another server's, and is
    /// refused.
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

    /// Takes a learner in under the name it has given.
    fn admit(&mut self, cx: &mut Context<'_>, link: LinkId, claim: Claim) -> Next {
        let Claim { id, kind, accepted, .. } = claim;
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        (peer.id, peer.kind, peer.stage, peer.claim) = (id, kind, Stage::Greeted, None);
        // What strangers say to have promised is not for us to keep.
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

    /// Begins a new epoch for a voter that has promised a later one than ours, to a server that did
    /// not come to lead: it cannot follow before, however long we lead. It takes a moment, so this
    /// has two conditions, without which any server that reaches our port could have us begin one
    /// epoch after the other. The voter looks for a leader by its own vote, which came over the
    /// connection between the election ports; and such renewals are some time apart. Until then the
    /// voter waits.
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

    /// From here on the epoch does not change, whatever later learners have promised.
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

    /// A quorum follows nobody older any more, and nobody in it has a longer history than ours.
    fn try_promised(&mut self, cx: &mut Context<'_>) -> Next {
        let enough = cx.shared.ensemble.quorum().holds(|id| self.promised.contains(&id));
        if self.phase == Phase::Promising && enough {
            self.phase = Phase::WritingCurrent;
            cx.write_current(self.epoch);
        }
        Next::Stay
    }
}
