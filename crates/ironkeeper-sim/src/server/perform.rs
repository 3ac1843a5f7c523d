//! Performs the outputs of the engines.

use ironkeeper_engine::{Input, LogItem, Output, ToPeers};
use ironkeeper_node::encode_vote;
use ironkeeper_zab::{DurableStep, LinkId, LinkOp, LogQuery, MembersChange, Reason, Status};

use super::node::Piece;
use super::world::{Event, World};

impl World {
    pub(super) fn perform(&mut self, node: usize, out: Vec<Output>) {
        for output in out {
            self.perform_one(node, output);
            if self.has_failed() {
                return;
            }
        }
    }

    fn perform_one(&mut self, node: usize, output: Output) {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return };
        match output {
            Output::Log(item) => self.queue_item(node, item),
            Output::Snapshot(job) => {
                process.snapshot = Some(job);
                let in_us = self.disk_us(node) * 10;
                self.after(in_us, Event::WriteSnapshot { node, boot });
            }
            Output::Wake(conn) => self.plan_service(node, LinkId(conn.tag)),
            Output::Peers(asked) => self.perform_peers(node, asked),
            Output::Warn(warning) => {
                self.fail(Err(format!("warning: server {}: {warning:?}", node + 1)));
            }
            Output::SessionEnded(_) => {}
            Output::Halt(reason) => {
                self.fail(Err(format!("halt: server {}: {reason}", node + 1)));
            }
        }
    }

    fn queue_item(&mut self, node: usize, item: LogItem) {
        if let LogItem::Step(step) = &item {
            let report = &mut self.report;
            report.snapshots += u64::from(matches!(step, DurableStep::InstallSnapshot { .. }));
            report.truncations += u64::from(matches!(step, DurableStep::Truncate(_)));
            report.reconfigurations +=
                u64::from(matches!(step, DurableStep::WriteMembers(MembersChange::Committed(_))));
        }
        let Some(process) = &mut self.nodes[node].process else { return };
        let received = &mut process.received;
        let found = item.with_snapshot(|link| match received.take() {
            Some((from, tree)) if from == link => Ok(Box::new(tree.into_writer())),
            _ => Err(format!("server {} has no snapshot of link {}", node + 1, link.0)),
        });
        match found {
            Ok(item) => process.queue.push(item),
            Err(reason) => self.fail(Err(reason)),
        }
    }

    fn perform_peers(&mut self, node: usize, asked: ToPeers) {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return };
        match asked {
            ToPeers::Link(op) => self.perform_link(node, op),
            ToPeers::Role { status, reason } => self.on_role(node, status, reason),
            ToPeers::SendSnapshot { link, job } => {
                match process.peers.get_mut(&link) {
                    Some(peer) => peer.outgoing.push_back(Piece::Tree(job)),
                    None => {
                        process.inbox.push(Input::SnapshotSent(job.into_walk()));
                    }
                }
                let in_us = self.random.between(100, 20_000);
                self.after(in_us, Event::SendTree { node, boot, link });
            }
            ToPeers::ReadLog(LogQuery { link, after }) => {
                let in_us = self.random.between(100, 20_000);
                self.after(in_us, Event::LogRead { node, boot, link, after });
            }
        }
    }

    fn perform_link(&mut self, node: usize, op: LinkOp) {
        match op {
            LinkOp::Dial { peer, port, .. } => self.dial(node, peer, port),
            LinkOp::Hangup { link, reason } => {
                self.say(|| format!("{} hangs up on link {}: {reason:?}", node + 1, link.0));
                self.hang_up(node, link);
            }
            LinkOp::Notify { link, notification } => {
                self.tell_peer(node, link, |out| encode_vote(&notification, out));
            }
            LinkOp::Send { link, packet } => {
                self.say(|| format!("{} on link {}: {packet:?}", node + 1, link.0));
                self.tell_peer(node, link, |out| packet.encode(out));
            }
            LinkOp::ReceiveSnapshot { link } => self.receive_tree(node, link),
        }
    }

    fn on_role(&mut self, node: usize, status: Status, reason: Option<Reason>) {
        let (id, boot) = (self.nodes[node].id, self.nodes[node].boot);
        self.say(|| match reason {
            Some(reason) => format!("{id} becomes {status:?}: {reason}"),
            None => format!("{id} becomes {status:?}"),
        });
        let Status::Leading { epoch } = status else { return };
        let Some(process) = &self.nodes[node].process else { return };
        let told = self.history.told_before(epoch);
        let led = self
            .leadership
            .established(epoch, id, boot)
            .and_then(|()| self.agreement.established(id, epoch, &process.db, told));
        self.fail(led);
    }
}
