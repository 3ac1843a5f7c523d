//! `zookeeper-client` from crates.io, driven by `interop/rust-client`.

use std::process::Command;

use anyhow::Result;

use super::{Lab, Tally, driver};

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    let binary = lab.cache.rust_client()?;
    let mut server = lab.server(|setup| setup.jvm_flag("-Dznode.container.checkIntervalMs=200"))?;
    driver::run(Command::new(binary).arg(server.address()), &mut server)
}
