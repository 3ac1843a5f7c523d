//! The client connections of a server, as its I/O threads serve them.

use ironkeeper_engine::Input;
use ironkeeper_engine::conn::{Conn, Next, Received};
use ironkeeper_engine::database::Hasher;
use ironkeeper_zab::LinkId;

use super::node::Attached;
use super::world::{Event, World};

/// The maximal time until an I/O thread serves a connection.
const SERVICE_US_MAX: u64 = 200;

impl World {
    /// Handles a client's connection attempt at a server.
    pub(super) fn on_client_dial(&mut self, client: usize, attempt: u64, to: usize) {
        let from = self.clients[client].node;
        let is_wanted = self.clients[client].is_dialing(attempt);
        let (link, in_us) = self.connect((from, 0), to, is_wanted);
        self.after(in_us, Event::ClientDialed { client, attempt, link });
        if let Some(link) = link {
            self.attach(to, link, [10, 0, 0, client as u8]);
        }
    }

    /// Creates the connection at a server that has accepted it.
    pub(super) fn attach(&mut self, to: usize, link: LinkId, address: [u8; 4]) {
        let now = self.nodes[to].now(self.now_us());
        let address = (address, 4000).into();
        let conn = Conn::new(link.0, link.0, address, now, Hasher::with_seed(self.seed));
        if let Some(process) = &mut self.nodes[to].process {
            let attached = Attached { conn, unread: Vec::new(), is_planned: false };
            process.conns.insert(link, attached);
        }
    }

    /// Handles bytes of a client at a server.
    pub(super) fn on_request(&mut self, node: usize, link: LinkId, bytes: &[u8]) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(attached) = process.conns.get_mut(&link) else { return };
        attached.unread.extend_from_slice(bytes);
        self.receive(node, link);
        self.send_answers(node, link);
    }

    /// Schedules the service of a connection that has output or may continue.
    pub(super) fn plan_service(&mut self, node: usize, link: LinkId) {
        let boot = self.nodes[node].boot;
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(attached) = process.conns.get_mut(&link) else { return };
        if !std::mem::replace(&mut attached.is_planned, true) {
            let in_us = self.random.below(SERVICE_US_MAX);
            self.after(in_us, Event::Serve { node, boot, link });
        }
    }

    pub(super) fn on_serve(&mut self, node: usize, link: LinkId) {
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(attached) = process.conns.get_mut(&link) else { return };
        attached.is_planned = false;
        self.send_answers(node, link);
        self.receive(node, link);
        self.send_answers(node, link);
    }

    fn receive(&mut self, node: usize, link: LinkId) {
        let now = self.nodes[node].now(self.now_us());
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(attached) = process.conns.get_mut(&link) else { return };
        if attached.unread.is_empty() {
            return;
        }
        let mut submits = Vec::new();
        let received = loop {
            let received = attached.conn.receive(now, &process.db, &attached.unread, &mut submits);
            match received {
                // No other connection is waiting at this moment, so the connection continues.
                Ok(Received { consumed, next: Next::Yield }) => {
                    attached.unread.drain(..consumed);
                }
                received => break received,
            }
        };
        process.inbox.extend(submits.into_iter().map(Input::Submit));
        match received {
            Ok(received) => drop(attached.unread.drain(..received.consumed)),
            Err(reason) => {
                self.say(|| format!("{} closes link {}: {reason}", node + 1, link.0));
                return self.end_connection(node, link);
            }
        }
        self.run_engine(node);
    }

    fn send_answers(&mut self, node: usize, link: LinkId) {
        let boot = self.nodes[node].boot;
        let now = self.nodes[node].now(self.now_us());
        loop {
            let Some(process) = &mut self.nodes[node].process else { return };
            let Some(attached) = process.conns.get_mut(&link) else { return };
            while attached.conn.has_ready_reads() {
                attached.conn.serve_lane(now, &process.db);
            }
            let mut tail = Vec::new();
            let outgoing = attached.conn.take_output(&mut tail);
            let mut bytes: Vec<u8> = outgoing.pieces.iter().flatten().copied().collect();
            bytes.append(&mut tail);
            let nothing = bytes.is_empty();
            if !nothing {
                self.transmit((node, boot), link, bytes);
            }
            if let Some(reason) = outgoing.close {
                self.say(|| format!("{} closes link {}: {reason}", node + 1, link.0));
                return self.end_connection(node, link);
            }
            if nothing {
                return;
            }
        }
    }

    fn end_connection(&mut self, node: usize, link: LinkId) {
        self.close((node, self.nodes[node].boot), link);
        self.disconnect(node, link);
    }

    /// Removes a connection. Its session remains.
    pub(super) fn disconnect(&mut self, node: usize, link: LinkId) {
        let now = self.nodes[node].now(self.now_us());
        let Some(process) = &mut self.nodes[node].process else { return };
        let Some(attached) = process.conns.remove(&link) else { return };
        let mut submits = Vec::new();
        attached.conn.disconnect(now, &process.db, &mut submits).remove_all(&process.db);
        self.input(node, submits.into_iter().map(Input::Submit));
    }
}
