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
use crate::timers::Timer;

impl Leader {
    pub(super) fn on_info(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        kind: Kind,
        accepted: Epoch,
        info: LearnerInfo,
    ) -> Next {
        let follows = |peer: &Peer| peer.stage == Stage::Live && Some(peer.id) == info.server;
        let refuse = if self.peers[&link].stage != Stage::Accepted {
            Some(Hangup::Protocol("it said twice who it is"))
        } else if info.protocol < PROTOCOL_VERSION {
            Some(Hangup::Protocol("its version is too old"))
        } else if info.config_version > cx.shared.ensemble.committed().version {
            Some(Hangup::NewerConfig)
        } else if accepted >= EPOCH_MAX {
            Some(Hangup::Protocol("there is no epoch after its own"))
        } else if accepted > cx.shared.epoch_in_reach() {
            Some(Hangup::Protocol("its epoch is beyond reach"))
        } else if accepted > self.epoch
            && self.phase == Phase::Established
            && self.peers.values().any(follows)
        {
            // If it really has promised itself to somebody else, it will leave us first.
            Some(Hangup::Protocol("it follows us already, on another connection"))
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
        // It has come back before we noticed that it was gone.
        let old = self.peers.iter().find(|(_, peer)| peer.id == id).map(|(link, _)| *link);
        if let Some(old) = old {
            self.drop_peer(cx, old, Hangup::Replaced);
        }
        let peer = self.peers.get_mut(&link).expect("the peer that speaks");
        (peer.id, peer.kind, peer.stage) = (id, kind, Stage::Greeted);
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
            // It has promised a later epoch to somebody who did not come to lead, and can follow
            // nobody before that one. Without it we may still have a quorum, but one failure less is
            // survived, for as long as we lead. A new epoch takes a moment.
            return Next::Look(Reason::LaterEpochPromised);
        }
        if self.phase >= Phase::Promising {
            self.tell_epoch(cx, link);
        }
        Next::Stay
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
            .filter(|(_, peer)| peer.stage == Stage::Greeted)
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
