//! Proposals, acknowledgements, commits.

use bytes::Bytes;
use ironkeeper_proto::quorum_packet::LeaderMessage;
use ironkeeper_proto::{Packet, ServerId, Zxid};

use super::{Leader, Phase};
use crate::io::{LinkId, Reason, push_members_committed};
use crate::learner::Kind;
use crate::reconfig::designated;
use crate::settings::Bug;
use crate::shared::{Context, Next};

/// A reply to a learner that is sent once the transaction `after` is delivered.
#[derive(Debug)]
pub(super) struct DeliveredReply {
    after: Zxid,
    to: LinkId,
    reply: LeaderMessage,
}

impl Leader {
    pub(super) fn on_proposal_ack(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        zxid: Zxid,
    ) -> Next {
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        // Ignore acks of zxids that were never proposed, and of committed ones unless this peer
        // still owes an ack.
        if zxid <= cx.ledger.delivered && peer.unacked.is_none() || zxid > cx.ledger.appended {
            return Next::Stay;
        }
        peer.acked = peer.acked.max(zxid);
        if peer.unacked.is_some_and(|(oldest, _)| oldest <= zxid) {
            let more = zxid < cx.ledger.appended;
            peer.unacked = more.then_some((cx.ledger.appended, cx.shared.now_ms));
        }
        if self.phase == Phase::Established { self.advance(cx) } else { Next::Stay }
    }

    /// Commits, in order, the transactions that a quorum has made durable.
    pub(super) fn advance(&mut self, cx: &mut Context<'_>) -> Next {
        if cx.ledger.pending.is_empty() {
            self.settle_confirmations(cx);
            return self.counter_used_up(cx);
        }
        self.acks.clear();
        self.acks.push((cx.shared.me, cx.ledger.flushed));
        for peer in self.peers.values() {
            if peer.kind == Kind::Follower && peer.hears() {
                self.acks.push((peer.id, peer.acked));
            }
        }
        let joint = cx.shared.ensemble.joint();
        let old = if cx.shared.settings.has(Bug::MinorityCommit) {
            self.acks.iter().map(|(_, zxid)| *zxid).max()
        } else {
            joint.committed.reached(&self.acks)
        };
        let Some(old) = old else { return Next::Stay };
        // Transactions before a proposed reconfig need a quorum of the old membership; the reconfig
        // and the transactions after it need a joint quorum.
        let change = cx.shared.ensemble.proposed().map(|next| Zxid(next.version));
        let reached = match change {
            None => old,
            Some(change) => match joint.reached(&self.acks) {
                Some(both) if both >= change => both,
                _ => old.min(Zxid(change.0 - 1)),
            },
        };
        while let Some((zxid, txn)) = cx.ledger.pending.front() {
            let zxid = *zxid;
            if zxid > reached {
                break;
            }
            // A standalone server has no learners.
            let for_learners = (!self.peers.is_empty()).then(|| txn.clone());
            self.reply_before(cx, zxid);
            let next = if change == Some(zxid) { self.commit_change(cx, zxid) } else { None };
            cx.ledger.commit_first(cx.out);
            if let Some(txn) = for_learners {
                self.send_commit(cx, zxid, &txn, next);
            }
            self.send_delivered_replies(cx);
            if let Some(leader) = next {
                if leader != cx.shared.me {
                    return Next::Look(Reason::Reconfigured);
                }
                // The remaining transactions need a quorum of the new membership.
                return self.advance(cx);
            }
        }
        self.settle_confirmations(cx);
        self.counter_used_up(cx)
    }

    /// Sends a commit to the learners. `next` is the leader after the commit of a reconfig. An
    /// observer receives the transaction together with its commit.
    fn send_commit(&self, cx: &mut Context<'_>, zxid: Zxid, txn: &Bytes, next: Option<ServerId>) {
        for (link, peer) in self.peers.iter().filter(|(_, peer)| peer.hears()) {
            let packet = match (peer.kind, next) {
                (Kind::Follower, None) => Packet::Commit { zxid },
                (Kind::Observer, None) => Packet::Inform { zxid, txn: txn.clone() },
                (Kind::Follower, Some(leader)) => Packet::CommitAndActivate { zxid, leader },
                (Kind::Observer, Some(leader)) => {
                    Packet::InformAndActivate { zxid, leader, txn: txn.clone() }
                }
            };
            cx.send(*link, packet);
        }
    }

    /// Replies to a learner after all transactions proposed so far are delivered.
    pub(crate) fn reply_delivered(
        &mut self,
        cx: &mut Context<'_>,
        to: LinkId,
        reply: LeaderMessage,
    ) {
        let after = cx.ledger.appended;
        self.delivered_replies.push_back(DeliveredReply { after, to, reply });
        self.send_delivered_replies(cx);
    }

    fn send_delivered_replies(&mut self, cx: &mut Context<'_>) {
        let delivered = cx.ledger.delivered;
        while let Some(next) = self.delivered_replies.pop_front_if(|next| next.after <= delivered) {
            if self.has(next.to) {
                cx.send(next.to, Packet::Leader(next.reply));
            }
        }
    }

    /// Activates the proposed membership and returns the id of its designated leader.
    fn commit_change(&self, cx: &mut Context<'_>, zxid: Zxid) -> Option<ServerId> {
        let next = cx.shared.ensemble.proposed()?.clone();
        debug_assert_eq!(next.version, zxid.0);
        let now = cx.shared.ensemble.committed();
        let leader = designated(cx.shared.me, now, &next, &self.acks);
        cx.shared.ensemble.commit(next.clone());
        push_members_committed(cx.out, next);
        Some(leader)
    }

    /// Steps down when the last zxid of the epoch is committed, so that a new epoch begins.
    fn counter_used_up(&self, cx: &Context<'_>) -> Next {
        let used_up = self.next_zxid(cx.shared, cx.ledger).is_none();
        if used_up && cx.ledger.pending.is_empty() && !cx.shared.settings.has(Bug::CounterOverflow)
        {
            return Next::Look(Reason::CounterUsedUp);
        }
        Next::Stay
    }
}
