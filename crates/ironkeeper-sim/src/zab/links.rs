//! Links between nodes, and their messages.

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::{Notification, Packet, ServerId};
use ironkeeper_zab::{Input, LinkId, Port};

use super::state::State;
use super::world::{Event, World};
use crate::network::{Cargo, Carried, News, Transit};

/// A message between servers.
#[derive(Clone, Debug)]
pub enum Message {
    Opening(Opening),
    Notification(Notification),
    Packet(Packet),
    Snapshot(State),
}

impl Cargo for Message {
    fn is_large(&self) -> bool {
        matches!(self, Message::Snapshot(_))
    }
}

impl World {
    pub(super) fn dial(&mut self, from: usize, peer: ServerId, port: Port) {
        let boot = self.nodes[from].boot;
        let in_us = self.latency();
        match self.nodes.iter().position(|node| node.id == peer) {
            Some(to) => self.after(in_us, Event::Dial { from, boot, to, port }),
            None => {
                self.after(in_us, Event::Dialed { node: from, boot, peer, port, link: None });
            }
        }
    }

    pub(super) fn on_dial(&mut self, from: usize, boot: u64, to: usize, port: Port) {
        let peer = self.nodes[to].id;
        let cut = self.network.is_cut(from, to) || self.network.is_cut(to, from);
        let up = self.nodes[to].process.is_some();
        let mut in_us = self.latency();
        let mut link = None;
        if cut {
            // No reply arrives, so the dialling side times out.
            in_us += self.random.between(200_000, 1_500_000);
        } else if up && self.is_alive(from, boot) {
            let target = (to, self.nodes[to].boot);
            let id = self.network.open((from, boot), target, self.now_us());
            link = Some(id);
            let now_us = self.now_us();
            // The dialling side learns of the connection before any message on it arrives.
            if let Some(link) = self.network.links.get_mut(&id) {
                link.ends[0].last_us = now_us + in_us;
            }
        }
        self.after(in_us, Event::Dialed { node: from, boot, peer, port, link });
        if port == Port::Quorum
            && let Some(link) = link
        {
            self.input(to, Input::Accepted { link });
        }
    }

    fn latency(&mut self) -> u64 {
        self.network.latency(&mut self.random)
    }

    pub(super) fn transmit(&mut self, node: usize, link: LinkId, message: Message) {
        let (now_us, boot) = (self.now_us(), self.nodes[node].boot);
        self.network.transmit(&mut self.random, now_us, (node, boot), link, message);
        self.plan_transits();
    }

    /// Schedules the events of the network.
    pub(super) fn plan_transits(&mut self) {
        for (in_us, transit) in std::mem::take(&mut self.network.due) {
            self.after(in_us, Event::Transit(transit));
        }
    }

    pub(super) fn on_transit(&mut self, transit: Transit<Message>) {
        let now_us = self.now_us();
        let news = self.network.happen(&mut self.random, now_us, transit);
        self.plan_transits();
        for news in news {
            match news {
                News::Arrived { link, side, carried } => self.take_in(link, side, carried),
                News::GaveUp { node, link } => self.lost(node, link),
            }
        }
    }

    fn take_in(&mut self, id: LinkId, side: usize, carried: Carried<Message>) {
        let Some(link) = self.network.links.get(&id) else { return };
        let (node, boot, open) = (link.ends[side].node, link.ends[side].boot, link.ends[side].open);
        if !open || !self.is_alive(node, boot) {
            // A running machine that does not know the connection resets it.
            let up = self.nodes[node].process.is_some();
            if up && !matches!(carried, Carried::End) {
                let now_us = self.now_us();
                self.network.send(&mut self.random, now_us, id, 1 - side, Carried::End);
                self.plan_transits();
            }
            return;
        }
        let message = match carried {
            Carried::Message(message) => message,
            Carried::End => {
                self.network.drop_end(id, side);
                return self.lost(node, id);
            }
        };
        match message {
            Message::Opening(opening) => {
                self.input(node, Input::Opened { link: id, opening, from_its_address: true });
            }
            Message::Notification(notification) => {
                let from = self.network.links.get(&id).map(|link| link.ends[1 - side].node + 1);
                self.say(|| {
                    let Notification { state, leader, round, peer_epoch, zxid, .. } = &notification;
                    let from = from.unwrap_or(0);
                    format!(
                        "{} hears {from}: {state:?}, votes for {leader} ({zxid} of {peer_epoch}), \
                         round {round}",
                        node + 1
                    )
                });
                self.input(node, Input::Notification { link: id, notification });
            }
            Message::Packet(packet) => {
                self.say(|| format!("link {} to {}: {packet:?}", id.0, node + 1));
                self.input(node, Input::Packet { link: id, packet });
            }
            Message::Snapshot(state) => {
                if let Some(process) = &mut self.nodes[node].process {
                    process.received = Some((id, state));
                }
                self.input(node, Input::SnapshotReceived { link: id });
            }
        }
    }

    /// Notifies a node that a connection has ended.
    pub(super) fn lost(&mut self, node: usize, link: LinkId) {
        if let Some(process) = &mut self.nodes[node].process
            && process.received.is_some_and(|(from, _)| from == link)
        {
            process.received = None;
        }
        self.input(node, Input::Closed { link });
    }

    pub(super) fn close(&mut self, link: LinkId, side: usize) {
        let now_us = self.now_us();
        self.network.close(&mut self.random, now_us, link, side);
        self.plan_transits();
    }

    pub(super) fn heal_cuts(&mut self) {
        let now_us = self.now_us();
        self.network.heal_all(&mut self.random, now_us);
        self.plan_transits();
    }
}
