//! Synchronization: the leader sends its history to a learner.
//!
//! One call of the state machine both composes the packets of the history and makes the learner a
//! receiver of new proposals and commits. So no transaction is lost in between or sent twice.

use bytes::Bytes;
use ironkeeper_proto::{Membership, Packet, Zxid};

use super::{Leader, Peer, Phase, Stage};
use crate::io::{
    DurableStep, Hangup, LinkId, LinkOp, LogQuery, MembersChange, Output, Reason, Status, Upcall,
    push_members_committed,
};
use crate::learner::Kind;
use crate::plan::{LogRead, SyncPlan, plan_sync, plan_with_log};
use crate::settings::Bug;
use crate::shared::{Context, Next};
use crate::timers::Timer;

/// The maximum number of non-members that are synchronized at the same time.
const STRANGERS_SYNCING_MAX: usize = 4;

impl Leader {
    pub(super) fn on_epoch_current(&mut self, cx: &mut Context<'_>) -> Next {
        self.phase = Phase::Synchronizing;
        cx.set_timer(Timer::Patience, cx.shared.settings.init_ms());
        self.taken_over.insert(cx.shared.me);
        if cx.shared.settings.reconfig_enabled && cx.shared.ensemble.committed().version == 0 {
            // The membership from the configuration file has version 0: assign a version that
            // members can compare.
            let first = Membership {
                version: Zxid::new(self.epoch, 0).0,
                ..cx.shared.ensemble.committed().clone()
            };
            cx.out.push(Output::Durable(DurableStep::WriteMembers(MembersChange::Proposed(
                Box::new(first.clone()),
            ))));
            cx.shared.ensemble.propose(first);
        }
        let waiting: Vec<(LinkId, Zxid)> = self
            .peers
            .iter()
            .filter_map(|(link, peer)| match peer.stage {
                Stage::Promised(last) => Some((*link, last)),
                _ => None,
            })
            .collect();
        for (link, last) in waiting {
            self.begin_sync(cx, link, last);
        }
        self.try_establish(cx)
    }

    /// Returns whether the non-member on this link has to be rejected. Any server can connect as an
    /// observer, and a history for a learner that may never read it occupies memory. So members are
    /// always synchronized, non-members only a few at a time; the rejected ones try again.
    fn is_one_stranger_too_many(&self, cx: &Context<'_>, link: LinkId) -> bool {
        let ensemble = &cx.shared.ensemble;
        let is_member = |id| {
            let configs = [Some(ensemble.committed()), ensemble.proposed()];
            configs.into_iter().flatten().any(|config| config.members.contains_key(&id))
        };
        let is_busy = |peer: &&Peer| matches!(peer.stage, Stage::ReadingLog(_) | Stage::Synced);
        let busy = self.peers.values().filter(is_busy).filter(|peer| !is_member(peer.id));
        self.peers.get(&link).is_some_and(|peer| !is_member(peer.id))
            && busy.count() >= STRANGERS_SYNCING_MAX
    }

    pub(super) fn begin_sync(&mut self, cx: &mut Context<'_>, link: LinkId, last: Zxid) {
        if self.is_one_stranger_too_many(cx, link) {
            self.drop_peer(cx, link, Hangup::TooManyStrangers);
            return;
        }
        match plan_sync(&cx.ledger.history, cx.ledger.log_from, last) {
            SyncPlan::ReadLog { after } => {
                if let Some(peer) = self.peers.get_mut(&link) {
                    peer.stage = Stage::ReadingLog(after);
                    cx.out.push(Output::ReadLog(LogQuery { link, after }));
                }
            }
            plan => self.send_history(cx, link, plan, &[]),
        }
    }

    pub(super) fn sync_with_log(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        last: Zxid,
        read: &LogRead,
    ) {
        let plan = plan_with_log(&cx.ledger.history, read, last);
        self.send_history(cx, link, plan, &read.txns);
    }

