//! The scenarios, each with the ensembles that run it.

mod bad_peers;
mod catch_up;
mod cuts;
mod kills;
mod pauses;
mod recipes;
mod rolling;
mod sessions;

use anyhow::Result;
use clap::ValueEnum;
use ironkeeper_peers::members::{Kind, Member, Membership};
use ironkeeper_steps::tally::Tally;

use super::Stage;

/// A sequence of faults and checks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Scenario {
    /// Every member is killed and started again under load, the leader more than once.
    Kills,
    /// Every member is paused for a while and continued.
    Pauses,
    /// Members are partitioned from each other.
    Cuts,
    /// Members fall behind, or are ahead, and are synchronized by DIFF, by SNAP and by TRUNC.
    CatchUp,
    /// Every member is replaced by the other program on its data, and back, with clients connected.
    Rolling,
    /// Ephemeral nodes are deleted when their session is closed or expires, and not before.
    Sessions,
    /// Locks, elections, queues and barriers are in use while leaders are killed.
    Recipes,
    /// Garbage, rogue peers, duplicate ids and a damaged log.
    BadPeers,
}

impl Scenario {
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Returns the ensembles that run the scenario: a few by default, all of them in a long run.
    pub fn memberships(self, long: bool) -> Vec<Membership> {
        let (usual, more): (&[&str], &[&str]) = match self {
            Self::Kills => (
                &[
                    "ours,ours,ours",
                    // One Apache member among ours, two Apache members and one of ours, observers
                    // of both.
                    "ours,apache,apache:observer,ours",
                    "apache,apache,ours,ours:observer",
                    "apache38,apache38,ours",
                ],
                &[
                    "apache,ours,ours",
                    "ours,apache,apache",
                    "ours,apache38,ours",
                    "apache38,ours,ours,apache38:observer",
                    "apache,apache,apache,ours:observer",
                    "ours,ours,ours,ours:observer",
                ],
            ),
            Self::Pauses => (&["ours,ours,ours"], &["apache,ours,ours", "apache,apache,ours"]),
            Self::Cuts => (&["ours,ours,ours"], &["apache,ours,ours", "ours,ours,ours,ours,ours"]),
            Self::CatchUp => (
                &["apache,apache,ours", "ours,ours,apache", "apache38,apache38,ours"],
                &["ours,ours,ours", "ours,ours,apache38"],
            ),
            Self::Rolling => {
                (&["apache,apache,apache", "apache38,apache38,apache38"], &["ours,ours,ours"])
            }
            Self::Recipes => (&["ours,ours,ours", "apache,apache,apache"], &["apache,ours,ours"]),
            Self::BadPeers => (&["ours,ours,ours"], &["apache,ours,ours"]),
            Self::Sessions => (&["apache,ours,ours"], &["ours,ours,ours", "apache,apache,ours"]),
        };
        let more = if long { more } else { &[] };
        usual.iter().chain(more).map(|text| Membership::of(text)).collect()
    }

    /// Returns whether the scenario needs the Ironkeeper program although no member runs it at
    /// first.
    pub fn needs_ours(self) -> bool {
        self == Self::Rolling
    }

    /// Returns all kinds of programs that occur in the scenario.
    pub fn all_kinds(self, membership: &Membership) -> Membership {
        let mut all = membership.clone();
        if self == Self::Rolling && membership.has(Kind::Ours) {
            all.0.push(Member { kind: Kind::Apache, observer: false });
        }
        all
    }

    pub fn play(self, stage: &Stage<'_>) -> Result<Tally> {
        match self {
            Self::Kills => kills::play(stage),
            Self::Pauses => pauses::play(stage),
            Self::Cuts => cuts::play(stage),
            Self::CatchUp => catch_up::play(stage),
            Self::Rolling => rolling::play(stage),
            Self::Sessions => sessions::play(stage),
            Self::Recipes => recipes::play(stage),
            Self::BadPeers => bad_peers::play(stage),
        }
    }
}
