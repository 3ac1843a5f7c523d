//! Fault injection, and the check that the cluster recovers.

use ironkeeper_zab::Status;

use super::disk::Stop;
use super::world::{Event, World};
use crate::faults::Fault;
use crate::outcome::{Failure, Layer};

/// The maximal time until all servers have the same history after all faults have been removed.
const RECOVERY_US_MAX: u64 = 120_000_000;

impl World {
    pub(super) fn on_fault(&mut self) {
        if !self.in_trouble {
            return;
        }
        let (low, high) = self.plan.faults.pause_us;
        let in_us = self.random.between(low, high);
        self.after(in_us, Event::Fault);
        let mut random = self.random.clone();
        let fault = self.plan.faults.next(&mut random);
        self.random = random;
        self.report.faults += 1;
        self.say(|| format!("fault: {fault:?}"));
        let count = self.nodes.len() as u64;
        let node = self.random.below(count) as usize;
        let other = self.random.below(count) as usize;
        match fault {
            Fault::Kill => self.stop(node, Stop::Kill),
            Fault::PowerLoss => self.stop(node, Stop::PowerLoss),
            Fault::Blackout => {
                for node in 0..self.nodes.len() {
                    self.stop(node, Stop::PowerLoss);
                    let in_us = self.random.between(1_000, 2_000_000);
                    self.after(in_us, Event::Start { node });
                }
            }
            Fault::Restart => {
                let down: Vec<usize> = (0..self.nodes.len())
                    .filter(|node| self.nodes[*node].process.is_none())
                    .collect();
                if let Some(node) = self.random.pick(&down) {
                    self.start(node);
                }
            }
            Fault::CutOneWay => self.network.cut(node, other),
            Fault::Isolate => self.isolate(node),
            Fault::Split => {
                let mask = self.random.draw();
                self.network.split(mask, self.nodes.len());
            }
            Fault::Heal => self.heal_cuts(),
            Fault::Reset => {
                let boot = self.nodes[node].boot;
                for link in self.network.between(node, other) {
                    if let Some(side) = self.network.side(link, node, boot) {
                        self.close(link, side);
                        self.lost(node, link);
                    }
                }
            }
            Fault::Freeze => self.freeze(node),
            Fault::SlowDisk => {
                let (low, high) = self.plan.disk_us;
                let factor = self.random.pick(&[1, 10, 100]).unwrap_or(1);
                self.nodes[node].disk_us = (low, high * factor);
            }
            Fault::SlowNetwork => {
                let (low, high) = self.plan.latency_us;
                let factor = self.random.pick(&[1, 1, 10, 50]).unwrap_or(1);
                self.network.latency_us = (low, high * factor);
            }
            Fault::Leader => {
                let leader = (0..self.nodes.len()).find(|node| {
                    let process = self.nodes[*node].process.as_ref();
                    process.is_some_and(|process| {
                        matches!(process.zab.status(), Status::Leading { .. })
                    })
                });
                if let Some(leader) = leader {
                    match self.random.below(4) {
                        0 => self.stop(leader, Stop::Kill),
                        1 => self.stop(leader, Stop::PowerLoss),
                        2 => self.isolate(leader),
                        _ => self.freeze(leader),
                    }
                }
            }
            // The disks of this world have no calls that could fail.
            Fault::FullDisk | Fault::BadCall => {}
        }
    }

    pub fn isolate(&mut self, node: usize) {
        self.network.isolate(node, self.nodes.len());
    }

    pub fn freeze(&mut self, node: usize) {
        let us = self.random.between(50_000, 4_000_000);
        // Never shortened: events that are already postponed would be overtaken.
        let until_us = self.nodes[node].paused_until_us.max(self.now_us() + us);
        self.nodes[node].paused_until_us = until_us;
    }

    /// Removes all faults.
    pub fn heal(&mut self) {
        self.say(|| "everything works again".to_owned());
        self.in_trouble = false;
        self.network.latency_us = self.plan.latency_us;
        self.heal_cuts();
        for node in 0..self.nodes.len() {
            self.nodes[node].disk_us = self.plan.disk_us;
            self.start(node);
        }
    }

    pub(super) fn leader(&self) -> Option<usize> {
        (0..self.nodes.len()).find(|node| {
            let process = self.nodes[*node].process.as_ref();
            process.is_some_and(|process| process.zab.accepts_proposals())
        })
    }

    /// Returns whether every server is serving and has the leader's state.
    pub fn is_whole(&self) -> bool {
        let Some(leader) = self.leader().and_then(|node| self.nodes[node].process.as_ref()) else {
            return false;
        };
        leader.zab.outstanding() == 0
            && self.nodes.iter().all(|node| {
                node.process.as_ref().is_some_and(|process| {
                    process.zab.status() != Status::Looking && process.state == leader.state
                })
            })
    }

    /// Checks that after the removal of all faults the cluster recovers and accepts writes.
    pub fn converge(&mut self) -> Result<(), Failure> {
        let before = self.agreement.count();
        for _ in 0..3 {
            if !self.run_until(RECOVERY_US_MAX, World::is_whole)? {
                return Err(self.stuck("no agreement"));
            }
            if let Some(leader) = self.leader() {
                let count = self.agreement.count();
                for _ in 0..20 {
                    self.request(leader);
                }
                if self.run_until(RECOVERY_US_MAX, |world| {
                    world.agreement.count() > count && world.is_whole()
                })? {
                    debug_assert!(self.agreement.count() > before);
                    return Ok(());
                }
            }
        }
        Err(self.stuck("no new transaction"))
    }

    fn stuck(&self, what: &str) -> Failure {
        let mut lines = format!("progress: {what} within two minutes of peace");
        for node in &self.nodes {
            let status = node.process.as_ref().map(|process| {
                format!("{:?} {:?} {:?}", process.zab.status(), process.state, process.zab.epochs())
            });
            lines.push_str(&format!("\n  {}: {status:?}", node.id));
        }
        Failure { layer: Layer::Zab, seed: self.seed, at_us: self.now_us(), what: lines }
    }
}
