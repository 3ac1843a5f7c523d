//! Every member is killed (SIGKILL) and started again under load; then whoever leads, twice.

use anyhow::{Context, Result};

use crate::ensemble::cluster::{Cluster, Terms};
use crate::ensemble::load::Load;
use crate::ensemble::{Stage, judge};
use crate::interop::Tally;

/// Writes between two blows: enough that the one who was away has something to catch up with.
const WRITES: u64 = 300;
const LEADER_KILLS: usize = 2;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let mut cluster = Cluster::start(&stage.cast, stage.programs, &Terms::default(), &stage.dir)?;
    let load = Load::start(&cluster, stage.seed)?;
    load.wait_for_writes(WRITES)?;
    for victim in 0..cluster.size() {
        kill_one(&mut cluster, &load, victim)?;
    }
    for _ in 0..LEADER_KILLS {
        let leader = cluster.wait_for_leader(|_| true)?;
        kill_one(&mut cluster, &load, leader)?;
    }
    judge(&cluster, load)
}

fn kill_one(cluster: &mut Cluster, load: &Load, victim: usize) -> Result<()> {
    let role = cluster.member(victim).mode().unwrap_or_else(|| "nobody".to_owned());
    let name =
        format!("member {} ({role}, {})", victim + 1, cluster.member(victim).program().name());
    let took = load
        .outage_after_kill(cluster.member_mut(victim))
        .with_context(|| format!("after the end of {name}"))?;
    println!("   {name} killed: a write after {:.0} ms", took.as_secs_f64() * 1e3);
    load.wait_for_writes(WRITES)?;
    cluster.member_mut(victim).start_again().with_context(|| format!("{name} comes back"))?;
    load.wait_for_writes(WRITES).with_context(|| format!("after the return of {name}"))
}
