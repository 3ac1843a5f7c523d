//! Our recipes and Curator's on the same paths: `interop/java/src/CuratorRecipes.java` drives a Rust partner,
//! the example `curator_partner` of `ironkeeper-recipes`, and takes part itself.

use anyhow::Result;

use super::{Lab, Tally, driver};
use crate::apache::QUICK_START;
use crate::{ironkeeper, java};

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    let partner = ironkeeper::build_example("ironkeeper-recipes", "curator_partner")?;
    let mut server = lab.server(|setup| setup)?;
    let mut command = java::program(lab.cache, "CuratorRecipes", &QUICK_START)?;
    driver::run(command.arg(server.address()).arg(partner), &mut server)
}
