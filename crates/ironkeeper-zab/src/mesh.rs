//! The links between the election ports of all servers: which server dials, and which of two links
//! stays.
//!
//! Any two servers need one link. Both may dial; the link opened by the server with the larger id
//! stays. A server with the smaller id that wants to send a vote dials, sends its opening and
//! closes the link, whereupon the other server dials back.
//!
//! Any program that reaches the port can claim to be a member with a larger id. While there is a
//! link with that member, only a connection from the member's own address replaces it. A connection
//! from another address is rejected, and the member's address is dialed: a member that runs there
//! dials back. If the address cannot be reached, or accepts dials repeatedly and no connection
//! comes from it, the old link is closed, so that the next connection is accepted.

use std::collections::BTreeMap;

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::{Notification, ServerId};

use crate::{Hangup, LinkId, LinkOp, Output, Port};

#[derive(Debug)]
pub(crate) struct Mesh {
    me: ServerId,
    /// A non-member is added only while there are fewer than 2 * [`STRANGERS_MAX`] entries.
    peers: BTreeMap<ServerId, Peer>,
}

/// The number of entries from which on a new non-member replaces a server without a link.
const STRANGERS_MAX: usize = 64;

#[derive(Debug, Default)]
struct Peer {
    link: Option<LinkId>,
    dialing: bool,
    /// The address at which the peer can be dialed, from its opening.
    address: Option<String>,
    /// Waits for a link. A newer vote replaces it: only the latest vote counts.
    unsent: Option<Notification>,
    /// Sent again on a new link, because it may not have arrived on the old one.
    last_sent: Option<Notification>,
    /// The dial in progress checks whether the present link is alive.
    is_doubted: bool,
    /// The number of such dials, since the last connection from the member's address.
    doubts: u32,
}

/// After this number of dials without a connection from the member's address, the member has
/// another address now and its old link is dead.
const DOUBTS_MAX: u32 = 3;

impl Mesh {
    pub(crate) fn new(me: ServerId) -> Mesh {
        Mesh { me, peers: BTreeMap::new() }
    }

    /// Returns the server at the other end of the link.
    pub(crate) fn peer_of(&self, link: LinkId) -> Option<ServerId> {
        self.peers.iter().find(|(_, peer)| peer.link == Some(link)).map(|(id, _)| *id)
    }

