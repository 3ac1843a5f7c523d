//! Leadership confirmation (Raft's ReadIndex), for replies that are correct only if this server still
//! leads. ZAB does not interpret the replies. The layer above uses it for the reply to a `sync`,
//! after which a client reads everything that was acknowledged before the `sync` began; and for the
//! reply that a session is unknown, after which a client considers everything that the session held
//! as lost.
//!
//! Such a reply needs more than the delivery of everything proposed so far: a leader that is
//! partitioned from a quorum may not know that a new leader was elected, nor what the new leader
//! has committed. So the leader pings its followers. A follower that replies had accepted no later
//! epoch when it replied; with replies of a quorum to a ping that was sent after the request
//! arrived, no other leader was established before the request. The ping carries a negative number
//! in place of the zxid, which learners of Apache and of Ironkeeper return unchanged. One round of
//! pings serves all requests that arrived before it was sent, and at most one round is open.
//!
//! A quorum that acknowledges a proposal made after the request proves the same. So a request never
//! delays a commit, and its reply is always sent before the first commit that was proposed after
//! it: learners (Ironkeeper's and Apache's) match replies to requests by this order.

use std::collections::VecDeque;

use ironkeeper_proto::quorum_packet::LeaderMessage;
use ironkeeper_proto::{Packet, ServerId, Zxid};

use super::{Leader, Stage};
use crate::io::{LinkId, LinkOp, Output, Upcall};
use crate::learner::Kind;
use crate::settings::Bug;
use crate::shared::Context;

/// A reply that waits for confirmation.
#[derive(Debug)]
struct Waiting {
    /// The last transaction proposed before the request arrived.
    after: Zxid,
    /// The number of the ping that a quorum has to answer.
    ping: u64,
    reply: Reply,
}

/// `Some(link)`: to that learner; `None`: to the layer above on this server.
#[derive(Clone, Copy, Debug)]
struct Reply {
    to: Option<LinkId>,
    message: LeaderMessage,
}

/// The replies that wait, and the state of the confirmation pings.
#[derive(Debug, Default)]
pub(super) struct Confirmations {
    /// In the order of the requests. Bounded by the limits on outstanding requests and on
    /// connections.
    waiting: VecDeque<Waiting>,
    /// The number of the last ping that was sent.
    sent: u64,
    /// The number of the last ping that a quorum has answered.
    confirmed: u64,
}

impl Confirmations {
    pub(super) fn replies(&self) -> impl Iterator<Item = &LeaderMessage> {
        self.waiting.iter().map(|waiting| &waiting.reply.message)
    }

    /// Returns whether a ping is open.
    fn is_open(&self) -> bool {
        self.confirmed < self.sent
    }

    #[inline]
    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && !self.is_open()
    }

    /// Removes the first reply if it was requested before this transaction was proposed.
    fn pop_before(&mut self, zxid: Zxid) -> Option<Reply> {
        self.waiting.pop_front_if(|next| next.after < zxid).map(|next| next.reply)
    }

    fn pop_confirmed(&mut self, delivered: Zxid) -> Option<Reply> {
        let confirmed = self.confirmed;
        self.waiting
            .pop_front_if(|next| next.ping <= confirmed && next.after <= delivered)
            .map(|next| next.reply)
    }
}

/// Creates a confirmation ping. Its negative zxid belongs to no transaction.
fn ping(number: u64) -> Packet {
    Packet::Ping { zxid: Zxid(-(number as i64)) }
}

impl Leader {
    /// Replies once leadership is confirmed.
    pub(crate) fn reply_confirmed(
        &mut self,
        cx: &mut Context<'_>,
        to: Option<LinkId>,
        message: LeaderMessage,
    ) {
        let after = cx.ledger.pending.back().map_or(cx.ledger.delivered, |(zxid, _)| *zxid);
        // An open ping was sent before this request arrived and does not confirm it.
        let ping = self.confirmations.sent + 1;
        self.confirmations.waiting.push_back(Waiting { after, ping, reply: Reply { to, message } });
        self.settle_confirmations(cx);
    }

    fn ping_followers(&mut self, cx: &mut Context<'_>) {
        self.confirmations.sent += 1;
        for (link, peer) in &self.peers {
            // Learners that are not up to date do not reply to pings.
            if peer.kind == Kind::Follower && peer.stage == Stage::Live {
                cx.out.push(Output::Link(LinkOp::Send {
                    link: *link,
                    packet: ping(self.confirmations.sent),
                }));
            }
        }
        self.settle_confirmations(cx);
    }

    /// Sends the open ping to a learner that is now up to date: its reply may be needed for the
    /// quorum.
    pub(super) fn ping_newcomer(&self, cx: &mut Context<'_>, link: LinkId) {
        if self.confirmations.is_open() {
            cx.send(link, ping(self.confirmations.sent));
        }
    }

    pub(super) fn on_pong(&mut self, cx: &mut Context<'_>, link: LinkId, echo: Zxid) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        let sent = 1..=self.confirmations.sent;
        if let Some(number) = echo.0.checked_neg().and_then(|number| u64::try_from(number).ok())
            && sent.contains(&number)
        {
            peer.answered = peer.answered.max(number);
            self.settle_confirmations(cx);
        }
    }

    /// Sends the replies that are confirmed, and a new ping for requests that arrived after the
    /// last one.
    #[inline]
    pub(super) fn settle_confirmations(&mut self, cx: &mut Context<'_>) {
        if !self.confirmations.is_idle() {
            self.settle_open_confirmations(cx);
        }
    }

    fn settle_open_confirmations(&mut self, cx: &mut Context<'_>) {
        let (me, sent) = (cx.shared.me, self.confirmations.sent);
        let follows = |id: ServerId| {
            id == me
                || self.peers.values().any(|peer| {
                    peer.id == id && peer.kind == Kind::Follower && peer.answered == sent
                })
        };
        if self.confirmations.is_open()
            && (cx.shared.ensemble.joint().holds(follows)
                || cx.shared.settings.has(Bug::SyncUnasked))
        {
            self.confirmations.confirmed = sent;
        }
        while let Some(reply) = self.confirmations.pop_confirmed(cx.ledger.delivered) {
            self.send_reply(cx, reply);
        }
        let is_behind = |last: &Waiting| last.ping > sent;
        if !self.confirmations.is_open() && self.confirmations.waiting.back().is_some_and(is_behind)
        {
            self.ping_followers(cx);
        }
    }

    /// Sends the replies that were requested before transaction `zxid` was proposed. A quorum has
    /// acknowledged `zxid`, and therefore still followed this leader after these requests arrived.
    pub(super) fn reply_before(&mut self, cx: &mut Context<'_>, zxid: Zxid) {
        while let Some(reply) = self.confirmations.pop_before(zxid) {
            self.send_reply(cx, reply);
        }
    }

    fn send_reply(&self, cx: &mut Context<'_>, Reply { to, message }: Reply) {
        match to {
            None => cx.out.push(Output::Up(Upcall::FromLeader(message))),
            Some(link) if self.has(link) => cx.send(link, Packet::Leader(message)),
            Some(_) => {}
        }
    }
}
