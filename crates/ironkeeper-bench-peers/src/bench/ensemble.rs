//! `cargo xtask bench --ensemble 3`: measures ensembles of Apache, etcd and Ironkeeper on this
//! machine, one at a time.
//!
//! The load is `ironkeeper bench` with its connections distributed over all members; etcd has its
//! own load generator ([`super::etcd`]) with the same parameters. The locks are those of
//! `ironkeeper-recipes` on both kinds of servers. The failover time is measured by six clients:
//! from the kill of the leader to the first acknowledged write that began after the kill.

use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_chaos::ensemble::load::Load;
use ironkeeper_peers::cache::Cache;
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::members::{Kind, Member, Membership, Programs};
use ironkeeper_peers::server::Program;
use ironkeeper_steps::builds;

use super::load::{ENSEMBLE_LOADS, Target};
use super::table::{Measures, Side};
use super::{APACHE_HEAP, Plan, SETTLE, etcd, resident_bytes};
use crate::contenders::Contenders;

const CONTENDERS: &str = "100";
/// Writes before a leader is killed, so that clients are connected to all members and active.
const WRITES: u64 = 500;
/// Leaders killed in each round.
const KILLS: usize = 3;

/// Runs the rounds, in each of them all sides in turn. A failure is recorded and does not end the
/// other measurements.
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
    /// Starts one ensemble, measures it and stops it.
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
        let membership =
            Membership((0..members).map(|_| Member { kind, observer: false }).collect());
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
        let mut cluster = Cluster::start(&membership, &programs, &terms, dir)?;
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
        let program = builds::build_example("ironkeeper-recipes", "handovers")?;
        let mut command = Command::new(program);
        // Each contender has its own session.
        command.args([&cluster.connect_string(), "/handovers", CONTENDERS, CONTENDERS]);
        let mut contenders = Contenders::start(vec![command])?;
        // Wait until all contenders are queued.
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