    /// Returns whether there is a link with this server.
    pub(crate) fn is_linked(&self, id: ServerId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.link.is_some())
    }

    pub(crate) fn send(&mut self, to: ServerId, vote: Notification, out: &mut Vec<Output>) {
        debug_assert_ne!(to, self.me);
        let peer = self.peers.entry(to).or_default();
        match peer.link {
            Some(link) => {
                peer.last_sent = Some(vote.clone());
                out.push(Output::Link(LinkOp::Notify { link, notification: Box::new(vote) }));
            }
            None => {
                peer.unsent = Some(vote);
                peer.dial(to, out);
            }
        }
    }

    /// Handles the end of a dial. On success our opening has been sent. Returns whether the link is
    /// kept.
    pub(crate) fn on_dialed(
        &mut self,
        to: ServerId,
        link: Option<LinkId>,
        out: &mut Vec<Output>,
    ) -> bool {
        let peer = self.peers.entry(to).or_default();
        peer.dialing = false;
        let is_doubted = std::mem::take(&mut peer.is_doubted);
        peer.doubts += u32::from(is_doubted);
        let is_dead = is_doubted && (link.is_none() || peer.doubts >= DOUBTS_MAX);
        if is_dead && let Some(old) = peer.link.take() {
            peer.doubts = 0;
            out.push(Output::Link(LinkOp::Hangup { link: old, reason: Hangup::Replaced }));
        }
        let Some(link) = link else { return false };
        if to > self.me {
            // The opening makes the peer dial us.
            out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::LargerIdDials }));
            return false;
        }
        self.adopt(to, link, out);
        true
    }

    /// Handles the opening of a server that dialed us. Returns whether the link is kept.
    pub(crate) fn on_opened(
        &mut self,
        link: LinkId,
        opening: &Opening,
        is_member: bool,
        from_its_address: bool,
        out: &mut Vec<Output>,
    ) -> bool {
        let from = opening.from;
        if from == self.me {
            out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::OwnId }));
            return false;
        }
        if !is_member && !self.peers.contains_key(&from) {
            // A member is always accepted. A non-member replaces a server without a link, if there
            // is one, and is rejected if there are too many entries.
            let strangers: Vec<ServerId> = self.peers.keys().copied().collect();
            if strangers.len() >= STRANGERS_MAX
                && let Some(idle) = strangers.into_iter().find(|id| self.peers[id].link.is_none())
            {
                self.peers.remove(&idle);
            }
            if self.peers.len() >= 2 * STRANGERS_MAX {
                out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::TooManyStrangers }));
                return false;
            }
        }
        let peer = self.peers.entry(from).or_default();
        if from > self.me && peer.link.is_some() && is_member && !from_its_address {
            out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::OtherAddress }));
            peer.is_doubted = true;
            peer.dial(from, out);
            return false;
        }
        if !(is_member && peer.link.is_some()) {
            peer.address = opening.dialable().next().map(str::to_owned);
        }
        if from < self.me {
            // The present link stays until the dial has succeeded: any server can claim this id,
            // but the dial goes to the address in the membership.
            out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::LargerIdDials }));
            peer.dial(from, out);
            return false;
        }
        self.adopt(from, link, out);
        true
    }

    /// Removes the link and returns its server, if it was a link of the mesh.
    pub(crate) fn on_closed(&mut self, link: LinkId) -> Option<ServerId> {
        let (id, peer) = self.peers.iter_mut().find(|(_, peer)| peer.link == Some(link))?;
        peer.link = None;
        Some(*id)
    }

    /// Closes all links after a change of the membership.
    pub(crate) fn restart(&mut self, out: &mut Vec<Output>) {
        for peer in std::mem::take(&mut self.peers).into_values() {
            if let Some(link) = peer.link {
                out.push(Output::Link(LinkOp::Hangup { link, reason: Hangup::Replaced }));
            }
        }
    }

    fn adopt(&mut self, id: ServerId, link: LinkId, out: &mut Vec<Output>) {
        let peer = self.peers.entry(id).or_default();
        (peer.is_doubted, peer.doubts) = (false, 0);
        if let Some(old) = peer.link.replace(link)
            && old != link
        {
            out.push(Output::Link(LinkOp::Hangup { link: old, reason: Hangup::Replaced }));
        }
        if let Some(vote) = peer.unsent.take().or_else(|| peer.last_sent.clone()) {
            peer.last_sent = Some(vote.clone());
            out.push(Output::Link(LinkOp::Notify { link, notification: Box::new(vote) }));
        }
    }
}

