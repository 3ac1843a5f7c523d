//! Who dials whom on the election port, and which of two connections survives.
//!
//! Any two servers need one connection. Both may dial; the one opened by the server with the larger id
//! stays. A server with a smaller id that wants to speak opens one, says who it is and hangs up, which
//! makes the other dial back.
//!
//! Any program that reaches the port can say that it is a member with a larger id. While there is a
//! connection with that member, only one from the member's own address takes its place. Another one
//! is refused, and the member's address is dialled: a member that is there dials back. If the address
//! cannot be reached, or accepts dials again and again and no connection comes from it, the old
//! connection is closed, so that the next one is taken in.

use std::collections::BTreeMap;

use ironkeeper_proto::election::Opening;
use ironkeeper_proto::{Notification, ServerId};

use crate::{Hangup, LinkId, Output, Port};

#[derive(Debug)]
pub(crate) struct Mesh {
    me: ServerId,
    /// Bounded by the members and, for servers that are none yet, by [`STRANGERS_MAX`].
    peers: BTreeMap<ServerId, Peer>,
}

/// How many servers outside the configuration are remembered.
const STRANGERS_MAX: usize = 64;

#[derive(Debug, Default)]
struct Peer {
    link: Option<LinkId>,
    dialing: bool,
    /// Where the peer says it can be dialled.
    address: Option<String>,
    /// Waits for a connection. A newer one replaces it: only the latest vote counts.
    unsent: Option<Notification>,
    /// Said again on a new connection, because nobody knows whether it arrived on the old one.
    last_sent: Option<Notification>,
    /// Whether the connection is alive is found out by the dial that is under way.
    is_doubted: bool,
    /// Such dials that were accepted while no connection from the member's address came.
    doubts: u32,
}

/// A member that accepts so many dials, and does not dial from its address, has another address now,
/// and its old connection is dead.
const DOUBTS_MAX: u32 = 3;

impl Mesh {
    pub(crate) fn new(me: ServerId) -> Mesh {
        Mesh { me, peers: BTreeMap::new() }
    }

    /// Whose connection this is.
    pub(crate) fn peer_of(&self, link: LinkId) -> Option<ServerId> {
        self.peers.iter().find(|(_, peer)| peer.link == Some(link)).map(|(id, _)| *id)
    }

    /// Whether there is a connection with this server.
    pub(crate) fn is_linked(&self, id: ServerId) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.link.is_some())
    }

    pub(crate) fn send(&mut self, to: ServerId, vote: Notification, out: &mut Vec<Output>) {
        debug_assert_ne!(to, self.me);
        let peer = self.peers.entry(to).or_default();
        match peer.link {
            Some(link) => {
                peer.last_sent = Some(vote.clone());
                out.push(Output::Notify { link, notification: Box::new(vote) });
            }
            None => {
                peer.unsent = Some(vote);
                peer.dial(to, out);
            }
        }
    }

    /// A dial has ended. On success our opening has been sent.
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
            out.push(Output::Hangup { link: old, reason: Hangup::Replaced });
        }
        let Some(link) = link else { return false };
        if to > self.me {
            // Now it knows that we want to speak, and dials us.
            out.push(Output::Hangup { link, reason: Hangup::LargerIdDials });
            return false;
        }
        self.adopt(to, link, out);
        true
    }

    /// Somebody has dialled us and said who it is. Whether the connection is kept.
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
            out.push(Output::Hangup { link, reason: Hangup::OwnId });
            return false;
        }
        if !is_member && !self.peers.contains_key(&from) {
            // Members always have their place; strangers make room for each other.
            let strangers: Vec<ServerId> = self.peers.keys().copied().collect();
            if strangers.len() >= STRANGERS_MAX
                && let Some(idle) = strangers.into_iter().find(|id| self.peers[id].link.is_none())
            {
                self.peers.remove(&idle);
            }
            if self.peers.len() >= 2 * STRANGERS_MAX {
                out.push(Output::Hangup { link, reason: Hangup::TooManyStrangers });
                return false;
            }
        }
        let peer = self.peers.entry(from).or_default();
        if from > self.me && peer.link.is_some() && is_member && !from_its_address {
            out.push(Output::Hangup { link, reason: Hangup::OtherAddress });
            peer.is_doubted = true;
            peer.dial(from, out);
            return false;
        }
        if !(is_member && peer.link.is_some()) {
            peer.address = opening.dialable().next().map(str::to_owned);
        }
        if from < self.me {
            // A connection that is there stays until the dial has succeeded: any server can say
            // that it is this one, but the dial goes to the address that the members' list has.
            out.push(Output::Hangup { link, reason: Hangup::LargerIdDials });
            peer.dial(from, out);
            return false;
        }
        self.adopt(from, link, out);
        true
    }

    /// Whose connection it was, if it was one of ours.
    pub(crate) fn on_closed(&mut self, link: LinkId) -> Option<ServerId> {
        let (id, peer) = self.peers.iter_mut().find(|(_, peer)| peer.link == Some(link))?;
        peer.link = None;
        Some(*id)
    }

    /// Hangs up on everybody, as a change of the members asks for.
    pub(crate) fn restart(&mut self, out: &mut Vec<Output>) {
        for peer in std::mem::take(&mut self.peers).into_values() {
            if let Some(link) = peer.link {
                out.push(Output::Hangup { link, reason: Hangup::Replaced });
            }
        }
    }

    fn adopt(&mut self, id: ServerId, link: LinkId, out: &mut Vec<Output>) {
        let peer = self.peers.entry(id).or_default();
        (peer.is_doubted, peer.doubts) = (false, 0);
        if let Some(old) = peer.link.replace(link)
            && old != link
        {
            out.push(Output::Hangup { link: old, reason: Hangup::Replaced });
        }
        if let Some(vote) = peer.unsent.take().or_else(|| peer.last_sent.clone()) {
            peer.last_sent = Some(vote.clone());
            out.push(Output::Notify { link, notification: Box::new(vote) });
        }
    }
}