    fn send_history(
        &mut self,
        cx: &mut Context<'_>,
        link: LinkId,
        plan: SyncPlan,
        from_log: &[(Zxid, Bytes)],
    ) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        peer.stage = Stage::Synced;
        let send =
            |out: &mut Vec<Output>, packet| out.push(Output::Link(LinkOp::Send { link, packet }));
        let (history, out) = (&cx.ledger.history, &mut *cx.out);
        let after = match plan {
            SyncPlan::Trunc { to } if !cx.shared.settings.has(Bug::SkipTrunc) => {
                send(out, Packet::Trunc { zxid: to });
                Some(to)
            }
            SyncPlan::Diff { after: to } | SyncPlan::Trunc { to } => {
                send(out, Packet::Diff { zxid: history.last() });
                Some(to)
            }
            SyncPlan::Snap | SyncPlan::ReadLog { .. } => {
                let zxid = history.last();
                send(out, Packet::Snap { zxid });
                out.push(Output::Up(Upcall::SendSnapshot { link, zxid }));
                None
            }
        };
        if let Some(after) = after {
            let reached = from_log.last().map_or(after, |(zxid, _)| *zxid);
            let logged = from_log.iter().map(|(zxid, txn)| (*zxid, txn));
            for (zxid, txn) in logged.chain(history.after(reached)) {
                send(out, Packet::Proposal { zxid, txn: txn.clone() });
                send(out, Packet::Commit { zxid });
            }
        }
        if peer.kind == Kind::Follower {
            for (zxid, txn) in &cx.ledger.pending {
                send(out, Packet::Proposal { zxid: *zxid, txn: txn.clone() });
            }
            if let Some((first, _)) = cx.ledger.pending.front() {
                peer.unacked = Some((*first, cx.shared.now_ms));
            }
        }
        let config = Bytes::from(cx.shared.ensemble.last_seen().to_string());
        send(out, Packet::NewLeader { epoch: self.epoch, config: Some(config) });
    }

    pub(super) fn on_ack(&mut self, cx: &mut Context<'_>, link: LinkId, zxid: Zxid) -> Next {
        let Some(peer) = self.peers.get_mut(&link) else { return Next::Stay };
        if !peer.hears() {
            return self.drop_peer(cx, link, Hangup::Protocol("it acknowledged out of turn"));
        }
        if zxid != Zxid::new(self.epoch, 0) {
            // Learners of some Apache releases acknowledge proposals before NEWLEADER.
            return self.on_proposal_ack(cx, link, zxid);
        }
        if peer.stage != Stage::Synced {
            return Next::Stay;
        }
        peer.stage = Stage::Acked;
        if peer.kind == Kind::Follower && cx.shared.ensemble.may_vote(peer.id) {
            self.taken_over.insert(peer.id);
        }
        if self.phase == Phase::Established {
            self.up_to_date(cx, link);
            return Next::Stay;
        }
        self.try_establish(cx)
    }

    fn up_to_date(&mut self, cx: &mut Context<'_>, link: LinkId) {
        if let Some(peer) = self.peers.get_mut(&link) {
            peer.stage = Stage::Live;
            // From now on the learner replies to pings and acknowledges the proposals that it
            // received during synchronization: both timeouts start here.
            peer.heard_ms = cx.shared.now_ms;
            peer.unacked = peer.unacked.map(|(zxid, _)| (zxid, cx.shared.now_ms));
            cx.shared.looking.remove(&peer.id);
            cx.send(link, Packet::UpToDate);
            self.ping_newcomer(cx, link);
            self.probe_newcomer(cx, link);
        }
    }

    /// Establishes this leader once a quorum has acknowledged NEWLEADER: such a quorum has the
    /// whole history and has stored its epoch, so all of the history is committed.
    fn try_establish(&mut self, cx: &mut Context<'_>) -> Next {
        let enough = cx.shared.ensemble.joint().holds(|id| self.taken_over.contains(&id));
        if self.phase != Phase::Synchronizing || !enough {
            return Next::Stay;
        }
        self.phase = Phase::Established;
        cx.shared.timers.clear(Timer::Patience);
        cx.ledger.last_proposed = Zxid::new(self.epoch, 0);
        cx.shared.vote.peer_epoch = self.epoch;
        // A membership proposed in this history is committed with it.
        if let Some(next) = cx.shared.ensemble.proposed().cloned()
            && cx.shared.ensemble.commit(next.clone())
        {
            push_members_committed(cx.out, next);
        }
        let status = Status::Leading { epoch: self.epoch };
        cx.out.push(Output::Up(Upcall::Became { status, reason: None }));
        let waiting: Vec<LinkId> = self
            .peers
            .iter()
            .filter(|(_, peer)| peer.stage == Stage::Acked)
            .map(|(link, _)| *link)
            .collect();
        for link in waiting {
            self.up_to_date(cx, link);
        }
        if !cx.shared.ensemble.committed().is_voter(cx.shared.me) {
            return Next::Look(Reason::Reconfigured);
        }
        Next::Stay
    }
}
