//! Every member is killed (SIGKILL) and started again under load; then whoever leads, twice, and on until every
//! program of the cast has led.

use std::collections::BTreeSet;

use anyhow::{Context, Result};

use crate::ensemble::cast::Cast;
use crate::ensemble::cluster::{Cluster, Terms};
use crate::ensemble::load::Load;
use crate::ensemble::{Stage, judge};
use crate::interop::Tally;

/// Writes between two blows: enough that the one who was away has something to catch up with.
const WRITES: u64 = 300;
const LEADER_KILLS: usize = 2;
/// Leaders that are killed at most until every program has led. Whoever has the longest history is elected, and
/// that may be the same program a few times.
const LEADER_KILLS_MAX: usize = 10;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let mut cluster = Cluster::start(&stage.cast, stage.programs, &Terms::default(), &stage.dir)?;
    let load = Load::start(&cluster, stage.seed)?;
    let mut led = BTreeSet::new();
    load.wait_for_writes(WRITES)?;
    for victim in 0..cluster.size() {
        led.insert(leading_program(&cluster, &stage.cast)?);
        kill_one(&mut cluster, &load, victim)?;
    }
    let voting = voting_programs(&stage.cast);
    for kills in 0..=LEADER_KILLS_MAX {
        led.insert(leading_program(&cluster, &stage.cast)?);
        if kills >= LEADER_KILLS && led == voting {
            break;
        }
        let leader = cluster.wait_for_leader(|_| true)?;
        kill_one(&mut cluster, &load, leader)?;
    }
    let mut tally = judge(&cluster, load)?;
    let idle: Vec<&String> = voting.difference(&led).collect();
    let all_led = if idle.is_empty() { Ok(()) } else { Err(format!("never: {idle:?}")) };
    tally.check("every program has led", all_led);
    Ok(tally)
}

/// The programs of the members that may lead.
fn voting_programs(cast: &Cast) -> BTreeSet<String> {
    cast.0.iter().filter(|part| !part.observer).map(|part| part.kind.to_string()).collect()
}

fn leading_program(cluster: &Cluster, cast: &Cast) -> Result<String> {
    let leader = cluster.wait_for_leader(|_| true)?;
    Ok(cast.0[leader].kind.to_string())
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
        let programs = voting_programs(&Cast::of("ours,apache38,ours,apache:observer"));
        assert_eq!(programs.into_iter().collect::<Vec<_>>(), ["apache38", "ours"]);
    }
}
