//! Our recipes and third-party recipes on the same paths. A driver uses the third-party recipe and
//! sends commands to a Rust process, the example `partner` of `ironkeeper-recipes`:
//! `interop/java/src/CuratorRecipes.java` for Curator, `interop/kazoo/recipes.py` for kazoo.

use std::process::Command;

use anyhow::Result;
use ironkeeper_peers::apache::QUICK_START;
use ironkeeper_peers::java;
use ironkeeper_steps::{repo, test_binaries};

use super::{Lab, Tally, driver};

pub fn curator(lab: &Lab<'_>) -> Result<Tally> {
    run(lab, java::program(lab.cache, "CuratorRecipes", &QUICK_START)?)
}

pub fn kazoo(lab: &Lab<'_>) -> Result<Tally> {
    let mut command = Command::new(lab.cache.kazoo()?.python);
    command.arg(repo::interop("kazoo/recipes.py"));
    run(lab, command)
}

fn run(lab: &Lab<'_>, mut command: Command) -> Result<Tally> {
    let partner = test_binaries::example("ironkeeper-recipes", "partner")?;
    let mut server = lab.server(|setup| setup)?;
    driver::run(command.arg(server.address()).arg(partner), &mut server)
}
