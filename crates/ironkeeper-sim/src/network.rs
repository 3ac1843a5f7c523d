//! Connections: ordered in each direction, broken by crashes, cut in one direction or both by
//! partitions.
//!
//! A cut does not close a connection: as in TCP, messages wait until the cut ends, or until one end
//! closes the connection after a timeout.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_zab::LinkId;

use crate::random::Random;

/// A message that a world sends over its links.
pub trait Cargo {
    /// Returns whether the message takes much longer than others.
    fn is_large(&self) -> bool {
        false
    }
}

/// The content of a transmission.
#[derive(Clone, Debug)]
pub enum Carried<M> {
    Message(M),
    /// The other end has closed the link.
    End,
}

/// A future event on a link. The world passes it to [`Network::happen`] when it is due.
#[derive(Clone, Debug)]
pub enum Transit<M> {
    Arrive {
        link: LinkId,
        /// The receiving end.
        side: usize,
        number: u64,
        carried: Carried<M>,
    },
    /// The timeout of an end that waits for a cut link.
    Impatience { link: LinkId, side: usize },
}

/// An event on a link that a node observes.
#[derive(Debug)]
pub enum News<M> {
    /// A message or the close of the link has arrived.
    Arrived { link: LinkId, side: usize, carried: Carried<M> },
    /// A node has closed a cut link after a timeout.
    GaveUp { node: usize, link: LinkId },
}

/// One end of a connection.
#[derive(Debug)]
pub struct End<M> {
    pub node: usize,
    /// The boot number of the node to which this end belongs.
    pub boot: u64,
    pub open: bool,
    /// The time at which the last message to this end arrives. Later messages do not arrive
    /// earlier.
    pub last_us: u64,
    /// The number of messages that have been sent to this end.
    sent: u64,
    /// Messages to this end that wait for the end of a cut, by their number.
    held: BTreeMap<u64, Carried<M>>,
    /// The number of the last message that was delivered.
    taken: u64,
    /// Messages that arrived before their predecessors.
    early: BTreeMap<u64, Carried<M>>,
}

#[derive(Debug)]
pub struct Link<M> {
    pub ends: [End<M>; 2],
}

/// All links and cuts. Methods append future events to `due`.
#[derive(Debug)]
pub struct Network<M> {
    pub links: BTreeMap<LinkId, Link<M>>,
    next: u64,
    /// Pairs of sender and receiver.
    cuts: BTreeSet<(usize, usize)>,
    pub latency_us: (u64, u64),
    /// Future events, each with its delay in microseconds.
    pub due: Vec<(u64, Transit<M>)>,
}

impl<M: Cargo> Network<M> {
    pub fn new(latency_us: (u64, u64)) -> Network<M> {
        Network {
            links: BTreeMap::new(),
            next: 0,
            cuts: BTreeSet::new(),
            latency_us,
            due: Vec::new(),
        }
    }

    /// Opens a connection between two nodes, given with their boot numbers. The first node dialled.
    pub fn open(&mut self, from: (usize, u64), to: (usize, u64), now_us: u64) -> LinkId {
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
        self.links.insert(id, Link { ends: [end(from), end(to)] });
        id
    }

    // Cuts.

    pub fn is_cut(&self, from: usize, to: usize) -> bool {
        self.cuts.contains(&(from, to))
    }

    pub fn cut(&mut self, from: usize, to: usize) {
        if from != to {
            self.cuts.insert((from, to));
        }
    }