impl Peer {
    /// Dials the peer unless a dial is in progress.
    fn dial(&mut self, id: ServerId, out: &mut Vec<Output>) {
        if !self.dialing {
            self.dialing = true;
            // While there is a link, the address from an opening is not trusted.
            let hint = self.address.clone().filter(|_| self.link.is_none()).map(Box::new);
            out.push(Output::Link(LinkOp::Dial { peer: id, port: Port::Election, hint }));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::election::PeerState;
    use ironkeeper_proto::{Epoch, Zxid};

    fn vote(round: i64) -> Notification {
        Notification {
            state: PeerState::Looking,
            leader: ServerId(1),
            zxid: Zxid(0),
            round,
            peer_epoch: Epoch(0),
            format: 2,
            config: bytes::Bytes::new(),
        }
    }

    fn opening(from: i64) -> Opening {
        Opening { from: ServerId(from), addresses: vec!["h:1".to_owned()] }
    }

    /// Formats and removes the outputs.
    fn said(out: &mut Vec<Output>) -> String {
        let word = |output: Output| match output {
            Output::Link(LinkOp::Dial { peer, .. }) => format!("dial {peer}"),
            Output::Link(LinkOp::Hangup { link, .. }) => format!("hangup {}", link.0),
            Output::Link(LinkOp::Notify { link, notification }) => {
                format!("vote {} on {}", notification.round, link.0)
            }
            other => panic!("{other:?}"),
        };
        out.drain(..).map(word).collect::<Vec<_>>().join(", ")
    }

    /// ZOOKEEPER-880, 2164.
    #[test]
    fn the_connection_of_the_larger_id_survives() {
        let mut mesh = Mesh::new(ServerId(2));
        let mut out = Vec::new();
        // To a larger id: dial, send the opening, close, be dialed.
        mesh.send(ServerId(3), vote(1), &mut out);
        mesh.send(ServerId(3), vote(2), &mut out);
        assert_eq!(said(&mut out), "dial 3", "one dial at a time");
        mesh.on_dialed(ServerId(3), Some(LinkId(10)), &mut out);
        assert_eq!(said(&mut out), "hangup 10");
        mesh.on_opened(LinkId(11), &opening(3), true, true, &mut out);
        assert_eq!(said(&mut out), "vote 2 on 11", "the newest vote alone");
        // From a smaller id: dial back.
        mesh.on_opened(LinkId(12), &opening(1), true, true, &mut out);
        assert_eq!(said(&mut out), "hangup 12, dial 1");
        mesh.on_dialed(ServerId(1), Some(LinkId(13)), &mut out);
        assert_eq!(said(&mut out), "", "nothing was to be said yet");
        mesh.send(ServerId(1), vote(3), &mut out);
        assert_eq!(said(&mut out), "vote 3 on 13");
        // A second opening: the peer has restarted, or another server has its id.
        mesh.on_opened(LinkId(14), &opening(1), true, true, &mut out);
        assert_eq!(said(&mut out), "hangup 14, dial 1");
        mesh.send(ServerId(1), vote(4), &mut out);
        assert_eq!(said(&mut out), "vote 4 on 13");
        mesh.on_dialed(ServerId(1), None, &mut out);
        assert_eq!(mesh.peer_of(LinkId(13)), Some(ServerId(1)));
        mesh.on_opened(LinkId(15), &opening(1), true, true, &mut out);
        mesh.on_dialed(ServerId(1), Some(LinkId(16)), &mut out);
        assert_eq!(said(&mut out), "hangup 15, dial 1, hangup 13, vote 4 on 16");
    }

    /// ZOOKEEPER-880, 2164.
    #[test]
    fn a_new_connection_replaces_the_old_one_and_hears_the_last_vote_again() {
        let mut mesh = Mesh::new(ServerId(2));
        let mut out = Vec::new();
        mesh.on_opened(LinkId(1), &opening(3), true, true, &mut out);
        mesh.send(ServerId(3), vote(4), &mut out);
        out.clear();
        mesh.on_opened(LinkId(2), &opening(3), true, true, &mut out);
        assert_eq!(said(&mut out), "hangup 1, vote 4 on 2");
        assert_eq!(mesh.on_closed(LinkId(1)), None, "the old one is not ours any more");
        assert_eq!(mesh.on_closed(LinkId(2)), Some(ServerId(3)));
        mesh.send(ServerId(3), vote(5), &mut out);
        assert_eq!(said(&mut out), "dial 3");
        mesh.on_dialed(ServerId(3), None, &mut out);
        mesh.send(ServerId(3), vote(5), &mut out);
        assert_eq!(said(&mut out), "dial 3", "a failed dial is not for ever");
    }

    #[test]
    fn a_connection_from_elsewhere_takes_the_place_of_none_that_is_alive() {
        let mut mesh = Mesh::new(ServerId(2));
        let mut out = Vec::new();
        // Without a link it is accepted: an address can have many forms.
        assert!(mesh.on_opened(LinkId(1), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "");
        assert!(!mesh.on_opened(LinkId(2), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "hangup 2, dial 3");
        assert!(!mesh.on_opened(LinkId(3), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "hangup 3", "one dial at a time");
        // The member accepts the dial at its address, and dials.
        mesh.on_dialed(ServerId(3), Some(LinkId(4)), &mut out);
        assert_eq!(said(&mut out), "hangup 4");
        assert_eq!(mesh.peer_of(LinkId(1)), Some(ServerId(3)));
        assert!(mesh.on_opened(LinkId(5), &opening(3), true, true, &mut out));
        assert_eq!(said(&mut out), "hangup 1");
        // The member's address cannot be reached: the old link is dead.
        assert!(!mesh.on_opened(LinkId(6), &opening(3), true, false, &mut out));
        mesh.on_dialed(ServerId(3), None, &mut out);
        assert_eq!(said(&mut out), "hangup 6, dial 3, hangup 5");
        assert!(mesh.on_opened(LinkId(7), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "");
    }

    /// For instance a member whose configured address is not the source of its own connections.
    #[test]
    fn a_member_that_comes_back_from_an_unknown_address_is_taken_in_after_a_few_dials() {
        let mut mesh = Mesh::new(ServerId(2));
        let mut out = Vec::new();
        assert!(mesh.on_opened(LinkId(1), &opening(3), true, true, &mut out));
        for at in 0..i64::from(DOUBTS_MAX) {
            let (opened, dialed) = (LinkId(10 + at as u64), LinkId(20 + at as u64));
            assert!(!mesh.on_opened(opened, &opening(3), true, false, &mut out));
            mesh.on_dialed(ServerId(3), Some(dialed), &mut out);
        }
        assert!(said(&mut out).contains("hangup 1,"), "the old connection is closed");
        assert!(mesh.on_opened(LinkId(30), &opening(3), true, false, &mut out));
        // A connection from the member's own address resets the count.
        for _ in 0..2 * DOUBTS_MAX {
            assert!(!mesh.on_opened(LinkId(31), &opening(3), true, false, &mut out));
            mesh.on_dialed(ServerId(3), Some(LinkId(32)), &mut out);
            assert!(mesh.on_opened(LinkId(30), &opening(3), true, true, &mut out));
        }
        assert_eq!(mesh.peer_of(LinkId(30)), Some(ServerId(3)));
    }

    #[test]
    fn a_connected_member_is_dialled_where_the_list_has_it_and_not_where_an_opening_says() {
        let mut mesh = Mesh::new(ServerId(2));
        let mut out = Vec::new();
        let from_elsewhere =
            || Opening { from: ServerId(1), addresses: vec!["10.0.0.66:3888".into()] };
        let hinted = |out: &mut Vec<Output>| {
            let dials = out.drain(..).filter_map(|output| match output {
                Output::Link(LinkOp::Dial { hint, .. }) => Some(hint.map(|hint| *hint)),
                _ => None,
            });
            dials.collect::<Vec<_>>()
        };
        mesh.on_opened(LinkId(1), &opening(1), true, true, &mut out);
        mesh.on_dialed(ServerId(1), Some(LinkId(2)), &mut out);
        out.clear();
        mesh.on_opened(LinkId(3), &from_elsewhere(), true, false, &mut out);
        assert_eq!(hinted(&mut out), [None]);
        mesh.on_dialed(ServerId(1), None, &mut out);
        mesh.on_closed(LinkId(2));
        mesh.send(ServerId(1), vote(5), &mut out);
        assert!(!hinted(&mut out).contains(&Some("10.0.0.66:3888".to_owned())));
    }

    #[test]
    fn another_server_with_our_id_is_sent_away() {
        let mut mesh = Mesh::new(ServerId(2));
        let mut out = Vec::new();
        assert!(!mesh.on_opened(LinkId(1), &opening(2), true, true, &mut out));
        assert_eq!(said(&mut out), "hangup 1");
    }
}
