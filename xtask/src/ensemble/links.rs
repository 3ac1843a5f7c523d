//! The wires between members, each of which can be cut.
//!
//! Every member is told a port of its own for every other member's quorum and election port. Behind it is a proxy.
//! A member names its own address `0.0.0.0` then, so that others do not learn from its greeting how to get past the
//! proxy.

use std::collections::HashMap;

use anyhow::{Context, Result};
use ironkeeper_testing::FaultyProxy;

/// The ports a member listens on for other members.
#[derive(Debug, Clone, Copy)]
pub struct PeerPorts {
    pub quorum: u16,
    pub election: u16,
}

/// How a wire is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Connections are reset and new ones refused: both sides know.
    Refused,
    /// Nothing comes through any more: both sides have to find out.
    Silent,
}

/// All wires of an ensemble, by who dials whom.
#[derive(Debug)]
pub struct Links {
    wires: HashMap<(usize, usize), Wire>,
}

#[derive(Debug)]
struct Wire {
    quorum: FaultyProxy,
    election: FaultyProxy,
}

impl Links {
    /// Wires between all members; `ports` are the real ones, by the member's place.
    pub fn between(ports: &[PeerPorts]) -> Result<Links> {
        let mut wires = HashMap::new();
        for from in 0..ports.len() {
            for (to, real) in ports.iter().enumerate().filter(|(to, _)| *to != from) {
                let start = |port: u16| {
                    FaultyProxy::start(format!("127.0.0.1:{port}")).context("no proxy for a wire")
                };
                let wire = Wire { quorum: start(real.quorum)?, election: start(real.election)? };
                wires.insert((from, to), wire);
            }
        }
        Ok(Links { wires })
    }

    /// The ports under which `from` finds `to`.
    pub fn ports(&self, from: usize, to: usize) -> PeerPorts {
        let wire = &self.wires[&(from, to)];
        PeerPorts { quorum: wire.quorum.port(), election: wire.election.port() }
    }

    /// Cuts off one member from all others.
    pub fn isolate(&self, member: usize, cut: Cut) {
        for ((from, to), wire) in &self.wires {
            if *from == member || *to == member {
                wire.cut(cut);
            }
        }
    }

    /// Cuts the wire between two members, in both directions.
    pub fn cut(&self, one: usize, other: usize, cut: Cut) {
        for pair in [(one, other), (other, one)] {
            self.wires[&pair].cut(cut);
        }
    }

    /// Ends all cuts.
    pub fn heal(&self) -> Result<()> {
        for wire in self.wires.values() {
            for proxy in [&wire.quorum, &wire.election] {
                proxy.heal().context("a wire cannot be mended")?;
            }
        }
        Ok(())
    }
}

impl Wire {
    fn cut(&self, cut: Cut) {
        for proxy in [&self.quorum, &self.election] {
            match cut {
                Cut::Refused => {
                    proxy.refuse();
                    proxy.reset();
                }
                Cut::Silent => proxy.black_hole(),
            }
        }
    }
}