    /// Cuts the node off from all other nodes, in both directions.
    pub fn isolate(&mut self, node: usize, others: usize) {
        for other in 0..others {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Cuts nodes off from each other whose bits in `mask` differ.
    pub fn split(&mut self, mask: u64, nodes: usize) {
        for a in 0..nodes {
            for b in 0..nodes {
                if (mask >> a) & 1 != (mask >> b) & 1 {
                    self.cut(a, b);
                }
            }
        }
    }

    /// Removes all cuts and sends the messages that waited for their end.
    pub fn heal_all(&mut self, random: &mut Random, now_us: u64) {
        self.cuts.clear();
        self.release_held(random, now_us);
    }

    // Ends of links.

    /// Returns the end of a link that belongs to a node and boot number, if it is open.
    pub fn side(&self, link: LinkId, node: usize, boot: u64) -> Option<usize> {
        let link = self.links.get(&link)?;
        link.ends.iter().position(|end| end.node == node && end.boot == boot && end.open)
    }

    /// Returns the links between two nodes, in order.
    pub fn between(&self, a: usize, b: usize) -> Vec<LinkId> {
        let joins = |link: &Link<M>| {
            let [x, y] = &link.ends;
            (x.node, y.node) == (a, b) || (x.node, y.node) == (b, a)
        };
        self.links.iter().filter(|(_, link)| joins(link)).map(|(id, _)| *id).collect()
    }

    /// Removes a link if both ends are closed.
    fn sweep(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(|link| !link.ends[0].open && !link.ends[1].open) {
            self.links.remove(&id);
        }
    }

    /// Closes one end without notifying the other.
    pub fn drop_end(&mut self, id: LinkId, side: usize) {
        if let Some(link) = self.links.get_mut(&id) {
            link.ends[side].open = false;
        }
        self.sweep(id);
    }

    /// Closes one end. The other end receives the close after everything that was sent before.
    pub fn close(&mut self, random: &mut Random, now_us: u64, id: LinkId, side: usize) {
        if let Some(link) = self.links.get_mut(&id) {
            link.ends[side].open = false;
        }
        self.send(random, now_us, id, 1 - side, Carried::End);
        self.sweep(id);
    }

    /// Closes the ends of a node whose process ends. `says_good_bye`: the kernel is still running
    /// and notifies the other ends.
    pub fn drop_node(
        &mut self,
        random: &mut Random,
        now_us: u64,
        (node, boot): (usize, u64),
        says_good_bye: bool,
    ) {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for link in links {
            let Some(side) = self.side(link, node, boot) else { continue };
            match says_good_bye {
                true => self.close(random, now_us, link, side),
                false => self.drop_end(link, side),
            }
        }
    }

    // Messages.

    pub fn latency(&self, random: &mut Random) -> u64 {
        let (low, high) = self.latency_us;
        random.between(low, high)
    }

    /// Sends a message if the node still has an open end of the link.
    pub fn transmit(
        &mut self,
        random: &mut Random,
        now_us: u64,
        (node, boot): (usize, u64),
        link: LinkId,
        message: M,
    ) {
        if let Some(side) = self.side(link, node, boot) {
            self.send(random, now_us, link, 1 - side, Carried::Message(message));
        }
    }

    /// Sends to one end of a link.
    pub fn send(
        &mut self,
        random: &mut Random,
        now_us: u64,
        id: LinkId,
        side: usize,
        carried: Carried<M>,
    ) {
        let Some(link) = self.links.get_mut(&id) else { return };
        link.ends[side].sent += 1;
        let number = link.ends[side].sent;
        self.carry(random, now_us, id, side, number, carried);
    }

    /// Schedules the arrival of a message, or holds it until a cut ends.
    fn carry(
        &mut self,
        random: &mut Random,
        now_us: u64,
        id: LinkId,
        side: usize,
        number: u64,
        carried: Carried<M>,
    ) {
        let latency = self.latency(random);
        let Some(link) = self.links.get(&id) else { return };
        let (to, from) = (link.ends[side].node, link.ends[1 - side].node);
        let cut = self.is_cut(from, to);
        let Some(link) = self.links.get_mut(&id) else { return };
        let end = &mut link.ends[side];
        if cut {
            end.held.insert(number, carried);
            if end.held.len() == 1 {
                let in_us = random.between(500_000, 20_000_000);
                self.due.push((in_us, Transit::Impatience { link: id, side: 1 - side }));
            }
            return;
        }
        let is_large = matches!(&carried, Carried::Message(message) if message.is_large());
        let extra = if is_large { latency * 20 } else { 0 };
        let at_us = (now_us + latency + extra).max(end.last_us);
        end.last_us = at_us;
        self.due.push((at_us - now_us, Transit::Arrive { link: id, side, number, carried }));
    }

    /// Executes an event that is due and returns what nodes observe, in order.
    pub fn happen(
        &mut self,
        random: &mut Random,
        now_us: u64,
        transit: Transit<M>,
    ) -> Vec<News<M>> {
        match transit {
            Transit::Arrive { link, side, number, carried } => {
                let ready = self.arrive(random, now_us, (link, side), number, carried);
                ready.into_iter().map(|carried| News::Arrived { link, side, carried }).collect()
            }
            Transit::Impatience { link, side } => {
                let gave_up = self.lose_patience(random, now_us, link, side);
                gave_up.into_iter().map(|node| News::GaveUp { node, link }).collect()
            }
        }
    }

    /// Handles an arrival and returns the messages that can be delivered now, in order.
    fn arrive(
        &mut self,
        random: &mut Random,
        now_us: u64,
        (id, side): (LinkId, usize),
        number: u64,
        carried: Carried<M>,
    ) -> Vec<Carried<M>> {
        let Some(link) = self.links.get(&id) else { return Vec::new() };
        let (node, sender) = (link.ends[side].node, link.ends[1 - side].node);
        // A message in transit when the cut starts waits as well.
        if self.is_cut(sender, node) {
            self.carry(random, now_us, id, side, number, carried);
            return Vec::new();
        }
        let Some(link) = self.links.get_mut(&id) else { return Vec::new() };
        let end = &mut link.ends[side];
        end.early.insert(number, carried);
        let mut ready = Vec::new();
        while let Some(carried) = end.early.remove(&(end.taken + 1)) {
            end.taken += 1;
            ready.push(carried);
        }
        ready
    }

    /// Handles a timeout: if the link is still cut, closes the end and returns its node.
    fn lose_patience(
        &mut self,
        random: &mut Random,
        now_us: u64,
        id: LinkId,
        side: usize,
    ) -> Option<usize> {
        let link = self.links.get(&id)?;
        let (node, other) = (link.ends[side].node, link.ends[1 - side].node);
        if !self.is_cut(node, other) || !link.ends[side].open {
            return None;
        }
        self.close(random, now_us, id, side);
        Some(node)
    }

    fn release_held(&mut self, random: &mut Random, now_us: u64) {
        let links: Vec<LinkId> = self.links.keys().copied().collect();
        for id in links {
            for side in 0..2 {
                let Some(link) = self.links.get(&id) else { continue };
                if self.is_cut(link.ends[1 - side].node, link.ends[side].node) {
                    continue;
                }
                let Some(link) = self.links.get_mut(&id) else { continue };
                for (number, carried) in std::mem::take(&mut link.ends[side].held) {
                    self.carry(random, now_us, id, side, number, carried);
                }
            }
        }
    }
}
