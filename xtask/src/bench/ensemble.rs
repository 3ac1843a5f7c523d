//! `cargo xtask bench --ensemble 3`: whole ensembles on this machine, Apache's, etcd's and ours, one at a time.
//!
//! The load is `ironkeeper bench` with its connections dealt out to all members; etcd has a load of its own
//! ([`super::etcd`]) with the same numbers. Locks are those of `ironkeeper-recipes` on both kinds of servers. The time
//! without a leader is what six clients see: from the kill to the first write that began after it and was
//! acknowledged.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};

use super::load::{ENSEMBLE_LOADS, Target};
use super::table::{Measures, Side};
use super::{APACHE_HEAP, Plan, SETTLE, etcd, resident_bytes};
use crate::crowd::Crowd;
use crate::ensemble::cast::{Cast, Kind, Part, Programs};
use crate::ensemble::cluster::{Cluster, Terms};
use crate::ensemble::load::Load;
use crate::ironkeeper;
use crate::peers::Cache;
use crate::server::Program;

const CONTENDERS: &str = "100";
/// Writes before a leader is killed, so that clients are spread over all members and at work.
const WRITES: u64 = 500;
/// Leaders killed in each round.
const KILLS: usize = 3;

/// Rounds over all sides in turn; what fails is noted and takes nothing from the others.
pub fn run(plan: &Plan, members: u8, measures: &mut Measures) {
    let is_of_builds = plan.sides.iter().any(|(side, _)| *side == Side::Before);
    let etcd = match (!is_of_builds).then(|| Cache::open()?.etcd()).transpose() {
        Ok(etcd) => etcd,
        Err(why) => {
            eprintln!("etcd is not measured: {why:#}");
            None
        }
    };
    for round in 1..=plan.rounds {
        for (side, program) in &plan.sides {
            eprintln!("round {round} of {}, {members} members of {side}", plan.rounds);
            let result =
                tempfile::tempdir_in(plan.dir.path()).map_err(Into::into).and_then(|dir| {
                    Round { plan, side: *side }.play(program, members, dir.path(), measures)
                });
            measures.note_failure(result.with_context(|| format!("round {round} on {side}")));
        }
        if let Some(etcd) = &etcd {
            eprintln!("round {round} of {}, {members} members of etcd", plan.rounds);
            let result = tempfile::tempdir_in(plan.dir.path())
                .map_err(Into::into)
                .and_then(|dir| etcd::round(plan, etcd, members, dir.path(), measures));
            measures.note_failure(result.with_context(|| format!("round {round} on etcd")));
        }
    }
}

struct Round<'a> {
    plan: &'a Plan,
    side: Side,
}

impl Round<'_> {
    /// One ensemble from its start to its end.
    fn play(
        &self,
        program: &Program,
        members: u8,
        dir: &Path,
        measures: &mut Measures,
    ) -> Result<()> {
        let kind = match program {
            Program::Apache(_) => Kind::Apache,
            Program::Ironkeeper(_) => Kind::Ours,
        };
        let cast = Cast((0..members).map(|_| Part { kind, observer: false }).collect());
        let terms = Terms {
            lines: vec![
                ("tickTime", "2000".to_owned()),
                ("initLimit", "10".to_owned()),
                ("syncLimit", "5".to_owned()),
            ],
            flags: if kind == Kind::Apache { vec![APACHE_HEAP] } else { Vec::new() },
            as_shipped: true,
            ..Terms::default()
        };
        let programs = Programs::only(kind, program.clone());
        let mut cluster = Cluster::start(&cast, &programs, &terms, dir)?;
        if self.plan.wants(&["ensemble-idle"]) {
            thread::sleep(SETTLE);
            let bytes = cluster.members().map(resident_bytes).sum::<Result<u64>>()?;
            measures.add("ensemble-idle", self.side, bytes as f64);
        }
        self.loads(&cluster, measures)?;
        if self.plan.wants(&["ensemble-locks"]) {
            let result = self.locks(&cluster, measures);
            measures.note_failure(result.with_context(|| format!("locks on {}", self.side)));
        }
        if self.plan.wants(&["ensemble-failover"]) {
            self.failovers(&mut cluster, measures)?;
        }
        Ok(())
    }

    fn loads(&self, cluster: &Cluster, measures: &mut Measures) -> Result<()> {
        let (plan, side) = (self.plan, self.side);
        let wanted: Vec<_> =
            ENSEMBLE_LOADS.iter().filter(|load| plan.wants(&[load.name])).collect();
        if !wanted.is_empty() {
            plan.generator.warm_up(&Target::of(cluster.members())?, plan.warm_up_seconds)?;
        }
        for load in wanted {
            let target = Target::of(cluster.members())?;
            let result = plan.generator.measure(&target, load, plan.seconds, side, measures);
            measures.note_failure(
                result.with_context(|| format!("{} on {side}; {}\n", load.name, cluster.tails(10))),
            );
        }
        Ok(())
    }

    fn locks(&self, cluster: &Cluster, measures: &mut Measures) -> Result<()> {
        let program = ironkeeper::build_example("ironkeeper-recipes", "handovers")?;
        let mut command = Command::new(program);
        // Each with a session of its own.
        command.args([&cluster.connect_string(), "/handovers", CONTENDERS, CONTENDERS]);
        let mut contenders = Crowd::start(vec![command])?;
        // Until everybody is in line.
        thread::sleep(Duration::from_secs(1));
        let length = Duration::from_secs_f64(self.plan.seconds);
        let rate = contenders.take_turn(cluster.member(0), length)?.per_second();
        eprintln!("  {:<20} {rate:.1}", "ensemble-locks");
        measures.add("ensemble-locks", self.side, rate);
        Ok(())
    }

    fn failovers(&self, cluster: &mut Cluster, measures: &mut Measures) -> Result<()> {
        let load = Load::start(cluster, 1)?;
        for _ in 0..KILLS {
            load.wait_for_writes(WRITES)?;
            let leader = cluster.wait_for_leader(|_| true)?;
            let took = load.outage_after_kill(cluster.member_mut(leader))?.as_secs_f64() * 1e3;
            eprintln!("  {:<20} {took:.1}", "ensemble-failover");
            measures.add("ensemble-failover", self.side, took);
            cluster.member_mut(leader).start_again()?;
        }
        Ok(())
    }
}
