//! What engines want done.

use ironkeeper_engine::{DurableStep, Input, Output};
use ironkeeper_server::parts::{LogItem, Step, encode_vote};
use ironkeeper_zab::{LinkId, Output as ZabOutput, Reason, Status};

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
            Output::Append { zxid, txn } => process.queue.push(LogItem::Append { zxid, txn }),
            Output::Roll => process.queue.push(LogItem::Roll),
            Output::Durable(step) => self.queue_step(node, step),
            Output::Snapshot(job) => {
                process.snapshots.push(job);
                let in_us = self.disk_us(node) * 10;
                self.after(in_us, Event::WriteSnapshot { node, boot });
            }
            Output::SendSnapshot { link, job } => {
                match process.peers.get_mut(&link) {
                    Some(peer) => peer.outgoing.push_back(Piece::Tree(job)),
                    None => {
                        process.inbox.push(Input::SnapshotSent(job.into_walk()));
                    }
                }
                let in_us = self.random.between(100, 20_000);
                self.after(in_us, Event::SendTree { node, boot, link });
            }
            Output::ReadLog { link, after } => {
                let in_us = self.random.between(100, 20_000);
                self.after(in_us, Event::LogRead { node, boot, link, after });
            }
            Output::Wake(conn) => self.plan_service(node, LinkId(conn.tag)),
            Output::Role { status, reason } => self.on_role(node, status, reason),
            Output::Peer(wish) => self.perform_peer(node, wish),
            Output::Warn(warning) => {
                self.fail(Err(format!("warning: server {}: {warning}", node + 1)));
            }
            Output::SessionEnded(_) => {}
            Output::Halt(reason) => {
                self.fail(Err(format!("halt: server {}: {reason}", node + 1)));
            }
        }
    }

    fn queue_step(&mut self, node: usize, step: DurableStep) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let step = match step {
            DurableStep::InstallSnapshot { link, zxid } => {
                self.report.snapshots += 1;
                match process.received.take() {
                    Some((from, tree)) if from == link => {
                        Step::Install { zxid, tree: Box::new(tree.into_writer()) }
                    }
                    _ => Step::Plain(step),
                }
            }
            DurableStep::Truncate(_) => {
                self.report.truncations += 1;
                Step::Plain(step)
            }
            DurableStep::ConfigCommitted(_) => {
                self.report.reconfigurations += 1;
                Step::Plain(step)
            }
            _ => Step::Plain(step),
        };
        process.queue.push(LogItem::Step(Box::new(step)));
    }

    fn perform_peer(&mut self, node: usize, wish: ZabOutput) {
        match wish {
            ZabOutput::Dial { peer, port, .. } => self.dial(node, peer, port),
            ZabOutput::Hangup { link, reason } => {
                self.say(|| format!("{} hangs up on link {}: {reason:?}", node + 1, link.0));
                self.hang_up(node, link);
            }
            ZabOutput::Notify { link, notification } => {
                self.tell_peer(node, link, |out| encode_vote(&notification, out));
            }
            ZabOutput::Send { link, packet } => {
                self.say(|| format!("{} on link {}: {packet:?}", node + 1, link.0));
                self.tell_peer(node, link, |out| packet.encode(out));
            }
            ZabOutput::ReceiveSnapshot { link } => self.receive_tree(node, link),
            other => self.fail(Err(format!("links: {other:?} is not for them"))),
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
