//! Rules broken on purpose: a checker that notices nothing here would notice nothing elsewhere.

use std::ops::Range;

use ironkeeper_zab::Bug;

use crate::campaign::caught;
use crate::outcome::{Failure, Layer, Report};
use crate::server::{self, Misconduct};
use crate::{recipes, zab};

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// One of the broadcast.
    Zab(Bug),
    /// The log says that it is durable without a sync.
    UnsyncedLog,
    /// One of the clients.
    Client(Misconduct),
    /// One of the programs that use recipes.
    Program(recipes::Misconduct),
}

/// What has to be noticed in clusters of whole servers, by which rules, and where in the seeds to begin:
/// what takes two losses of power in the right moment, or a move to a server that lags, is rare.
pub const IN_SERVERS: &[(BrokenRule, u64, &[&str])] = &[
    (BrokenRule::Zab(Bug::AckBeforeFlush), 0, LOSSES),
    (BrokenRule::Zab(Bug::SkipTrunc), 0, LOSSES),
    (BrokenRule::Zab(Bug::MinorityCommit), 0, LOSSES),
    (BrokenRule::Zab(Bug::VoteOrder), 0, LOSSES),
    (BrokenRule::Zab(Bug::ForgetAcceptedEpoch), 0, LOSSES),
    (BrokenRule::Zab(Bug::ForgetCurrentEpoch), 0, LOSSES),
    (BrokenRule::Zab(Bug::SkipFastForward), 0, LOSSES),
    (BrokenRule::UnsyncedLog, 0, LOSSES),
    (BrokenRule::Client(Misconduct::HideZxid), 1000, &["order"]),
    (BrokenRule::Client(Misconduct::ForgetWatches), 0, &["watches"]),
    (BrokenRule::Client(Misconduct::SkipSync), 0, &["synced reads"]),
    (BrokenRule::Client(Misconduct::IgnoreTimeout), 0, &["sessions"]),
];

/// What has to be noticed where programs use recipes.
pub const IN_RECIPES: &[(BrokenRule, u64, &[&str])] = &[
    (BrokenRule::Program(recipes::Misconduct::IgnoreLoss), 0, &["beliefs"]),
    (BrokenRule::Program(recipes::Misconduct::WriteUnfenced), 0, &["fencing"]),
    (BrokenRule::Program(recipes::Misconduct::SkipLook), 0, &["exclusion"]),
    (BrokenRule::Program(recipes::Misconduct::DoneBeforeWork), 0, &["queue"]),
    (BrokenRule::Program(recipes::Misconduct::RepeatInDoubt), 0, &["counter"]),
    (BrokenRule::Program(recipes::Misconduct::PassBarrier), 0, &["barrier"]),
];

/// How a lost or another history shows.
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
    /// Runs one seed with it.
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
                    BrokenRule::Client(misconduct) => plan = plan.with_misconduct(misconduct),
                    BrokenRule::Program(_) => {}
                }
                server::World::new(seed, plan, false).run()
            }
            Layer::Recipes => {
                let mut plan = recipes::Plan::from_seed(seed);
                if let BrokenRule::Program(misconduct) = self {
                    plan = plan.with_misconduct(misconduct);
                }
                recipes::run(seed, plan, false)
            }
        })
    }

    /// Runs seeds until somebody notices: who did, or why nobody has.
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
