//! Fault injection into servers.

use std::io;
use std::path::Path;

use ironkeeper_simdisk::Fault as CallFault;
use ironkeeper_store::disk::Disk;

use super::world::{Event, Phase, Stop, WAKING_US_MAX, World};
use crate::faults::Fault;

impl World {
    pub(super) fn on_fault(&mut self) {
        if !self.in_trouble {
            return;
        }
        let (low, high) = self.plan.faults.pause_us;
        let in_us = self.random.between(low, high);
        self.after(in_us, Event::Fault);
        let fault = self.plan.faults.next(&mut self.random);
        self.report.faults += 1;
        self.say(|| format!("fault: {fault:?}"));
        let servers = self.nodes.len();
        let node = self.random.below(servers as u64) as usize;
        let other = self.random.below(servers as u64) as usize;
        match fault {
            Fault::Kill => self.stop(node, Stop::Kill),
            Fault::PowerLoss => self.stop(node, Stop::PowerLoss),
            Fault::Blackout => {
                for node in 0..servers {
                    self.stop(node, Stop::PowerLoss);
                    let in_us = self.random.between(1_000, 2_000_000);
                    self.after(in_us, Event::Start { node });
                }
            }
            Fault::Restart => {
                let down = |node: &usize| self.nodes[*node].process.is_none();
                let down: Vec<usize> = (0..servers).filter(down).collect();
                if let Some(node) = self.random.pick(&down) {
                    self.start(node);
                }
            }
            Fault::CutOneWay => self.network.cut(node, other),
            Fault::Isolate => self.isolate(node),
            Fault::Split => {
                let mask = self.random.draw();
                let members = servers + self.outsiders();
                self.network.split(mask, members);
            }
            Fault::Heal => self.heal_cuts(),
            Fault::Reset => {
                let boot = self.nodes[node].boot;
                for link in self.network.between(node, other) {
                    if self.network.side(link, node, boot).is_some() {
                        self.close((node, boot), link);
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
                if let Some(leader) = self.leader() {
                    match self.random.below(4) {
                        0 => self.stop(leader, Stop::Kill),
                        1 => self.stop(leader, Stop::PowerLoss),
                        2 => self.isolate(leader),
                        _ => self.freeze(leader),
                    }
                }
            }
            Fault::FullDisk => self.fill_disk(node),
            Fault::BadCall => {
                let ahead = self.random.below(30);
                let fault = match self.random.below(2) {
                    0 => CallFault::Stop,
                    _ => CallFault::Error(io::ErrorKind::Other),
                };
                self.break_call(node, ahead, fault);
            }
        }
    }

    /// Fills the disk almost completely for some time.
    fn fill_disk(&mut self, node: usize) {
        let left = self.random.below(64 << 10);
        let disk = &self.nodes[node].disk;
        disk.set_capacity(u64::MAX);
        let used = u64::MAX - disk.free_bytes(Path::new("/")).unwrap_or(u64::MAX);
        disk.set_capacity(used + left);
        self.nodes[node].is_disk_full = true;
        let in_us = self.random.between(500_000, 5_000_000);
        self.after(in_us, Event::RoomAgain { node });
    }

    /// Injects a fault into a server's disk call, after `ahead` other calls.
    pub fn break_call(&mut self, node: usize, ahead: u64, fault: CallFault) {
        let node = &mut self.nodes[node];
        node.disk.fail_call(node.disk.calls() + ahead, fault);
        node.is_call_broken = true;
    }

    /// Returns how a server is restarted after a failed disk call. After a failed sync the content
    /// of the cache cannot be trusted: an operator may restart the machine, or only the process.
    pub(super) fn end_of_failed_process(&mut self) -> Stop {
        if self.random.chance(500) { Stop::Kill } else { Stop::PowerLoss }
    }

    /// Cuts a server off from the other servers, and sometimes from its clients as well.
    pub fn isolate(&mut self, node: usize) {
        let others = match self.random.chance(500) {
            true => self.nodes.len(),
            false => self.nodes.len() + self.outsiders(),
        };
        self.network.isolate(node, others);
    }

    pub fn freeze(&mut self, node: usize) {
        let us = self.random.between(50_000, 4_000_000);
        self.freeze_for(node, us);
    }

    /// Pauses a process.
    pub fn freeze_for(&mut self, node: usize, us: u64) {
        let now_us = self.now_us();
        let hears_late = self.random.chance(500);
        let node = &mut self.nodes[node];
        if node.paused_until_us + node.hears_late_us < now_us {
            node.hears_late_us = if hears_late { WAKING_US_MAX } else { 0 };
        }
        // Never shortened: events that are already postponed would be overtaken.
        node.paused_until_us = node.paused_until_us.max(now_us + us);
        match node.pauses_us.last_mut() {
            Some((_, until_us)) if *until_us >= now_us => *until_us = node.paused_until_us,
            _ => node.pauses_us.push((now_us, node.paused_until_us)),
        }
    }

    /// Removes all cuts.
    pub fn heal_cuts(&mut self) {
        let now_us = self.now_us();
        self.network.heal_all(&mut self.random, now_us);
        self.plan_transits();
    }

    /// Removes all faults and ends the load of clients.
    pub fn heal(&mut self) {
        self.say(|| "everything works again".to_owned());
        self.in_trouble = false;
        self.phase = Phase::Rest;
        self.network.latency_us = self.plan.latency_us;
        self.heal_cuts();
        for node in 0..self.nodes.len() {
            self.nodes[node].disk_us = self.plan.disk_us;
            self.nodes[node].mend_disk();
            self.start(node);
        }
    }
}
