//! Checks of the holds that programs claim, against the tree.
//!
//! A claim is the answer of the recipe itself: `is_valid` of a guard, or leadership of a latch. The
//! reference is the tree of the newest leader: a hold is real while its node exists. There are two
//! rules. Real holds that are claimed at the same time must be compatible. And after a loss the
//! claim must end soon: a server that is cut off or frozen may serve its clients for a limited time
//! only.

use std::collections::BTreeMap;
use std::fmt;

use ironkeeper_client::Zxid;

use crate::server::World;

/// The time, in addition to the session timeout, within which a program must notice the loss of a
/// session or a node: a server that has lost its ensemble closes its client connections after a few
/// ticks, on any clock.
const NOTICE_US: u64 = 3_000_000;

/// The sharing mode of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// Exclusive.
    Alone,
    /// Shared with other readers.
    Readers,
    /// Shared by at most this number of holders.
    Permits(usize),
}

/// A hold that a program claims.
pub struct ClaimedHold {
    pub what: String,
    pub program: usize,
    pub share: Share,
    /// The path of the node that represents the hold.
    pub node: String,
    /// Only for exclusive holds: the fencing token, which grows with each grant.
    pub token: Option<Zxid>,
    /// Returns whether the recipe still claims the hold.
    pub is_claimed: Box<dyn Fn() -> bool + Send>,
    /// The session timeout: the session exists this long after the loss of its connection.
    pub session_timeout_us: u64,
}

impl fmt::Debug for ClaimedHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} by {} ({:?})", self.program, self.node, self.share)
    }
}

#[derive(Debug)]
struct Held {
    claim: ClaimedHold,
    /// Whether the token has not been compared with earlier ones yet.
    is_new: bool,
    /// How long the hold was claimed while the node did not exist.
    mistaken_us: u64,
}

/// The claimed holds of all programs.
#[derive(Debug, Default)]
pub struct ClaimedHolds {
    last: u64,
    all: BTreeMap<u64, Held>,
    /// The largest token of each resource that is held exclusively.
    tokens: BTreeMap<String, Zxid>,
    checked_us: u64,
}

impl ClaimedHolds {
    /// Registers a hold that a program claims from now on.
    pub fn begin(&mut self, claim: ClaimedHold) -> u64 {
        self.last += 1;
        self.all.insert(self.last, Held { claim, is_new: true, mistaken_us: 0 });
        self.last
    }

    /// Removes a hold that was released or lost.
    pub fn end(&mut self, number: u64) {
        self.all.remove(&number);
    }

    /// Removes the holds of a program that has ended.
    pub fn forget(&mut self, program: usize) {
        self.all.retain(|_, held| held.claim.program != program);
    }

    /// Checks all current claims against each other and against the tree.
    pub fn check(&mut self, world: &World) -> Result<(), String> {
        let now_us = world.now_us();
        let since_us = now_us - std::mem::replace(&mut self.checked_us, now_us);
        // Without a leader there is no reference.
        let Some(db) = world.newest_leader().filter(|_| !self.all.is_empty()) else {
            return Ok(());
        };
        let state = db.read();
        let mut real: Vec<&ClaimedHold> = Vec::new();
        for held in self.all.values_mut() {
            let Held { claim, is_new, mistaken_us } = held;
            if !(claim.is_claimed)() {
                continue;
            }
            let is_there = state.tree.find(&claim.node).is_some();
            if !is_there {
                *mistaken_us += since_us;
                if *mistaken_us > claim.session_timeout_us + NOTICE_US {
                    let seconds = *mistaken_us as f64 / 1e6;
                    return Err(format!(
                        "claims: {claim:?} claims {} {seconds:.1} s after its node went",
                        claim.what
                    ));
                }
                continue;
            }
            if std::mem::take(is_new)
                && let Some(token) = claim.token
            {
                let largest = self.tokens.entry(claim.what.clone()).or_insert(Zxid::ZERO);
                if token <= *largest {
                    return Err(format!(
                        "fencing: {claim:?} was granted {} with {token}, after {largest}",
                        claim.what
                    ));
                }
                *largest = token;
            }
            real.push(claim);
        }
        drop(state);
        for (at, one) in real.iter().enumerate() {
            let others = real[at + 1..].iter().filter(|other| other.what == one.what);
            let count = 1 + others.clone().count();
            let refused = match one.share {
                Share::Alone => count > 1,
                Share::Readers => others.clone().any(|other| other.share != Share::Readers),
                Share::Permits(permits) => count > permits,
            };
            if refused {
                let others: Vec<_> = others.collect();
                return Err(format!(
                    "exclusion: {} is held by {one:?} and by {others:?}",
                    one.what
                ));
            }
        }
        Ok(())
    }
}
