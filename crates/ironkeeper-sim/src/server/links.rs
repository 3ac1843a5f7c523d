//! Links between servers: bytes in the wire format, in pieces of any size.

use bytes::Bytes;
use ironkeeper_engine::Input;
use ironkeeper_engine::snapshot::Slice;
use ironkeeper_node::{Expect, Intake};
use ironkeeper_proto::ServerId;
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::quorum_packet::Sender;
use ironkeeper_simdisk::SimDisk;
use ironkeeper_zab::{Input as ZabInput, LinkId, Port};

use super::node::{Peer, Piece};
use super::world::{Event, World};
use crate::network::{Cargo, Carried, News, Transit};

/// Messages larger than this take longer.
const LARGE_BYTES: usize = 4 << 10;

/// Some bytes of a connection.
#[derive(Clone, Debug)]
pub struct Parcel(pub Bytes);

impl Cargo for Parcel {
    fn is_large(&self) -> bool {
        self.0.len() > LARGE_BYTES
    }
}

impl World {
    // Opening of links.

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
        let alive = self.is_alive(from, boot);
        let (link, in_us) = self.connect((from, boot), to, alive);
        self.after(in_us, Event::Dialed { node: from, boot, peer, port, link });
        let Some(link) = link else { return };
        match port {
            Port::Election => self.add_peer(to, link, Expect::Opening),
            Port::Quorum => {
                self.add_peer(to, link, Expect::Packets(Sender::Learner));
                self.input(to, [Input::Peer(ZabInput::Accepted { link })]);
            }
        }
    }

    /// Handles a connection attempt at a server. Returns the link, if it was accepted, and the time
    /// until the dialling side learns the result.
    pub(super) fn connect(
        &mut self,
        from: (usize, u64),
        to: usize,
        is_wanted: bool,
    ) -> (Option<LinkId>, u64) {
        let cut = self.network.is_cut(from.0, to) || self.network.is_cut(to, from.0);
        let in_us = self.latency();
        if cut {
            // No reply arrives, so the dialling side times out.
            return (None, in_us + self.random.between(200_000, 1_500_000));
        }
        if self.nodes[to].process.is_none() || !is_wanted {
            return (None, in_us);
        }
        let (target, now_us) = ((to, self.nodes[to].boot), self.now_us());
        let id = self.network.open(from, target, now_us);
        // The dialling side learns of the connection before any message on it arrives.
        if let Some(link) = self.network.links.get_mut(&id) {
            link.ends[0].last_us = now_us + in_us;
        }
        (Some(id), in_us)
    }

    pub(super) fn on_dialed(
        &mut self,
        node: usize,
        peer: ServerId,
        port: Port,
        link: Option<LinkId>,
    ) {
        let (boot, id) = (self.nodes[node].boot, self.nodes[node].id);
        // A connection that was reset in the meantime is treated as failed.
        let link = link.filter(|link| self.network.side(*link, node, boot).is_some());
        if let Some(link) = link {
            match port {
                Port::Election => {
                    self.add_peer(node, link, Expect::Notifications);
                    let opening = Opening { from: id, addresses: vec![format!("h{id}:3888")] };
                    self.tell_peer(node, link, |out| opening.encode(out));
                }
                Port::Quorum => self.add_peer(node, link, Expect::Packets(Sender::Leader)),
            }
        }
        self.input(node, [Input::Peer(ZabInput::Dialed { peer, port, link })]);
    }

    fn add_peer(&mut self, node: usize, link: LinkId, expect: Expect<SimDisk>) {
        let intake = Intake::new(expect, self.plan.store.field_max);
        if let Some(process) = &mut self.nodes[node].process {
            process.peers.insert(link, Peer { intake, outgoing: Default::default() });
        }
    }

    // Sending.

    fn latency(&mut self) -> u64 {
        self.network.latency(&mut self.random)
    }

    /// Sends bytes, sometimes in two pieces.
    pub(super) fn transmit(&mut self, (node, boot): (usize, u64), link: LinkId, bytes: Vec<u8>) {
        let now_us = self.now_us();
        let mut bytes = Bytes::from(bytes);
        if bytes.len() > 1 && self.random.chance(100) {
            let at = self.random.between(1, bytes.len() as u64 - 1) as usize;
            let parcel = Parcel(bytes.split_to(at));
            self.network.transmit(&mut self.random, now_us, (node, boot), link, parcel);
        }
        self.network.transmit(&mut self.random, now_us, (node, boot), link, Parcel(bytes));
        self.plan_transits();
    }

    /// Schedules the events of the network.
    pub(super) fn plan_transits(&mut self) {
        for (in_us, transit) in std::mem::take(&mut self.network.due) {
            self.after(in_us, Event::Transit(transit));
        }
    }

    /// Sends bytes to a peer, after a snapshot that is being sent to it.
    pub(super) fn tell_peer(
        &mut self,
        node: usize,
        link: LinkId,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(peer) = process.peers.get_mut(&link) else { return };
        let mut bytes = Vec::new();
        encode(&mut bytes);
        match peer.outgoing.is_empty() {
            true => self.transmit((node, boot), link, bytes),
            false => peer.outgoing.push_back(Piece::Bytes(bytes)),
        }
    }

    /// Sends the next snapshot and the bytes that are queued after it.
    pub(super) fn on_send_tree(&mut self, node: usize, link: LinkId) {
        let boot = self.nodes[node].boot;
        while let Some(process) = &mut self.nodes[node].process
            && let Some(peer) = process.peers.get_mut(&link)
            && let Some(piece) = peer.outgoing.pop_front()
        {
            let mut job = match piece {
                Piece::Bytes(bytes) => {
                    self.transmit((node, boot), link, bytes);
                    continue;
                }
                Piece::Tree(job) => job,
            };
            let mut bytes = Vec::new();
            job.encode_learner_head(&mut bytes);
            let slice = loop {
                match job.next_slice(&process.db, &mut bytes) {
                    Slice::More => {}
                    slice => break slice,
                }
            };
            job.encode_learner_tail(&mut bytes);
            process.inbox.push(Input::SnapshotSent(job.into_walk()));
            if slice == Slice::Lost {
                self.hang_up(node, link);
                self.input(node, [Input::Peer(ZabInput::Closed { link })]);
                return;
            }
            self.transmit((node, boot), link, bytes);
        }
        self.run_engine(node);
    }

    // Receiving.

    pub(super) fn on_transit(&mut self, transit: Transit<Parcel>) {
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

    fn take_in(&mut self, id: LinkId, side: usize, carried: Carried<Parcel>) {
        let Some(link) = self.network.links.get(&id) else { return };
        let (node, boot, open) = (link.ends[side].node, link.ends[side].boot, link.ends[side].open);
        let client = node.checked_sub(self.nodes.len());
        if !open || client.is_none() && !self.is_alive(node, boot) {
            // A running machine that does not know the connection resets it.
            let up = client.is_some() || self.nodes[node].process.is_some();
            if up && !matches!(carried, Carried::End) {
                let now_us = self.now_us();
                self.network.send(&mut self.random, now_us, id, 1 - side, Carried::End);
                self.plan_transits();
            }
            return;
        }
        match (carried, client) {
            (Carried::End, _) => {
                self.network.drop_end(id, side);
                self.lost(node, id);
            }
            (Carried::Message(Parcel(bytes)), Some(_)) if self.is_guest(node) => {
                self.on_guest_bytes(id, &bytes);
            }
            (Carried::Message(Parcel(bytes)), Some(client)) => self.on_answer(client, id, &bytes),
            (Carried::Message(Parcel(bytes)), None) => {
                let Some(process) = &mut self.nodes[node].process else { return };
                if let Some(peer) = process.peers.get_mut(&id) {
                    peer.intake.unread.extend_from_slice(&bytes);
                    self.decode(node, id);
                    self.run_engine(node);
                } else {
                    self.on_request(node, id, &bytes);
                }
            }
        }
    }

    /// Decodes the bytes of a peer into inputs.
    fn decode(&mut self, node: usize, link: LinkId) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(peer) = process.peers.get_mut(&link) else { return };
        let mut inputs = Vec::new();
        let outcome = peer.intake.decode(link, &mut inputs);
        if let Some(received) = peer.intake.received.take() {
            process.received = Some((link, received));
        }
        process.inbox.extend(inputs.into_iter().map(Input::Peer));
        if let Err(broken) = outcome {
            self.on_broken(node, link, &broken.to_string());
        }
    }

    /// Starts to read the following bytes of a peer as a snapshot.
    pub(super) fn receive_tree(&mut self, node: usize, link: LinkId) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(peer) = process.peers.get_mut(&link) else { return };
        match peer.intake.receive_tree(&process.store) {
            Ok(()) => self.decode(node, link),
            Err(broken) => self.on_broken(node, link, &broken.to_string()),
        }
    }

    /// Closes a link whose bytes cannot be processed. Only a failing disk justifies this.
    fn on_broken(&mut self, node: usize, link: LinkId, why: &str) {
        if !self.nodes[node].disk_may_fail() {
            self.fail(Err(format!("links: server {} did not understand: {why}", node + 1)));
        }
        self.hang_up(node, link);
        if let Some(process) = &mut self.nodes[node].process {
            process.inbox.push(Input::Peer(ZabInput::Closed { link }));
        }
    }

    // Closing of links.

    /// Notifies a node that a connection has ended.
    pub(super) fn lost(&mut self, node: usize, link: LinkId) {
        if self.is_guest(node) {
            return self.on_guest_lost(link);
        }
        if let Some(client) = node.checked_sub(self.nodes.len()) {
            return self.on_connection_lost(client, link);
        }
        let Some(process) = &mut self.nodes[node].process else { return };
        if process.peers.contains_key(&link) {
            self.forget_peer(node, link);
            self.input(node, [Input::Peer(ZabInput::Closed { link })]);
        } else {
            self.disconnect(node, link);
        }
    }

    /// Closes a server's link to another server.
    pub(super) fn hang_up(&mut self, node: usize, link: LinkId) {
        self.forget_peer(node, link);
        self.close((node, self.nodes[node].boot), link);
    }

    /// Removes a link and returns the walks of unsent snapshots to the engine.
    fn forget_peer(&mut self, node: usize, link: LinkId) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(peer) = process.peers.remove(&link) else { return };
        for piece in peer.outgoing {
            if let Piece::Tree(job) = piece {
                process.inbox.push(Input::SnapshotSent(job.into_walk()));
            }
        }
    }

    /// Closes the end of a link that belongs to a node and boot number, if there is one.
    pub(super) fn close(&mut self, (node, boot): (usize, u64), link: LinkId) {
        let now_us = self.now_us();
        if let Some(side) = self.network.side(link, node, boot) {
            self.network.close(&mut self.random, now_us, link, side);
            self.plan_transits();
        }
    }
}
