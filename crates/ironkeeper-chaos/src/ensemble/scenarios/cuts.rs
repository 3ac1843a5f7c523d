//! Partitions: the leader with reset connections and with dropped packets, a follower, and one
//! follower from the leader alone.

use anyhow::{Context, Result};
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::links::Cut;
use ironkeeper_steps::tally::Tally;

use crate::ensemble::load::Load;
use crate::ensemble::{Stage, judge};

const WRITES: u64 = 200;

pub fn play(stage: &Stage<'_>) -> Result<Tally> {
    let terms = Terms { links: true, ..Terms::default() };
    let mut cluster = Cluster::start(&stage.membership, stage.programs, &terms, &stage.dir)?;
    let load = Load::start(&cluster, stage.seed)?;
    load.wait_for_writes(WRITES)?;
    for cut in [Cut::Silent, Cut::Refused] {
        let leader = cluster.wait_for_leader(|_| true)?;
        cluster.links()?.isolate(leader, cut);
        let other = cluster
            .wait_for_leader(|at| at != leader)
            .with_context(|| format!("the leader, member {}, is cut off ({cut:?})", leader + 1))?;
        cluster.tell(&format!("leader {} cut off ({cut:?}), {} leads", leader + 1, other + 1));
        mend(&mut cluster, &load)?;

        let leader = cluster.wait_for_leader(|_| true)?;
        let follower = (leader + 1) % cluster.size();
        cluster.links()?.isolate(follower, cut);
        load.wait_for_writes(WRITES).with_context(|| format!("a follower is cut off ({cut:?})"))?;
        cluster.tell(&format!("follower {} cut off ({cut:?})", follower + 1));
        mend(&mut cluster, &load)?;
    }
    // One follower can reach the other follower but not the leader, which the other follower can
    // reach.
    let leader = cluster.wait_for_leader(|_| true)?;
    let follower = (leader + 1) % cluster.size();
    cluster.links()?.cut(leader, follower, Cut::Refused);
    load.wait_for_writes(WRITES).context("one wire is cut")?;
    cluster.tell(&format!("wire between {} and leader {} cut", follower + 1, leader + 1));
    mend(&mut cluster, &load)?;
    judge(&cluster, load)
}

/// Restores all links, and waits until all members serve and writes continue.
fn mend(cluster: &mut Cluster, load: &Load) -> Result<()> {
    load.wait_for_new_write().context("while the ensemble is cut")?;
    cluster.links()?.heal()?;
    cluster.wait_until_all_serve().context("after the cut was mended")?;
    load.wait_for_writes(WRITES).context("after the cut was mended")
}
