//! Our own recipes: their tests (`crates/ironkeeper-recipes/tests/recipes`), all on one server,
//! each below its own path.

use anyhow::Result;
use ironkeeper_peers::apache::QUICK_START;

use super::own_tests::OwnTests;
use super::{Lab, Tally};

/// Tests wait for replies most of the time, so more of them run at a time than there are cores.
const THREADS: usize = 6;

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    // Like the embedded server: empty containers are reaped soon, and there is no fsync.
    let server = lab.server(|setup| {
        let setup = QUICK_START.iter().fold(setup, |setup, flag| setup.jvm_flag(flag));
        setup.set("forceSync", "no").jvm_flag("-Dznode.container.checkIntervalMs=200")
    })?;
    let tests = OwnTests {
        package: "ironkeeper-recipes",
        binary: "recipes",
        threads: THREADS,
        address: &server.address(),
        environment: &[],
    };
    tests.run(lab)
}