impl Peer {
    /// At most one dial is under way.
    fn dial(&mut self, id: ServerId, out: &mut Vec<Output>) {
        if !self.dialing {
            self.dialing = true;
            // With a connection there is no need to believe an address that came in an opening.
            let hint = self.address.clone().filter(|_| self.link.is_none()).map(Box::new);
            out.push(Output::Dial { peer: id, port: Port::Election, hint });
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

    /// What the mesh did, in few words.
    fn said(out: &mut Vec<Output>) -> String {
        let word = |output: Output| match output {
            Output::Dial { peer, .. } => format!("dial {peer}"),
            Output::Hangup { link, .. } => format!("hangup {}", link.0),
            Output::Notify { link, notification } => {
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
        // Towards a larger one: dial, present ourselves, hang up, be dialled.
        mesh.send(ServerId(3), vote(1), &mut out);
        mesh.send(ServerId(3), vote(2), &mut out);
        assert_eq!(said(&mut out), "dial 3", "one dial at a time");
        mesh.on_dialed(ServerId(3), Some(LinkId(10)), &mut out);
        assert_eq!(said(&mut out), "hangup 10");
        mesh.on_opened(LinkId(11), &opening(3), true, true, &mut out);
        assert_eq!(said(&mut out), "vote 2 on 11", "the newest vote alone");
        // From a smaller one: dial back.
        mesh.on_opened(LinkId(12), &opening(1), true, true, &mut out);
        assert_eq!(said(&mut out), "hangup 12, dial 1");
        mesh.on_dialed(ServerId(1), Some(LinkId(13)), &mut out);
        assert_eq!(said(&mut out), "", "nothing was to be said yet");
        mesh.send(ServerId(1), vote(3), &mut out);
        assert_eq!(said(&mut out), "vote 3 on 13");
        // Once more: it has restarted, or another server has its number.
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
        // Without a connection it is taken in: addresses have many forms.
        assert!(mesh.on_opened(LinkId(1), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "");
        assert!(!mesh.on_opened(LinkId(2), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "hangup 2, dial 3");
        assert!(!mesh.on_opened(LinkId(3), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "hangup 3", "one dial at a time");
        // The member answers at its address, and dials.
        mesh.on_dialed(ServerId(3), Some(LinkId(4)), &mut out);
        assert_eq!(said(&mut out), "hangup 4");
        assert_eq!(mesh.peer_of(LinkId(1)), Some(ServerId(3)));
        assert!(mesh.on_opened(LinkId(5), &opening(3), true, true, &mut out));
        assert_eq!(said(&mut out), "hangup 1");
        // There is no member at its address: the old connection is a dead one.
        assert!(!mesh.on_opened(LinkId(6), &opening(3), true, false, &mut out));
        mesh.on_dialed(ServerId(3), None, &mut out);
        assert_eq!(said(&mut out), "hangup 6, dial 3, hangup 5");
        assert!(mesh.on_opened(LinkId(7), &opening(3), true, false, &mut out));
        assert_eq!(said(&mut out), "");
    }

    /// For instance behind an address that is not the source of its own connections.
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
        // A connection from its own address ends the doubt.
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
                Output::Dial { hint, .. } => Some(hint.map(|hint| *hint)),
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
