//! Connections: in order each way, broken by crashes, cut one way or both, held up by partitions.
//!
//! A cut does not close anything: what is sent waits for the end of the cut, as TCP would have it, or
//! for the end of somebody's patience.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::{Notification, Packet};
use ironkeeper_zab::{LinkId, Port};

use crate::state::State;

/// What travels.
#[derive(Clone, Debug)]
pub enum Message {
    Opening(Opening),
    Notification(Notification),
    Packet(Packet),
    Snapshot(State),
    /// The other side has hung up.
    End,
}

/// One end of a connection.
#[derive(Debug)]
pub struct End {
    pub node: usize,
    /// The life of the node to which this end belongs.
    pub boot: u64,
    pub open: bool,
    /// When the last message to this end arrives; the next one comes later.
    pub last_us: u64,
    /// How many messages have been sent to this end.
    pub sent: u64,
    /// Messages to this end that wait for the end of a cut, by their number.
    pub held: BTreeMap<u64, Message>,
    /// The number of the last message that was taken in.
    pub taken: u64,
    /// Messages that came before their turn.
    pub early: BTreeMap<u64, Message>,
}

#[derive(Debug)]
pub struct Link {
    pub port: Port,
    pub ends: [End; 2],
}

#[derive(Debug, Default)]
pub struct Network {
    pub links: BTreeMap<LinkId, Link>,
    next: u64,
    /// From, to.
    cuts: BTreeSet<(usize, usize)>,
    pub latency_us: (u64, u64),
}

impl Network {
    pub fn new(latency_us: (u64, u64)) -> Network {
        Network { latency_us, ..Network::default() }
    }

    pub fn open(
        &mut self,
        port: Port,
        from: (usize, u64),
        to: (usize, u64),
        now_us: u64,
    ) -> LinkId {
        self.next += 1;
        let id = LinkId(self.next);
        let end = |(node, boot)| End {
            node,
            boot,
            open: true,
            last_us: now_us,
            sent: 0,
            held: BTreeMap::new(),
            taken: 0,
            early: BTreeMap::new(),
        };
        self.links.insert(id, Link { port, ends: [end(from), end(to)] });
        id
    }

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.contains(&(from, to))
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        if from != to {
            self.cuts.insert((from, to));
        }
    }

    pub fn heal(&mut self, from: usize, to: usize) {
        self.cuts.remove(&(from, to));
    }

    pub fn heal_all(&mut self) {
        self.cuts.clear();
    }

    pub fn has_cuts(&self) -> bool {
        !self.cuts.is_empty()
    }

    /// Which end of a link a node holds in this life.
    pub fn side(&self, link: LinkId, node: usize, boot: u64) -> Option<usize> {
        let link = self.links.get(&link)?;
        link.ends.iter().position(|end| end.node == node && end.boot == boot && end.open)
    }

    /// Open links between these two, in order.
    pub fn between(&self, a: usize, b: usize) -> Vec<LinkId> {
        let joins = |link: &Link| {
            let [x, y] = &link.ends;
            (x.node, y.node) == (a, b) || (x.node, y.node) == (b, a)
        };
        self.links.iter().filter(|(_, link)| joins(link)).map(|(id, _)| *id).collect()
    }

    /// Forgets a link that nobody holds any more.
    pub fn sweep(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(|link| !link.ends[0].open && !link.ends[1].open) {
            self.links.remove(&id);
        }
    }
}
