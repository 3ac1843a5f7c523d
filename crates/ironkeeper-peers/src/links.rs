//! The links between members, each of which can be cut.
//!
//! Every member is configured with a separate port for every other member's quorum port and
//! election port, and a proxy listens on each. A member configures its own address as `0.0.0.0`, so
//! that other members cannot learn from its messages how to bypass the proxy.

use std::collections::HashMap;

use anyhow::{Context, Result};
use ironkeeper_testing::FaultyProxy;

/// The ports on which a member listens for other members.
#[derive(Debug, Clone, Copy)]
pub struct PeerPorts {
    pub quorum: u16,
    pub election: u16,
}

/// The way in which a link is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Connections are reset and new ones rejected: both sides detect it at once.
    Refused,
    /// Packets are dropped: both sides detect it by timeouts.
    Silent,
}

/// All links of an ensemble, by dialling member and dialled member.
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
    /// Creates links between all members; `ports` are the real ones, by the index of the member.
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

    /// Returns the ports under which `from` dials `to`.
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

    /// Cuts the link between two members, in both directions.
    pub fn cut(&self, one: usize, other: usize, cut: Cut) {
        for pair in [(one, other), (other, one)] {
            self.wires[&pair].cut(cut);
        }
    }

    /// Restores all links.
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
