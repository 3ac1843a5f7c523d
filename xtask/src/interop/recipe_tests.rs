//! Our own recipes: their tests (`crates/ironkeeper-recipes/tests`), all on one server, each below a path of its
//! own.

use anyhow::Result;

use super::own_tests::OwnTests;
use super::{Lab, Tally};

/// Tests wait for replies most of the time, so there are more of them at a time than cores.
const THREADS: usize = 6;

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    // Some wait until the server removes an empty container.
    let server = lab.server(|setup| setup.jvm_flag("-Dznode.container.checkIntervalMs=200"))?;
    let tests = OwnTests {
        package: "ironkeeper-recipes",
        binaries: "*",
        threads: THREADS,
        address: &server.address(),
        environment: &[],
    };
    tests.run(lab)
}
