//! The type of an attack, and the list of all attacks.

use std::thread;
use std::time::Instant;

use anyhow::Result;

use super::attacks;
use super::target::Target;

/// The actions of the attackers while the victim is measured.
pub struct Strike {
    run: Box<dyn FnOnce(Instant) + Send>,
    check: Option<Box<dyn FnOnce() -> Result<()> + Send>>,
}

/// Creates a strike that ends at the given moment and then drops its connections.
pub fn strike(run: impl FnOnce(Instant) + Send + 'static) -> Strike {
    Strike { run: Box::new(run), check: None }
}

impl Strike {
    /// Adds a check after the strike; its error is a failure of the server.
    pub fn then_check(mut self, check: impl FnOnce() -> Result<()> + Send + 'static) -> Strike {
        self.check = Some(Box::new(check));
        self
    }

    /// Runs until the given moment, then checks.
    pub fn run(self, until: Instant) -> Result<()> {
        (self.run)(until);
        self.check.map_or(Ok(()), |check| check())
    }
}

/// A row of the table.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    pub name: &'static str,
    /// A description of one sentence.
    pub about: &'static str,
    pub on: On,
    /// Builds the tree that the attack needs, which is not measured.
    pub prepare: fn(&Target) -> Result<Strike>,
    /// Megabytes that the server may keep: created nodes, sessions that have not expired.
    pub leaves_mb: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum On {
    Server,
    Ensemble,
}

/// Creates an attack on a single server after which no memory may be kept.
pub const fn attack(
    name: &'static str,
    about: &'static str,
    prepare: fn(&Target) -> Result<Strike>,
) -> Attack {
    Attack { name, about, on: On::Server, prepare, leaves_mb: 0 }
}

impl Attack {
    pub const fn on_ensemble(mut self) -> Attack {
        self.on = On::Ensemble;
        self
    }

    pub const fn leaves(mut self, mb: u64) -> Attack {
        self.leaves_mb = mb;
        self
    }
}

/// Returns all attacks, family by family.
pub fn all() -> impl Iterator<Item = &'static Attack> {
    let families: [&[Attack]; 6] = [
        attacks::operations::ALL,
        attacks::work::ALL,
        attacks::unread::ALL,
        attacks::connections::ALL,
        attacks::quorum_port::ALL,
        attacks::election_port::ALL,
    ];
    families.into_iter().flatten()
}

/// Keeps a value until the moment, then drops it.
pub fn hold<T>(until: Instant, held: T) {
    thread::sleep(until.saturating_duration_since(Instant::now()));
    drop(held);
}

pub fn is_over(until: Instant) -> bool {
    Instant::now() >= until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_every_operation_has_a_row() {
        let mut names: Vec<&str> = all().map(|attack| attack.name).collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        for operation in [
            "create",
            "create2",
            "createContainer",
            "createTTL",
            "delete",
            "setData",
            "setACL",
            "getACL",
            "getData",
            "exists",
            "getChildren",
            "getChildren2",
            "getAllChildrenNumber",
            "getEphemerals",
            "multi",
            "multiRead",
            "sync",
            "reconfig",
            "setWatches",
            "setWatches2",
            "addWatch",
            "removeWatches",
            "checkWatches",
            "auth",
            "sasl",
            "whoAmI",
            "ping",
            "closeSession",
            "connect",
            "four-letter words",
        ] {
            let has_row = |attack: &&Attack| {
                attack.name == operation || attack.name.starts_with(&format!("{operation}: "))
            };
            assert!(attacks::operations::ALL.iter().any(|attack| has_row(&attack)), "{operation}");
        }
    }
}
