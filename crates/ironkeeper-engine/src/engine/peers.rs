//! What the broadcast wants done.

use std::sync::Arc;

use ironkeeper_proto::quorum_packet::Touches;
use ironkeeper_proto::{Packet, SessionId, Zxid};
use ironkeeper_zab::{LinkId, Output as Wish};

use super::{Engine, Ready};
use crate::io::{DurableStep, Output};
use crate::snapshot::SnapshotJob;
use crate::time::Now;

/// Sessions in one answer to a ping: a packet must not become longer than Apache's servers read.
const TOUCHES_MAX: usize = 50_000;

impl Engine {
    /// Does everything the broadcast asked for, and what that brings about. Nothing may hold the gate
    /// here.
    pub(super) fn perform(&mut self, now: Now, out: &mut Vec<Output>) {
        while !self.zab_out.is_empty() {
            let spare = std::mem::take(&mut self.zab_spare);
            let mut wishes = std::mem::replace(&mut self.zab_out, spare);
            for wish in wishes.drain(..) {
                self.perform_one(now, wish, out);
            }
            self.zab_spare = wishes;
        }
    }

    fn perform_one(&mut self, now: Now, wish: Wish, out: &mut Vec<Output>) {
        match wish {
            Wish::Append { zxid, txn } => {
                self.snapshots.note_append(txn.len());
                out.push(Output::Append { zxid, txn });
            }
            Wish::Commit { zxid, txn } | Wish::FastForward { zxid, txn } => {
                self.delivered = zxid;
                self.ready.push_back(Ready::Txn(txn));
            }
            Wish::Send { .. }
            | Wish::Notify { .. }
            | Wish::Dial { .. }
            | Wish::Hangup { .. }
            | Wish::ReceiveSnapshot { .. } => out.push(Output::Peer(wish)),
            Wish::Request { link, request, .. } => self.on_forwarded(now, link, &request, out),
            Wish::Revalidate { link, session, timeout_ms, .. } => {
                self.on_revalidate(now, link, session, timeout_ms);
            }
            Wish::Touched { touches, .. } => {
                for (session, timeout_ms) in touches.iter() {
                    self.expiry.touch(session, timeout_ms, now.mono_ms);
                }
            }
            Wish::Pong { link, zxid } => self.pong(now, link, zxid, out),
            Wish::Revalidated { session, valid } => self.on_revalidated(now, session, valid),
            Wish::SyncDone => self.local_writes.sync_done(self.delivered),
            Wish::Became { status, reason } => self.on_became(now, status, reason, out),
            Wish::SendSnapshot { link, zxid } => self.send_tree(now, link, zxid, out),
            Wish::ReadLog { link, after } => out.push(Output::ReadLog { link, after }),
            Wish::WriteAcceptedEpoch(epoch) => {
                out.push(Output::Durable(DurableStep::WriteAcceptedEpoch(epoch)));
            }
            Wish::WriteCurrentEpoch(epoch) => {
                out.push(Output::Durable(DurableStep::WriteCurrentEpoch(epoch)));
            }
            Wish::Truncate(zxid) => out.push(Output::Durable(DurableStep::Truncate(zxid))),
            Wish::InstallSnapshot { link, zxid } => {
                out.push(Output::Durable(DurableStep::InstallSnapshot { link, zxid }));
            }
            Wish::ConfigProposed(members) => {
                out.push(Output::Durable(DurableStep::ConfigProposed(members)));
            }
            Wish::ConfigCommitted(members) => {
                self.ready.push_back(Ready::Members(members.clone()));
                out.push(Output::Durable(DurableStep::ConfigCommitted(members)));
            }
            Wish::ConfigWithdrawn => out.push(Output::Durable(DurableStep::ConfigWithdrawn)),
        }
    }

    /// Tells the leader which sessions have been heard of since it last asked.
    fn pong(&mut self, now: Now, link: LinkId, zxid: Zxid, out: &mut Vec<Output>) {
        let since_ms = std::mem::replace(&mut self.told_leader_ms, now.mono_ms);
        let touched: Vec<(SessionId, i32)> = self
            .attached
            .iter()
            .filter(|(session, attached)| {
                attached.clock.heard_ms() >= since_ms && !self.local_expiry.contains(**session)
            })
            .map(|(session, attached)| (*session, attached.timeout_ms))
            .collect();
        let mut send = |touches: &[(SessionId, i32)]| {
            let touches = Touches::new(touches.iter().copied());
            let packet = Packet::Pong { zxid, touches };
            out.push(Output::Peer(Wish::Send { link, packet }));
        };
        // One answer at least, also if there is nothing to tell.
        send(&touched[..touched.len().min(TOUCHES_MAX)]);
        for more in touched.chunks(TOUCHES_MAX).skip(1) {
            send(more);
        }
    }

    /// The tree as it is after everything that was delivered until now. What follows on the link
    /// continues exactly there.
    fn send_tree(&mut self, now: Now, link: LinkId, zxid: Zxid, out: &mut Vec<Output>) {
        self.apply_ready(now, out);
        let db = Arc::clone(&self.db);
        let mut state = db.write(&mut self.token);
        debug_assert!(state.applied() == zxid);
        let walk = state.tree.begin_snapshot();
        let sessions = state.sessions.sorted();
        let job = Box::new(SnapshotJob::new(walk, sessions));
        out.push(Output::SendSnapshot { link, job });
    }
}
