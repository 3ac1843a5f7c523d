//! The requests of clients and administrators.

use bytes::Bytes;
use ironkeeper_proto::membership::Member;
use ironkeeper_proto::quorum_packet::{ForwardedRequest, LeaderMessage, LearnerMessage};
use ironkeeper_proto::txn::encode::set_data;
use ironkeeper_proto::{OpCode, ServerId, SessionId, TxnHeader};
use ironkeeper_zab::{LinkId, Output, Status};

use super::world::{Event, World};

/// The operation code of `sync`. All other requests of this world are writes.
const OP_SYNC: i32 = 9;
const OP_WRITE: i32 = 5;

impl World {
    pub(super) fn on_load(&mut self) {
        if !self.in_trouble {
            return;
        }
        let (low, high) = self.plan.load_us;
        let in_us = self.random.between(low, high);
        self.after(in_us, Event::Load);
        let node = self.random.below(self.nodes.len() as u64) as usize;
        if self.nodes[node].paused_until_us > self.now_us() {
            return;
        }
        for _ in 0..self.random.between(1, 4) {
            self.request(node);
        }
        if self.random.chance(self.plan.reconfig_per_mille) {
            self.change_members();
        }
        if self.random.chance(self.plan.snapshot_per_mille) {
            let purge = self.random.chance(500);
            let node = &mut self.nodes[node];
            if let Some(process) = &node.process
                && process.zab.may_snapshot()
            {
                node.disk.snapshot(process.state, purge);
            }
        }
    }

    /// Sends a request of a client of this node.
    pub fn request(&mut self, node: usize) {
        self.requests += 1;
        let number = self.requests;
        let boot = self.nodes[node].boot;
        let wants_sync = self.random.chance(50);
        let Some(process) = &mut self.nodes[node].process else { return };
        let mut out = Vec::new();
        match process.zab.status() {
            Status::Looking => return,
            Status::Leading { .. } => {
                if wants_sync {
                    process.syncs += 1;
                    process.zab.reply_confirmed(None, LeaderMessage::Synced, &mut out);
                } else if let Some(proposer) = process.zab.proposer() {
                    let origin = (1 << 63) | ((node as u64) << 32) | boot;
                    proposer.propose(transaction(origin, number), &mut out);
                }
            }
            Status::Following { .. } | Status::Observing { .. } => {
                process.forwarded += 1;
                let request = ForwardedRequest {
                    session: SessionId(node as i64),
                    cxid: process.forwarded as i32,
                    op: if wants_sync { OP_SYNC } else { OP_WRITE },
                    body: Bytes::copy_from_slice(&number.to_be_bytes()),
                    auth: None,
                };
                let message = LearnerMessage::Request(Box::new(request));
                if process.zab.send_to_leader(message, &mut out) && wants_sync {
                    process.syncs += 1;
                }
            }
        }
        self.perform(node, out);
    }

    /// Adds a server, removes one, or changes the role of one.
    pub fn change_members(&mut self) {
        let Some(leader) = self.leader() else { return };
        if self.nodes[leader].paused_until_us > self.now_us() {
            return;
        }
        let id = ServerId(self.random.between(1, self.plan.servers) as i64);
        let part =
            self.random.pick(&[None, Some("participant"), Some("observer"), Some("participant")]);
        self.requests += 1;
        let number = self.requests;
        let origin = (1 << 62) | ((leader as u64) << 32) | self.nodes[leader].boot;
        let Some(process) = &mut self.nodes[leader].process else { return };
        let Some(ensemble) = process.zab.ensemble() else { return };
        let mut next = ensemble.committed().clone();
        match part.flatten() {
            None => {
                next.members.remove(&id);
            }
            Some(role) => {
                let line = format!("h{id}:2888:3888:{role}");
                let member = Member::parse(&line).expect("a line of our own making");
                next.members.insert(id, member);
            }
        }
        if next.same_members(ensemble.committed()) || process.zab.may_reconfigure(&next).is_err() {
            return;
        }
        let Some(proposer) = process.zab.proposer() else { return };
        let zxid = proposer.zxid();
        next.version = zxid.0;
        let mut txn = Vec::new();
        let session = SessionId(origin as i64);
        let header =
            TxnHeader { session, cxid: number as i32, zxid, time: 0, op: OpCode::Reconfig };
        header.encode(&mut txn);
        let text = next.to_string();
        set_data("/zookeeper/config", Some(text.as_bytes()), -1, &mut txn);
        let mut out = Vec::new();
        proposer.propose(txn.into(), &mut out);
        self.report.reconfigurations += 1;
        self.say(|| format!("members are to be\n{text}"));
        self.perform(leader, out);
    }

    /// Handles a request of a learner's client at the leader.
    pub(super) fn on_request(
        &mut self,
        node: usize,
        link: LinkId,
        request: &ForwardedRequest,
        out: &mut Vec<Output>,
    ) {
        let Some(process) = &mut self.nodes[node].process else { return };
        if request.op == OP_SYNC {
            process.zab.reply_confirmed(Some(link), LeaderMessage::Synced, out);
        } else if let Some(proposer) = process.zab.proposer() {
            let number = request.body[..].try_into().map_or(0, u64::from_be_bytes);
            proposer.propose(transaction(link.0, number), out);
        }
    }
}

/// Returns a transaction that contains its origin and the number of the request.
fn transaction(origin: u64, number: u64) -> Bytes {
    let mut bytes = origin.to_be_bytes().to_vec();
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.into()
}
