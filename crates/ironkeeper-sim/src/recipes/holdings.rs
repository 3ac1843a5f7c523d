//! Who believes to hold what, held against the tree.
//!
//! A belief is what the recipe itself says: a guard that calls itself valid, a latch that says it leads. The
//! truth is the tree of the newest leader: a hold is real as long as its node is there. Two rules follow.
//! Nobody believes to hold what somebody else really holds and believes to hold as well. And whoever has lost
//! something learns of it soon: a server that is cut off or frozen may answer on for a while, and no longer.

use std::collections::BTreeMap;
use std::fmt;

use ironkeeper_client::Zxid;

use crate::server::World;

/// Within so much time on top of a session's timeout everybody has noticed that a session or a node is gone:
/// a server that has lost its ensemble drops its clients after a few ticks, by whatever clock.
const NOTICE_US: u64 = 3_000_000;

/// With whom something is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// With nobody.
    Alone,
    /// With others who say the same.
    Readers,
    /// With so many, oneself included.
    Permits(usize),
}

/// Something that a program believes to hold.
pub struct Holding {
    pub what: String,
    pub program: usize,
    pub share: Share,
    /// The node that proves it.
    pub node: String,
    /// Only for what is held alone: grows from grant to grant.
    pub token: Option<Zxid>,
    /// What the recipe says.
    pub belief: Box<dyn Fn() -> bool + Send>,
    /// How long the session outlives its connection.
    pub session_timeout_us: u64,
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "program {} by {} ({:?})", self.program, self.node, self.share)
    }
}

#[derive(Debug)]
struct Held {
    holding: Holding,
    /// Its token was not yet compared with those before it.
    is_new: bool,
    /// For how long it was believed in although the node was gone.
    mistaken_us: u64,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub struct Holdings {
    last: u64,
    all: BTreeMap<u64, Held>,
    /// The largest token of each thing that is held alone.
    tokens: BTreeMap<String, Zxid>,
    checked_us: u64,
}

impl Holdings {
    /// Somebody believes to hold something from now on.
    pub fn begin(&mut self, holding: Holding) -> u64 {
        self.last += 1;
        self.all.insert(self.last, Held { holding, is_new: true, mistaken_us: 0 });
        self.last
    }

    /// It is given back, or was lost: nothing is believed any more.
    pub fn end(&mut self, number: u64) {
        self.all.remove(&number);
    }

    /// A program is gone, and its beliefs with it.
    pub fn forget(&mut self, program: usize) {
        self.all.retain(|_, held| held.holding.program != program);
    }

    /// Holds all beliefs of this moment against each other and against the tree.
    pub fn check(&mut self, world: &World) -> Result<(), String> {
        let now_us = world.now_us();
        let since_us = now_us - std::mem::replace(&mut self.checked_us, now_us);
        // Without a leader nobody knows the truth.
        let Some(db) = world.newest_leader().filter(|_| !self.all.is_empty()) else {
            return Ok(());
        };
        let state = db.read();
        let mut real: Vec<&Holding> = Vec::new();
        for held in self.all.values_mut() {
            let Held { holding, is_new, mistaken_us } = held;
            if !(holding.belief)() {
                continue;
            }
            let is_there = state.tree.find(&holding.node).is_some();
            if !is_there {
                *mistaken_us += since_us;
                if *mistaken_us > holding.session_timeout_us + NOTICE_US {
                    let seconds = *mistaken_us as f64 / 1e6;
                    return Err(format!(
                        "beliefs: {holding:?} believes to hold {} {seconds:.1} s after its node went",
                        holding.what
                    ));
                }
                continue;
            }
            if std::mem::take(is_new)
                && let Some(token) = holding.token
            {
                let largest = self.tokens.entry(holding.what.clone()).or_insert(Zxid::ZERO);
                if token <= *largest {
                    return Err(format!(
                        "fencing: {holding:?} was granted {} with {token}, after {largest}",
                        holding.what
                    ));
                }
                *largest = token;
            }
            real.push(holding);
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
