//! Performs the outputs of [`ironkeeper_zab::Zab`].

use std::sync::Arc;

use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerMessage, Touches};
use ironkeeper_proto::{Packet, SessionId, Zxid};
use ironkeeper_zab::{DurableStep, LinkId, LinkOp, Output as FromZab, Upcall};

use super::{Engine, Ready};
use crate::io::{LogItem, Output, ToPeers};
use crate::time::Now;

/// The maximum number of sessions in one reply to a ping, so that the packet does not exceed the
/// limit of Apache's servers.
const TOUCHES_MAX: usize = 50_000;

impl Engine {
    /// Performs all outputs of ZAB, including the outputs that result from performing them. The
    /// caller must not hold the gate.
    pub(super) fn perform(&mut self, now: Now, out: &mut Vec<Output>) {
        while !self.zab_out.is_empty() {
            let spare = std::mem::take(&mut self.zab_spare);
            let mut asked = std::mem::replace(&mut self.zab_out, spare);
            for output in asked.drain(..) {
                match output {
                    FromZab::Link(op) => out.push(Output::Peers(ToPeers::Link(op))),
                    FromZab::Durable(step) => {
                        if let DurableStep::Append { txn, .. } = &step {
                            self.snapshots.note_append(txn.len());
                        }
                        out.push(Output::Log(LogItem::Step(step)));
                    }
                    FromZab::ReadLog(query) => out.push(Output::Peers(ToPeers::ReadLog(query))),
                    FromZab::Up(upcall) => self.on_upcall(now, upcall, out),
                }
            }
            self.zab_spare = asked;
        }
    }

    fn on_upcall(&mut self, now: Now, upcall: Upcall, out: &mut Vec<Output>) {
        match upcall {
            Upcall::Commit { zxid, txn } | Upcall::FastForward { zxid, txn } => {
                self.delivered = zxid;
                self.ready.push_back(Ready::Txn(txn));
            }
            Upcall::MembersCommitted(members) => self.ready.push_back(Ready::Members(members)),
            Upcall::FromLearner { link, message } => match message {
                LearnerMessage::Request(request) => self.on_forwarded(now, link, &request, out),
                LearnerMessage::Revalidate { session, timeout_ms } => {
                    self.on_revalidate(now, link, session, timeout_ms);
                }
            },
            Upcall::FromLeader(LeaderMessage::Revalidated { session, valid }) => {
                self.on_revalidated(now, session, valid);
            }
            Upcall::FromLeader(LeaderMessage::Synced) => {
                self.local_writes.sync_done(self.delivered);
            }
            Upcall::Pong { link, zxid } => self.pong(now, link, zxid, out),
            Upcall::Report(report) => {
                for (session, timeout_ms) in Touches::from(report).iter() {
                    self.sessions.global.touch(session, timeout_ms, now.mono_ms);
                }
            }
            Upcall::Became { status, reason } => self.on_became(now, status, reason, out),
            Upcall::SendSnapshot { link, zxid } => self.send_tree(now, link, zxid, out),
        }
    }

    /// Replies to the leader's ping with the sessions that were touched since the previous ping.
    fn pong(&mut self, now: Now, link: LinkId, zxid: Zxid, out: &mut Vec<Output>) {
        let touched = self.sessions.report(now);
        let mut send = |touches: &[(SessionId, i32)]| {
            let report = Touches::new(touches.iter().copied()).into();
            let packet = Packet::Pong { zxid, report };
            out.push(Output::Peers(ToPeers::Link(LinkOp::Send { link, packet })));
        };
        // The leader needs at least one reply, also without sessions.
        send(&touched[..touched.len().min(TOUCHES_MAX)]);
        for more in touched.chunks(TOUCHES_MAX).skip(1) {
            send(more);
        }
    }

    /// Starts a snapshot for a learner. It contains all transactions delivered up to `zxid`; the
    /// packets that follow on the link continue after it.
    fn send_tree(&mut self, now: Now, link: LinkId, zxid: Zxid, out: &mut Vec<Output>) {
        self.apply_ready(now, out);
        let db = Arc::clone(&self.db);
        let mut state = db.write(&mut self.token);
        debug_assert!(state.applied() == zxid);
        let job = Box::new(state.begin_snapshot());
        out.push(Output::Peers(ToPeers::SendSnapshot { link, job }));
    }
}
