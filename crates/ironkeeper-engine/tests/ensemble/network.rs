//! Connections between servers: in order each way, and without any order between them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::{Notification, Packet};
use ironkeeper_zab::{LinkId, Port};

/// What travels.
#[derive(Debug)]
pub enum Message {
    Opening(Opening),
    Notification(Notification),
    Packet(Packet),
    Tree(Vec<u8>),
    Dial { from: usize, port: Port },
    End,
}

#[derive(Debug, Default)]
pub struct Network {
    /// Both ends, as long as they are open.
    links: BTreeMap<LinkId, [Option<usize>; 2]>,
    next_link: u64,
    /// To whom, on which link.
    wire: VecDeque<(usize, LinkId, Message)>,
    /// Those who cannot be reached and reach nobody.
    cut: BTreeSet<usize>,
    /// Nothing arrives while this is set.
    pub is_held: bool,
}

impl Network {
    /// Somebody begins to dial.
    pub fn dial(&mut self, from: usize, to: usize, port: Port) {
        self.next_link += 1;
        self.wire.push_back((to, LinkId(self.next_link), Message::Dial { from, port }));
    }

    /// The dial has reached its end; false if it is in vain.
    pub fn open(&mut self, from: usize, to: usize, link: LinkId) -> bool {
        let reachable = !self.cut.contains(&from) && !self.cut.contains(&to);
        if reachable {
            self.links.insert(link, [Some(from), Some(to)]);
        }
        reachable
    }

    pub fn send(&mut self, from: usize, link: LinkId, message: Message) {
        let Some(ends) = self.links.get(&link).filter(|ends| ends.contains(&Some(from))) else {
            return;
        };
        if let Some(to) = ends.iter().flatten().find(|end| **end != from) {
            self.wire.push_back((*to, link, message));
        }
    }

    /// Closes a connection from one side; the other hears of it behind what was sent before.
    pub fn close(&mut self, at: usize, link: LinkId) {
        let Some(ends) = self.links.get_mut(&link) else { return };
        let Some(own) = ends.iter_mut().find(|end| **end == Some(at)) else { return };
        *own = None;
        // What was on its way to here does not arrive any more.
        self.wire.retain(|(to, on, _)| !(*to == at && *on == link));
        match ends.iter().flatten().next().copied() {
            Some(other) => self.wire.push_back((other, link, Message::End)),
            None => drop(self.links.remove(&link)),
        }
    }

    pub fn links_of(&self, at: usize) -> Vec<LinkId> {
        let own = self.links.iter().filter(|(_, ends)| ends.contains(&Some(at)));
        own.map(|(link, _)| *link).collect()
    }

    /// Breaks a connection; these ends have to be told.
    pub fn sever(&mut self, link: LinkId) -> Vec<usize> {
        self.links.remove(&link).into_iter().flatten().flatten().collect()
    }

    pub fn isolate(&mut self, at: usize) {
        self.cut.insert(at);
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// What is on its way never arrives.
    pub fn lose_messages(&mut self) {
        self.wire.clear();
    }

    /// Takes what was sent last from the wire, for [`Network::put_back`].
    pub fn hold_back(&mut self) -> (usize, LinkId, Message) {
        self.wire.pop_back().expect("something is on its way")
    }

    pub fn put_back(&mut self, late: (usize, LinkId, Message)) {
        self.wire.push_back(late);
    }

    /// What arrives next: the oldest message, or, by a number that is drawn, the oldest of some
    /// connection.
    pub fn arrive(&mut self, draw: usize) -> Option<(usize, LinkId, Message)> {
        if self.is_held || self.wire.is_empty() {
            return None;
        }
        let (to, link, _) = self.wire[draw % self.wire.len()];
        let first = self.wire.iter().position(|(other, on, _)| (*other, *on) == (to, link))?;
        let (to, link, message) = self.wire.remove(first)?;
        let is_open = self.links.get(&link).is_some_and(|ends| ends.contains(&Some(to)));
        if matches!(message, Message::End) {
            self.links.remove(&link);
        }
        match is_open || matches!(message, Message::Dial { .. }) {
            true => Some((to, link, message)),
            false => self.arrive(draw),
        }
    }
}
