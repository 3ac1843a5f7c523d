//! Every member is paused (SIGSTOP) until the others have made progress, then continued: a
//! continued leader must not act as leader.

use anyhow::{Context, Result};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_steps::tally::Tally;

use crate::ensemble::load::Load;
use crate::ensemble::{Stage, judge};

const WRITES: u64 = 200;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let mut cluster =
        Cluster::start(&stage.membership, stage.programs, &Terms::default(), &stage.dir)?;
    let load = Load::start(&cluster, stage.seed)?;
    load.wait_for_writes(WRITES)?;
    let leader = cluster.wait_for_leader(|_| true)?;
    // The leader first, while it certainly leads.
    let others = (0..cluster.size()).filter(|at| *at != leader);
    for victim in std::iter::once(leader).chain(others) {
        pause_one(&mut cluster, &load, victim)?;
    }
    judge(&cluster, load)
}

fn pause_one(cluster: &mut Cluster, load: &Load, victim: usize) -> Result<()> {
    let role = cluster.member(victim).mode().unwrap_or_else(|| "nobody".to_owned());
    let name = format!("member {} ({role})", victim + 1);
    cluster.member(victim).signal("STOP")?;
    let gone_on = load
        .wait_for_write_after(load.moment())
        .and_then(|took| load.wait_for_writes(WRITES).map(|()| took))
        .with_context(|| format!("while {name} is paused"));
    // Also after a failure: the process must not stay stopped.
    cluster.member(victim).signal("CONT")?;
    cluster.tell(&format!("{name} paused: a write after {:.0} ms", gone_on?.as_secs_f64() * 1e3));
    load.wait_for_new_write().with_context(|| format!("after {name} woke up"))?;
    cluster.wait_until_all_serve()?;
    load.wait_for_writes(WRITES)
}
