//! A rolling replacement: each member in turn is stopped and the other program is started on its
//! data, the leader last; then the same in reverse. Clients stay connected and lose nothing.

use anyhow::{Context, Result};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::members::Kind;
use ironkeeper_steps::tally::Tally;

use crate::ensemble::load::Load;
use crate::ensemble::{Stage, judge};

const WRITES: u64 = 200;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let mut cluster =
        Cluster::start(&stage.membership, stage.programs, &Terms::default(), &stage.dir)?;
    let before: Vec<Kind> = stage.membership.0.iter().map(|part| part.kind).collect();
    let after: Vec<Kind> = before
        .iter()
        .map(|kind| if *kind == Kind::Ours { Kind::Apache } else { Kind::Ours })
        .collect();
    let load = Load::start(&cluster, stage.seed)?;
    load.wait_for_writes(WRITES)?;
    for kinds in [&after, &before] {
        let leader = cluster.wait_for_leader(|_| true)?;
        let others = (0..cluster.size()).filter(|at| *at != leader);
        for at in others.chain([leader]) {
            replace(stage, &mut cluster, &load, at, kinds[at])?;
        }
    }
    judge(&cluster, load)
}

fn replace(
    stage: &Stage<'_>,
    cluster: &mut Cluster,
    load: &Load,
    at: usize,
    kind: Kind,
) -> Result<()> {
    cluster.member_mut(at).stop()?;
    cluster.change_program(at, kind, stage.programs)?;
    let what = format!("member {} becomes {kind}", at + 1);
    cluster.member_mut(at).start_again().with_context(|| what.clone())?;
    load.wait_for_writes(WRITES).with_context(|| what.clone())?;
    cluster.tell(&what);
    Ok(())
}
