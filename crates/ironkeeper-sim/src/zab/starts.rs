//! Progress has a bound where nothing is broken: ensembles that start on a busy machine, and lose
//! their leader.
//!
//! The only trouble is that servers stand still for a moment, as processes do that share two cores:
//! a vote comes late, and a server elects one that the others do not. The settings are those of the
//! product, so a wait for one of its limits (seconds) is longer than the bound.

use ironkeeper_zab::{Settings, Status};

use super::disk::Stop;
use super::plan::{Plan, membership};
use super::world::World;
use crate::faults::Faults;
use crate::outcome::{Failure, Layer, Report};
use crate::random::{Random, mix};

/// How long all members may take to serve once no server stands still any more.
const SERVING_US_MAX: u64 = 5_000_000;

/// For how long servers stand still now and then.
const BUSY_STEPS: u64 = 10;
const BUSY_STEP_US: u64 = 100_000;

impl Plan {
    /// An ensemble with the product's settings, to which nothing happens by itself.
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
    /// A start, the death of the leader, and its return.
    pub fn run_start(&mut self) -> Result<Report, Failure> {
        self.in_trouble = false;
        self.start_all();
        self.be_busy()?;
        self.all_serve("a start")?;
        if let Some(leader) = self.leader() {
            self.stop(leader, Stop::Kill);
            self.be_busy()?;
            if self.nodes.len() > 2 {
                self.all_serve("the death of the leader")?;
            }
            self.start(leader);
            self.be_busy()?;
            self.all_serve("the return of a member")?;
        }
        Ok(self.report())
    }

    fn be_busy(&mut self) -> Result<(), Failure> {
        for _ in 0..BUSY_STEPS {
            self.run_for(BUSY_STEP_US)?;
            let node = self.random.below(self.nodes.len() as u64) as usize;
            let until_us = self.now_us() + self.random.between(20_000, 400_000);
            let paused_until_us = &mut self.nodes[node].paused_until_us;
            *paused_until_us = until_us.max(*paused_until_us);
        }
        Ok(())
    }

    /// Waits until all members that run serve.
    fn all_serve(&mut self, after: &str) -> Result<(), Failure> {
        let still_us = self.nodes.iter().map(|node| node.paused_until_us).max().unwrap_or(0);
        let us_max = still_us.saturating_sub(self.now_us()) + SERVING_US_MAX;
        let serves = |world: &World| {
            let mut running = world.nodes.iter().filter_map(|node| node.process.as_ref());
            running.all(|process| process.zab.status() != Status::Looking)
        };
        if self.run_until(us_max, serves)? {
            return Ok(());
        }
        let seconds = SERVING_US_MAX / 1_000_000;
        let mut what =
            format!("progress: {seconds} s after {after} not all members serve, without a fault");
        for node in &self.nodes {
            let status = node.process.as_ref().map(|process| process.zab.status());
            what.push_str(&format!("\n  {}: {status:?}", node.id));
        }
        Err(Failure { layer: Layer::Zab, seed: self.seed, at_us: self.now_us(), what })
    }
}
