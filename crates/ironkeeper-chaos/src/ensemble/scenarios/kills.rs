//! Every member is killed (SIGKILL) and started again under load; then the leader, twice. A program
//! of the ensemble that has not led by then is made the leader.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::members::Membership;
use ironkeeper_steps::tally::Tally;

use crate::ensemble::load::Load;
use crate::ensemble::{Stage, judge};

/// Writes between two faults: enough that the restarted member has to be synchronized.
const WRITES: u64 = 300;
const LEADER_KILLS: usize = 2;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let mut cluster =
        Cluster::start(&stage.membership, stage.programs, &Terms::default(), &stage.dir)?;
    let load = Load::start(&cluster, stage.seed)?;
    let mut led = BTreeSet::new();
    load.wait_for_writes(WRITES)?;
    for victim in 0..cluster.size() {
        led.insert(leading_program(&cluster, &stage.membership)?);
        kill_one(&mut cluster, &load, victim)?;
    }
    for _ in 0..LEADER_KILLS {
        led.insert(leading_program(&cluster, &stage.membership)?);
        let leader = cluster.wait_for_leader(|_| true)?;
        kill_one(&mut cluster, &load, leader)?;
    }
    led.insert(leading_program(&cluster, &stage.membership)?);
    for idle in voting_programs(&stage.membership).difference(&led) {
        let candidate = voters(&stage.membership)
            .find(|at| stage.membership.0[*at].kind.to_string() == *idle)
            .context("every program has a member")?;
        make_lead(&mut cluster, &stage.membership, &load, candidate)?;
    }
    judge(&cluster, load)
}

/// Makes one of three voters the leader: its log is longer than that of the only other running
/// voter.
fn make_lead(
    cluster: &mut Cluster,
    membership: &Membership,
    load: &Load,
    candidate: usize,
) -> Result<()> {
    ensure!(voters(membership).count() == 3, "three voters play this");
    let leader = cluster.wait_for_leader(|at| at != candidate)?;
    let behind = voters(membership)
        .find(|at| *at != leader && *at != candidate)
        .context("there is a third voter")?;
    cluster.member_mut(behind).kill()?;
    load.wait_for_writes(WRITES).context("one of three is away")?;
    cluster.member_mut(leader).kill()?;
    cluster.member_mut(behind).launch()?;
    cluster
        .wait_for_leader(|at| at == candidate)
        .with_context(|| format!("member {} has the longest history", candidate + 1))?;
    cluster.tell(&format!("member {} was made to lead", candidate + 1));
    cluster.member_mut(leader).start_again()?;
    cluster.wait_until_all_serve()?;
    load.wait_for_writes(WRITES).context("with a leader that was made to lead")
}

/// Returns the indices of the voters.
fn voters(membership: &Membership) -> impl Iterator<Item = usize> {
    (0..membership.0.len()).filter(|at| !membership.0[*at].observer)
}

/// Returns the programs of the members that may lead.
fn voting_programs(membership: &Membership) -> BTreeSet<String> {
    voters(membership).map(|at| membership.0[at].kind.to_string()).collect()
}

fn leading_program(cluster: &Cluster, membership: &Membership) -> Result<String> {
    let leader = cluster.wait_for_leader(|_| true)?;
    Ok(membership.0[leader].kind.to_string())
}

fn kill_one(cluster: &mut Cluster, load: &Load, victim: usize) -> Result<()> {
    let role = cluster.member(victim).mode().unwrap_or_else(|| "nobody".to_owned());
    let name =
        format!("member {} ({role}, {})", victim + 1, cluster.member(victim).program().name());
    let took = load
        .outage_after_kill(cluster.member_mut(victim))
        .with_context(|| format!("after the end of {name}"))?;
    cluster.tell(&format!("{name} killed: a write after {:.0} ms", took.as_secs_f64() * 1e3));
    load.wait_for_writes(WRITES)?;
    cluster.member_mut(victim).start_again().with_context(|| format!("{name} comes back"))?;
    load.wait_for_writes(WRITES).with_context(|| format!("after the return of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_are_not_asked_to_lead() {
        let programs = voting_programs(&Membership::of("ours,apache38,ours,apache:observer"));
        assert_eq!(programs.into_iter().collect::<Vec<_>>(), ["apache38", "ours"]);
    }
}
