//! The Java drivers: Apache's client, and Curator's framework and recipes.

use anyhow::Result;
use ironkeeper_peers::apache::QUICK_START;
use ironkeeper_peers::java;

use super::{Lab, Tally, driver};

pub fn client(lab: &Lab<'_>) -> Result<Tally> {
    run(lab, "JavaClient")
}

pub fn curator(lab: &Lab<'_>) -> Result<Tally> {
    run(lab, CURATOR)
}

/// The driver of Curator.
pub const CURATOR: &str = "CuratorFrameworkClient";

/// Server flags for the drivers: empty containers are reaped soon, and the superuser is
/// `super:test`.
pub const SERVER_FLAGS: [&str; 2] = [
    "-Dznode.container.checkIntervalMs=200",
    "-Dzookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=",
];

fn run(lab: &Lab<'_>, main: &str) -> Result<Tally> {
    let mut server =
        lab.server(|setup| SERVER_FLAGS.iter().fold(setup, |setup, flag| setup.jvm_flag(flag)))?;
    let mut command = java::program(lab.cache, main, &QUICK_START)?;
    driver::run(command.arg(server.address()), &mut server)
}
