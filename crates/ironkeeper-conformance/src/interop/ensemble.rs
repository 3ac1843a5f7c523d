//! Third-party clients on three members; `@restart` of a driver kills the leader.

use std::process::Command;

use anyhow::{Context, Result};
use ironkeeper_peers::apache::QUICK_START;
use ironkeeper_peers::cluster::{Cluster, Terms};
use ironkeeper_peers::java as java_programs;
use ironkeeper_peers::members::{Kind, Member, Membership, Programs};
use ironkeeper_peers::server::Program;

use super::{Lab, Tally, c_client, driver, java};

/// The argument that tells a driver that its server is a member of an ensemble.
const MEMBER: &str = "member";

/// Runs Curator's recipes on all members, then its whole driver through a follower.
pub fn curator(lab: &Lab<'_>) -> Result<Tally> {
    let mut cluster = start(lab)?;
    let mut tally = run(
        java_programs::program(lab.cache, "CuratorFailover", &QUICK_START)?
            .arg(cluster.connect_string()),
        lab,
        &mut cluster,
    )?;
    let follower = follower(&cluster)?;
    let mut command = java_programs::program(lab.cache, java::CURATOR, &QUICK_START)?;
    tally.add(run(command.args([follower.as_str(), MEMBER]), lab, &mut cluster)?);
    Ok(tally)
}

/// Runs the C client's driver through a follower.
pub fn c(lab: &Lab<'_>) -> Result<Tally> {
    let mut cluster = start(lab)?;
    let follower = follower(&cluster)?;
    run(c_client::driver(lab)?.args([follower.as_str(), MEMBER]), lab, &mut cluster)
}

fn start(lab: &Lab<'_>) -> Result<Cluster> {
    let kind = match lab.program {
        Program::Apache(_) => Kind::Apache,
        Program::Ironkeeper(_) => Kind::Ours,
    };
    let membership = Membership(vec![Member { kind, observer: false }; 3]);
    let terms = Terms {
        lines: vec![
            ("extendedTypesEnabled", "true".to_owned()),
            ("enforceQuota", "true".to_owned()),
        ],
        flags: java::SERVER_FLAGS.to_vec(),
        ..Terms::default()
    };
    Cluster::start(&membership, &Programs::only(kind, lab.program.clone()), &terms, &lab.dir)
}

/// Returns the address of a follower. All sessions of a driver use it: one session reads what
/// another session has written, and other members might not have applied it yet.
fn follower(cluster: &Cluster) -> Result<String> {
    let leader = cluster.wait_for_leader(|_| true)?;
    let follower = (0..cluster.size()).find(|at| *at != leader).context("somebody follows")?;
    Ok(cluster.member(follower).address())
}

fn run(command: &mut Command, lab: &Lab<'_>, cluster: &mut Cluster) -> Result<Tally> {
    driver::run_with(command, &lab.dir.join("driver.log"), || {
        let leader = cluster.wait_for_leader(|_| true)?;
        cluster.member_mut(leader).kill()?;
        cluster.wait_for_leader(|at| at != leader)?;
        cluster.member_mut(leader).start_again()
    })
}
