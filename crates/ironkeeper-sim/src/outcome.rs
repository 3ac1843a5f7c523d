//! The result of a seed.

use std::fmt;
use std::ops::AddAssign;

/// The part of the product that runs in a simulated world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Layer {
    /// The ZAB machine on a model of log and tree: fast, for many seeds.
    Zab,
    /// Whole servers: engine, ZAB and store, with clients.
    Server,
    /// The product's client and recipes on whole servers.
    Recipes,
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Layer::Zab => "zab",
            Layer::Server => "server",
            Layer::Recipes => "recipes",
        })
    }
}

/// A violation of a rule.
#[derive(Clone, Debug)]
pub struct Failure {
    pub layer: Layer,
    pub seed: u64,
    pub at_us: u64,
    /// The rule, a colon, and a description.
    pub what: String,
}

impl Failure {
    /// Returns the command that reproduces the failure.
    pub fn reproduction(&self) -> String {
        format!("cargo xtask sim --layer {} --seed {}", self.layer, self.seed)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { layer, seed, what, .. } = self;
        let seconds = self.at_us as f64 / 1e6;
        write!(f, "{layer} seed {seed} at {seconds:.3} s: {what}\n  {}", self.reproduction())
    }
}

/// The counts of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub simulated_us: u64,
    pub events: u64,
    pub committed: u64,
    pub leaders: u64,
    pub truncations: u64,
    /// Snapshots that servers installed from a leader.
    pub snapshots: u64,
    pub faults: u64,
    pub reconfigurations: u64,
    /// Replies that clients received.
    pub answers: u64,
    /// Watch events that clients received.
    pub watch_events: u64,
    /// Sessions that expired.
    pub expired: u64,
    /// Operations that programs completed with their recipes.
    pub operations: u64,
    /// Replies of servers in read-only mode, which have no leader.
    pub read_only_answers: u64,
    /// Ephemeral nodes of sessions that began as local sessions.
    pub upgrades: u64,
    /// A hash of all events.
    pub trace: u64,
}

impl AddAssign<&Report> for Report {
    fn add_assign(&mut self, other: &Report) {
        self.simulated_us += other.simulated_us;
        self.events += other.events;
        self.committed += other.committed;
        self.leaders += other.leaders;
        self.truncations += other.truncations;
        self.snapshots += other.snapshots;
        self.faults += other.faults;
        self.reconfigurations += other.reconfigurations;
        self.answers += other.answers;
        self.watch_events += other.watch_events;
        self.expired += other.expired;
        self.operations += other.operations;
        self.read_only_answers += other.read_only_answers;
        self.upgrades += other.upgrades;
        self.trace ^= other.trace;
    }
}
