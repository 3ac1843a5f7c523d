//! Seeded bugs: rules that a run violates on purpose. They show that the checkers detect
//! violations.

use std::ops::Range;

use ironkeeper_zab::Bug;

use crate::campaign::caught;
use crate::outcome::{Failure, Layer, Report};
use crate::server::{self, ClientBug};
use crate::{recipes, zab};

/// A rule that a run violates on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// A rule of ZAB.
    Zab(Bug),
    /// The log reports records as durable without a sync.
    UnsyncedLog,
    /// A rule for clients.
    Client(ClientBug),
    /// A rule for programs that use recipes.
    Program(recipes::ProgramBug),
}

/// The broken rules that must be detected in clusters of whole servers, the first seed to try, and
/// the checkers that may report them. Violations that need two power failures at the right moments,
/// or a move to a server that lags, are rare.
pub const IN_SERVERS: &[(BrokenRule, u64, &[&str])] = &[
    (BrokenRule::Zab(Bug::AckBeforeFlush), 0, LOSSES),
    (BrokenRule::Zab(Bug::SkipTrunc), 0, LOSSES),
    (BrokenRule::Zab(Bug::MinorityCommit), 0, LOSSES),
    (BrokenRule::Zab(Bug::VoteOrder), 0, LOSSES),
    (BrokenRule::Zab(Bug::ForgetAcceptedEpoch), 0, LOSSES),
    (BrokenRule::Zab(Bug::ForgetCurrentEpoch), 0, LOSSES),
    (BrokenRule::Zab(Bug::SkipFastForward), 0, LOSSES),
    (BrokenRule::UnsyncedLog, 0, LOSSES),
    (BrokenRule::Client(ClientBug::HideZxid), 1000, &["order"]),
    (BrokenRule::Client(ClientBug::ForgetWatches), 0, &["watches"]),
    (BrokenRule::Client(ClientBug::SkipSync), 0, &["synced reads"]),
    (BrokenRule::Client(ClientBug::IgnoreTimeout), 0, &["sessions"]),
];

/// The broken rules that must be detected in programs that use recipes.
pub const IN_RECIPES: &[(BrokenRule, u64, &[&str])] = &[
    (BrokenRule::Program(recipes::ProgramBug::IgnoreLoss), 0, &["claims"]),
    (BrokenRule::Program(recipes::ProgramBug::WriteUnfenced), 0, &["fencing"]),
    (BrokenRule::Program(recipes::ProgramBug::SkipLook), 0, &["exclusion"]),
    (BrokenRule::Program(recipes::ProgramBug::DoneBeforeWork), 0, &["queue"]),
    (BrokenRule::Program(recipes::ProgramBug::RepeatInDoubt), 0, &["counter"]),
    (BrokenRule::Program(recipes::ProgramBug::PassBarrier), 0, &["barrier"]),
];

/// The checkers that can report a lost or diverging history.
const LOSSES: &[&str] = &[
    "durability",
    "agreement",
    "leadership",
    "linearizability",
    "synced reads",
    "order",
    "epochs",
    "progress",
    "recovery",
    "ephemerals",
    "warning",
    "assertion",
];

impl BrokenRule {
    /// Runs one seed with the broken rule.
    pub fn run_seed(self, layer: Layer, seed: u64) -> Result<Report, Failure> {
        caught(layer, seed, || match layer {
            Layer::Zab => {
                let bug = match self {
                    BrokenRule::Zab(bug) => Some(bug),
                    _ => None,
                };
                zab::run_seed(seed, bug, false)
            }
            Layer::Server => {
                let mut plan = server::Plan::from_seed(seed);
                match self {
                    BrokenRule::Zab(bug) => plan.settings.bug = Some(bug),
                    BrokenRule::UnsyncedLog => plan.store.force_sync = false,
                    BrokenRule::Client(bug) => plan = plan.with_client_bug(bug),
                    BrokenRule::Program(_) => {}
                }
                server::World::new(seed, plan, false).run()
            }
            Layer::Recipes => {
                let mut plan = recipes::Plan::from_seed(seed);
                if let BrokenRule::Program(bug) = self {
                    plan = plan.with_program_bug(bug);
                }
                recipes::run(seed, plan, false)
            }
        })
    }

    /// Runs seeds until a checker reports a failure. Returns it, or the reason why there is no
    /// expected one.
    pub fn find(
        self,
        layer: Layer,
        seeds: Range<u64>,
        expected: &[&str],
    ) -> Result<Failure, String> {
        for seed in seeds.clone() {
            let Err(failure) = self.run_seed(layer, seed) else { continue };
            return match expected.iter().any(|kind| failure.what.starts_with(kind)) {
                true => Ok(failure),
                false => Err(format!("{self:?} was noticed for another reason: {failure}")),
            };
        }
        Err(format!("nobody noticed {self:?} in the seeds {seeds:?} of {layer}"))
    }
}
