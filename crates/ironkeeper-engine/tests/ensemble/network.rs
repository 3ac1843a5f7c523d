//! Links between servers. Messages of one link and direction arrive in order; there is no order
//! between links.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::{Notification, Packet};
use ironkeeper_zab::{LinkId, Port};

/// A message on a link.
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
    /// Both ends of each link; `None` for an end that is closed.
    links: BTreeMap<LinkId, [Option<usize>; 2]>,
    next_link: u64,
    /// Messages in flight, with receiver and link.
    wire: VecDeque<(usize, LinkId, Message)>,
    /// Isolated servers.
    cut: BTreeSet<usize>,
    /// No message arrives while this is set.
    pub is_held: bool,
}

impl Network {
    /// Starts a dial.
    pub fn dial(&mut self, from: usize, to: usize, port: Port) {
        self.next_link += 1;
        self.wire.push_back((to, LinkId(self.next_link), Message::Dial { from, port }));
    }

    /// Opens the link of a dial that has arrived; returns false if an end is isolated.
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

    /// Closes one end of a link; the other end is notified after the messages that were sent
    /// before.
    pub fn close(&mut self, at: usize, link: LinkId) {
        let Some(ends) = self.links.get_mut(&link) else { return };
        let Some(own) = ends.iter_mut().find(|end| **end == Some(at)) else { return };
        *own = None;
        // Messages in flight to this end do not arrive.
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

    /// Removes a link and returns its open ends, which the caller must notify.
    pub fn sever(&mut self, link: LinkId) -> Vec<usize> {
        self.links.remove(&link).into_iter().flatten().flatten().collect()
    }

    pub fn isolate(&mut self, at: usize) {
        self.cut.insert(at);
    }

    pub fn heal(&mut self) {
        self.cut.clear();
    }

    /// Drops all messages in flight.
    pub fn lose_messages(&mut self) {
        self.wire.clear();
    }

    /// Removes the last message sent from the wire, for [`Network::put_back`].
    pub fn hold_back(&mut self) -> (usize, LinkId, Message) {
        self.wire.pop_back().expect("something is on its way")
    }

    pub fn put_back(&mut self, late: (usize, LinkId, Message)) {
        self.wire.push_back(late);
    }

    /// Returns the next message to arrive: the oldest message of the link and direction that the
    /// random number `draw` selects; the oldest of all for `draw == 0`.
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
