//! What a seed has led to.

use std::fmt;
use std::ops::AddAssign;

/// Which part of the product runs in a simulated world.
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

/// A rule was broken.
#[derive(Clone, Debug)]
pub struct Failure {
    pub layer: Layer,
    pub seed: u64,
    pub at_us: u64,
    /// The rule, a colon, and what happened.
    pub what: String,
}

impl Failure {
    /// The command that shows it again.
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

/// What a seed was good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub simulated_us: u64,
    pub events: u64,
    pub committed: u64,
    pub leaders: u64,
    pub truncations: u64,
    /// Whole trees that were taken over from a leader.
    pub snapshots: u64,
    pub faults: u64,
    pub reconfigurations: u64,
    /// Answers that clients got.
    pub answers: u64,
    /// Events of watches that clients got.
    pub watch_events: u64,
    /// Sessions that ended because their clients were silent.
    pub expired: u64,
    /// Things that programs have brought to an end with their recipes.
    pub deeds: u64,
    /// Answers of servers without a leader, which only serve reads.
    pub read_only_answers: u64,
    /// Ephemeral nodes of sessions that began as local ones.
    pub upgrades: u64,
    /// Everything that happened, in one number.
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
        self.deeds += other.deeds;
        self.read_only_answers += other.read_only_answers;
        self.upgrades += other.upgrades;
        self.trace ^= other.trace;
    }
}
