//! The Java drivers: Apache's own client, and Curator's framework and recipes on top of it.

use anyhow::Result;

use super::{Lab, Tally, driver};
use crate::apache::QUICK_START;
use crate::java;

pub fn client(lab: &Lab<'_>) -> Result<Tally> {
    run(lab, "JavaClient")
}

pub fn curator(lab: &Lab<'_>) -> Result<Tally> {
    run(lab, "CuratorFrameworkClient")
}

fn run(lab: &Lab<'_>, main: &str) -> Result<Tally> {
    let mut server = lab.server(|setup| {
        setup
            .jvm_flag("-Dznode.container.checkIntervalMs=200")
            // super:test
            .jvm_flag("-Dzookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=")
    })?;
    let mut command = java::program(lab.cache, main, &QUICK_START)?;
    driver::run(command.arg(server.address()), &mut server)
}
