//! Progress within a bound if there are no faults: ensembles that start on a busy machine, lose
//! their leader, and lose all members except one.
//!
//! The only disturbance is that servers pause for short times, like processes that share two cores:
//! a vote arrives late, and a server elects another leader than the others. The settings are those
//! of the product, so waiting for one of its limits (seconds) takes longer than the bound.

use ironkeeper_zab::{Settings, Status};

use super::disk::Stop;
use super::plan::{Plan, membership};
use super::world::{Event, World};
use crate::faults::Faults;
use crate::outcome::{Failure, Layer, Report};
use crate::random::{Random, mix};

/// The maximal time until all members serve after the last pause.
const SERVING_US_MAX: u64 = 1_000_000;

/// How long one server is alone.
const ALONE_US: (u64, u64) = (2_000_000, 30_000_000);

/// The time within which all servers of an ensemble are started.
const STARTS_WITHIN_US: u64 = 500_000;

/// The maximal number of steps with pauses in a seed, and the length of a step.
const BUSY_STEPS_MAX: u64 = 10;
const BUSY_STEP_US: u64 = 100_000;

impl Plan {
    /// Returns the plan of an ensemble with the product's settings and without faults.
    pub fn start(seed: u64) -> Plan {
        let random = &mut Random::new(mix(seed ^ 0x57a7));
        let voters = random.pick(&[3, 3, 3, 5, 4, 7]).unwrap_or(3);
        let observers = random.pick(&[0, 1, 1, 2]).unwrap_or(0);
        Plan {
            servers: voters + observers,
            membership: membership(voters, observers, false),
            settings: Settings { dial_tries: 11, ..Settings::default() },
            faults: Faults::none(),
            load_us: (10_000, 300_000),
            latency_us: random.pick(&[(50, 300), (100, 2_000)]).unwrap_or((50, 300)),
            disk_us: (100, 3_000),
            trouble_us: 0,
            snapshot_per_mille: 0,
            reconfig_per_mille: 0,
        }
    }
}

impl World {
    /// Runs a start, the end of the leader, its restart, and the restart of all servers except one
    /// that kept running.
    pub fn run_start(&mut self) -> Result<Report, Failure> {
        self.in_trouble = false;
        let started_us = self.start_within(STARTS_WITHIN_US);
        self.be_busy()?;
        self.all_serve("a start", started_us)?;
        if let Some(leader) = self.leader() {
            self.stop(leader, Stop::Kill);
            let stopped_us = self.now_us();
            self.be_busy()?;
            self.all_serve("the death of the leader", stopped_us)?;
            self.start(leader);
            let started_us = self.now_us();
            self.be_busy()?;
            self.all_serve("the return of a member", started_us)?;
        }
        let alone = self.random.below(self.nodes.len() as u64) as usize;
        for node in (0..self.nodes.len()).filter(|node| *node != alone) {
            self.stop(node, Stop::Kill);
        }
        let for_us = self.random.between(ALONE_US.0, ALONE_US.1);
        self.run_for(for_us)?;
        let started_us = self.start_within(STARTS_WITHIN_US);
        self.be_busy()?;
        self.all_serve("the return of all others", started_us)?;
        Ok(self.report())
    }

    /// Starts all servers that do not run. Returns the time at which the last one starts.
    fn start_within(&mut self, us_max: u64) -> u64 {
        let mut last_us = self.now_us();
        for node in 0..self.nodes.len() {
            if self.nodes[node].process.is_none() {
                let in_us = self.random.below(us_max);
                self.after(in_us, Event::Start { node });
                last_us = last_us.max(self.now_us() + in_us);
            }
        }
        last_us
    }

    fn be_busy(&mut self) -> Result<(), Failure> {
        for _ in 0..self.random.below(BUSY_STEPS_MAX + 1) {
            self.run_for(BUSY_STEP_US)?;
            let node = self.random.below(self.nodes.len() as u64) as usize;
            let until_us = self.now_us() + self.random.between(20_000, 400_000);
            let paused_until_us = &mut self.nodes[node].paused_until_us;
            *paused_until_us = until_us.max(*paused_until_us);
        }
        Ok(())
    }

    /// Waits until all running members serve, at most `SERVING_US_MAX` after `since_us` and after
    /// the end of the last pause.
    fn all_serve(&mut self, after: &str, since_us: u64) -> Result<(), Failure> {
        let still_us = self.nodes.iter().map(|node| node.paused_until_us).max().unwrap_or(0);
        let quiet_us = still_us.max(since_us);
        let us_max = (quiet_us + SERVING_US_MAX).saturating_sub(self.now_us());
        let serves = |world: &World| {
            let mut running = world.nodes.iter().filter_map(|node| node.process.as_ref());
            world.now_us() >= since_us
                && running.all(|process| process.zab.status() != Status::Looking)
        };
        if self.run_until(us_max, serves)? {
            return Ok(());
        }
        let ms = SERVING_US_MAX / 1000;
        let mut what =
            format!("progress: {ms} ms after {after} not all members serve, without a fault");
        for node in &self.nodes {
            let status = node.process.as_ref().map(|process| process.zab.status());
            what.push_str(&format!("\n  {}: {status:?}", node.id));
        }
        Err(Failure { layer: Layer::Zab, seed: self.seed, at_us: self.now_us(), what })
    }
}
