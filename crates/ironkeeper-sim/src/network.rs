//! Connections: in order each way, broken by crashes, cut one way or both, held up by partitions.
//!
//! A cut does not close anything: what is sent waits for the end of the cut, as TCP would have it, or
//! for the end of somebody's patience.

use std::collections::{BTreeMap, BTreeSet};

use ironkeeper_zab::LinkId;

use crate::random::Random;

/// What a world sends over its links.
pub trait Cargo {
    /// Whether it takes much longer than others on its way.
    fn is_large(&self) -> bool {
        false
    }
}

/// What travels.
#[derive(Clone, Debug)]
pub enum Carried<M> {
    Message(M),
    /// The other side has hung up.
    End,
}

/// What happens on a link, to be given back to the network when it is time.
#[derive(Clone, Debug)]
pub enum Transit<M> {
    Arrive {
        link: LinkId,
        /// To which end.
        side: usize,
        number: u64,
        carried: Carried<M>,
    },
    /// Nobody has heard from the other side of a cut link for too long.
    Impatience { link: LinkId, side: usize },
}

/// What a node learns from the network.
#[derive(Debug)]
pub enum News<M> {
    /// Something has come to an end of a link.
    Arrived { link: LinkId, side: usize, carried: Carried<M> },
    /// A node has given up a link that is cut.
    GaveUp { node: usize, link: LinkId },
}

/// One end of a connection.
#[derive(Debug)]
pub struct End<M> {
    pub node: usize,
    /// The life of the node to which this end belongs.
    pub boot: u64,
    pub open: bool,
    /// When the last message to this end arrives; the next one comes later.
    pub last_us: u64,
    /// How many messages have been sent to this end.
    sent: u64,
    /// Messages to this end that wait for the end of a cut, by their number.
    held: BTreeMap<u64, Carried<M>>,
    /// The number of the last message that was taken in.
    taken: u64,
    /// Messages that came before their turn.
    early: BTreeMap<u64, Carried<M>>,
}

#[derive(Debug)]
pub struct Link<M> {
    pub ends: [End<M>; 2],
}

/// All links and cuts. What its methods want to happen is left in `due`.
#[derive(Debug)]
pub struct Network<M> {
    pub links: BTreeMap<LinkId, Link<M>>,
    next: u64,
    /// From, to.
    cuts: BTreeSet<(usize, usize)>,
    pub latency_us: (u64, u64),
    /// In how many microseconds what happens.
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

    /// A connection between two nodes in their present lives; the first one has dialled.
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

    /// Nobody of these hears of the node any more, and it of none of them.
    pub fn isolate(&mut self, node: usize, others: usize) {
        for other in 0..others {
            self.cut(node, other);
            self.cut(other, node);
        }
    }

    /// Those whose bits differ are cut off from each other.
    pub fn split(&mut self, mask: u64, nodes: usize) {
        for a in 0..nodes {
            for b in 0..nodes {
                if (mask >> a) & 1 != (mask >> b) & 1 {
                    self.cut(a, b);
                }
            }
        }
    }

    /// All cuts end, and what waited for that goes on its way.
    pub fn heal_all(&mut self, random: &mut Random, now_us: u64) {
        self.cuts.clear();
        self.release_held(random, now_us);
    }

    // Who holds what.

    /// Which end of a link a node holds in this life.
    pub fn side(&self, link: LinkId, node: usize, boot: u64) -> Option<usize> {
        let link = self.links.get(&link)?;
        link.ends.iter().position(|end| end.node == node && end.boot == boot && end.open)
    }

    /// Open links between these two, in order.
    pub fn between(&self, a: usize, b: usize) -> Vec<LinkId> {
        let joins = |link: &Link<M>| {
            let [x, y] = &link.ends;
            (x.node, y.node) == (a, b) || (x.node, y.node) == (b, a)
        };
        self.links.iter().filter(|(_, link)| joins(link)).map(|(id, _)| *id).collect()
    }

    /// Forgets a link that nobody holds any more.
    fn sweep(&mut self, id: LinkId) {
        if self.links.get(&id).is_some_and(|link| !link.ends[0].open && !link.ends[1].open) {
            self.links.remove(&id);
        }
    }

    /// One end is gone and nobody says so.
    pub fn drop_end(&mut self, id: LinkId, side: usize) {
        if let Some(link) = self.links.get_mut(&id) {
            link.ends[side].open = false;
        }
        self.sweep(id);
    }

    /// One side closes: the other one hears of it behind what was sent before.
    pub fn close(&mut self, random: &mut Random, now_us: u64, id: LinkId, side: usize) {
        if let Some(link) = self.links.get_mut(&id) {
            link.ends[side].open = false;
        }
        self.send(random, now_us, id, 1 - side, Carried::End);
        self.sweep(id);
    }

    /// A node's process ends. The kernel says good-bye for it, unless it is gone as well.
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

    /// A node sends, if it still holds an end of the link.
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

    /// Puts a message on its way to one end of a link, or keeps it until a cut ends.
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

    /// It is time for something that was due: who learns what of it, in order.
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

    /// A message has arrived: what can be taken in now, in order.
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
        // What is on its way when the cut comes waits, too.
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

    /// Somebody waits for the end of a cut in vain: who gives up, if anybody does.
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
