//! External clients: network ends for programs that run outside of the world, such as the product's
//! own client. A program calls methods for its actions, and the world collects the events of its
//! connections in a list.
//!
//! A line is one connection attempt and the connection that results from it. The program chooses
//! its number and never reuses it.

use std::collections::BTreeMap;

use ironkeeper_zab::LinkId;

use super::world::{Event, World};

/// An event of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    Open,
    Refused,
    Bytes(Vec<u8>),
    /// The connection has ended. No event follows.
    End,
}

#[derive(Debug)]
struct Line {
    guest: usize,
    /// `None` while the connection is being dialled.
    link: Option<LinkId>,
}

/// The external clients and their connections.
#[derive(Debug, Default)]
pub struct Guests {
    count: usize,
    /// Lines that have not ended.
    lines: BTreeMap<u64, Line>,
    told: Vec<(u64, Told)>,
}

impl Guests {
    fn line_of(&self, link: LinkId) -> Option<u64> {
        self.lines.iter().find(|(_, line)| line.link == Some(link)).map(|(number, _)| *number)
    }
}

impl World {
    /// Adds external clients to the network.
    pub fn invite(&mut self, guests: usize) {
        self.guests.count = guests;
    }

    /// Returns the number of network nodes that are not servers: clients, then external clients.
    pub(super) fn outsiders(&self) -> usize {
        self.clients.len() + self.guests.count
    }

    /// Returns whether a node of the network is an external client.
    pub(super) fn is_guest(&self, node: usize) -> bool {
        node >= self.nodes.len() + self.clients.len()
    }

    /// Returns the external client's end of a network link.
    fn guest_end(&self, guest: usize) -> (usize, u64) {
        (self.nodes.len() + self.clients.len() + guest, 0)
    }

    /// Returns the connection events since the last call, by line.
    pub fn take_told(&mut self) -> Vec<(u64, Told)> {
        std::mem::take(&mut self.guests.told)
    }

    // Actions of external clients.

    pub fn guest_dials(&mut self, guest: usize, line: u64, to: usize) {
        let in_us = self.network.latency(&mut self.random);
        self.guests.lines.insert(line, Line { guest, link: None });
        self.after(in_us, Event::GuestDial { line, to });
    }

    pub fn guest_sends(&mut self, line: u64, bytes: Vec<u8>) {
        let Some(Line { guest, link: Some(link) }) = self.guests.lines.get(&line) else { return };
        let (end, link) = (self.guest_end(*guest), *link);
        self.transmit(end, link, bytes);
    }

    pub fn guest_hangs_up(&mut self, line: u64) {
        let Some(Line { guest, link }) = self.guests.lines.remove(&line) else { return };
        if let Some(link) = link {
            self.close(self.guest_end(guest), link);
        }
    }

    /// Resets all connections of an external client.
    pub fn reset_guest(&mut self, guest: usize) {
        let lines = self.guests.lines.iter();
        let open = lines.filter(|(_, line)| line.guest == guest && line.link.is_some());
        let open: Vec<u64> = open.map(|(number, _)| *number).collect();
        for line in open {
            self.guest_hangs_up(line);
            self.guests.told.push((line, Told::End));
        }
    }

    /// Cuts an external client off from all servers, until the cuts are removed.
    pub fn cut_off_guest(&mut self, guest: usize) {
        let (node, _) = self.guest_end(guest);
        self.network.isolate(node, self.nodes.len());
    }

    // Events of their connections.

    pub(super) fn on_guest_dial(&mut self, line: u64, to: usize) {
        let guest = self.guests.lines.get(&line).map(|line| line.guest);
        let end = self.guest_end(guest.unwrap_or(0));
        let (link, in_us) = self.connect(end, to, guest.is_some());
        self.after(in_us, Event::GuestDialed { line, link });
        if let (Some(link), Some(guest)) = (link, guest) {
            self.attach(to, link, [10, 0, 1, guest as u8]);
        }
    }

    pub(super) fn on_guest_dialed(&mut self, line: u64, link: Option<LinkId>) {
        let Some(guest) = self.guests.lines.get(&line).map(|line| line.guest) else {
            // The program has closed the line in the meantime. External clients have a single boot,
            // number 0.
            let node = link
                .and_then(|link| self.network.links.get(&link)?.ends.first().map(|end| end.node));
            if let (Some(link), Some(node)) = (link, node) {
                self.close((node, 0), link);
            }
            return;
        };
        let end = self.guest_end(guest);
        let link = link.filter(|link| self.network.side(*link, end.0, end.1).is_some());
        match link {
            Some(link) => {
                self.guests.lines.insert(line, Line { guest, link: Some(link) });
                self.guests.told.push((line, Told::Open));
            }
            None => {
                self.guests.lines.remove(&line);
                self.guests.told.push((line, Told::Refused));
            }
        }
    }

    pub(super) fn on_guest_bytes(&mut self, link: LinkId, bytes: &[u8]) {
        if let Some(line) = self.guests.line_of(link) {
            self.guests.told.push((line, Told::Bytes(bytes.to_vec())));
        }
    }

    pub(super) fn on_guest_lost(&mut self, link: LinkId) {
        if let Some(line) = self.guests.line_of(link) {
            self.guests.lines.remove(&line);
            self.guests.told.push((line, Told::End));
        }
    }
}
