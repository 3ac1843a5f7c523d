//! Leadership confirmation (Raft's ReadIndex): the reply to a `sync`, after which a client reads
//! everything that was acknowledged before the `sync` began; and the reply that a session is
//! unknown, after which a client considers everything that the session held as lost.
//!
//! Such a reply needs more than the delivery of everything proposed so far: a leader that is
//! partitioned from a quorum may not know that a new leader was elected, nor what the new leader
//! has committed. So the leader pings its followers. A follower that replies had accepted no later
//! epoch when it replied; with replies of a quorum to a ping that was sent after the request
//! arrived, no other leader was established before the request. The ping carries a negative number
//! in place of the zxid, which learners of Apache and of Ironkeeper return unchanged. One round of
//! pings serves all requests that arrived before it was sent, and at most one round is open.
//!
//! A quorum that acknowledges a proposal made after the `sync` proves the same. So a `sync` never
//! delays a commit, and its reply is always sent before the first commit that was proposed after
//! it: learners (Ironkeeper's and Apache's) match replies to requests by this order.

use std::collections::VecDeque;

use ironkeeper_proto::{Packet, ServerId, SessionId, Zxid};

use super::{Leader, Stage};
use crate::io::{LinkId, LinkOp, Output, Upcall};
use crate::learner::Kind;
use crate::member::Context;
use crate::settings::Bug;

/// A reply that waits for leadership confirmation. `Some(link)`: to that learner; `None`: to a
/// client of this server.
#[derive(Clone, Copy, Debug)]
enum Word {
    SyncDone(Option<LinkId>),
    SessionGone(Option<LinkId>, SessionId),
}

/// A reply that was not sent yet.
#[derive(Debug)]
struct Waiting {
    /// The last transaction proposed before the request arrived.
    after: Zxid,
    /// The number of the ping that a quorum has to answer.
    question: u64,
    word: Word,
}

/// The replies that wait, and the state of the confirmation pings.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// In the order of the requests. Bounded by the limits on outstanding requests and on
    /// connections.
    waiting: VecDeque<Waiting>,
    /// The number of the last ping that was sent.
    asked: u64,
    /// The number of the last ping that a quorum has answered.
    confirmed: u64,
}

impl Words {
    pub(super) fn syncs(&self) -> usize {
        self.waiting.iter().filter(|next| matches!(next.word, Word::SyncDone(_))).count()
    }

    fn is_asking(&self) -> bool {
        self.confirmed < self.asked
    }

    /// Removes the first reply if it was requested before this transaction was proposed.
    fn pop_before(&mut self, zxid: Zxid) -> Option<Word> {
        self.waiting.pop_front_if(|next| next.after < zxid).map(|next| next.word)
    }

    fn pop_confirmed(&mut self, delivered: Zxid) -> Option<Word> {
        let confirmed = self.confirmed;
        self.waiting
            .pop_front_if(|next| next.question <= confirmed && next.after <= delivered)
            .map(|next| next.word)
    }
}

/// Creates a confirmation ping. Its negative zxid belongs to no transaction.
fn ping(question: u64) -> Packet {
    Packet::Ping { zxid: Zxid(-(question as i64)) }
}

impl Leader {
    pub(crate) fn sync(&mut self, cx: &mut Context<'_>, link: Option<LinkId>) {
        self.say_if_leading(cx, Word::SyncDone(link));
    }

    /// Replies that the session is unknown, once leadership is confirmed.
    pub(crate) fn session_gone(
        &mut self,
        cx: &mut Context<'_>,
        link: Option<LinkId>,
        session: SessionId,
    ) {
        self.say_if_leading(cx, Word::SessionGone(link, session));
    }

    fn say_if_leading(&mut self, cx: &mut Context<'_>, word: Word) {
        let after = cx.ledger.pending.back().map_or(cx.ledger.delivered, |(zxid, _)| *zxid);
        // An open ping was sent before this request arrived and does not confirm it.
        let question = self.words.asked + 1;
        self.words.waiting.push_back(Waiting { after, question, word });
        self.settle_words(cx);
    }

    fn ask_who_follows(&mut self, cx: &mut Context<'_>) {
        self.words.asked += 1;
        for (link, peer) in &self.peers {
            // Learners that are not up to date do not reply to pings.
            if peer.kind == Kind::Follower && peer.stage == Stage::Live {
                cx.out.push(Output::Link(LinkOp::Send {
                    link: *link,
                    packet: ping(self.words.asked),
                }));
            }
        }
        self.settle_words(cx);
    }

    /// Sends the open ping to a learner that is now up to date: its reply may be needed for the
    /// quorum.
    pub(super) fn ask_newcomer(&self, cx: &mut Context<'_>, link: LinkId) {
        if self.words.is_asking() {
            cx.send(link, ping(self.words.asked));
        }
    }

    pub(super) fn on_pong(&mut self, cx: &mut Context<'_>, link: LinkId, echo: Zxid) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        let asked = 1..=self.words.asked;
        if let Some(question) = echo.0.checked_neg().and_then(|number| u64::try_from(number).ok())
            && asked.contains(&question)
        {
            peer.answered = peer.answered.max(question);
            self.settle_words(cx);
        }
    }

    /// Sends the replies that are confirmed, and a new ping for requests that arrived after the
    /// last one.
    pub(super) fn settle_words(&mut self, cx: &mut Context<'_>) {
        let (me, asked) = (cx.shared.me, self.words.asked);
        let follows = |id: ServerId| {
            id == me
                || self.peers.values().any(|peer| {
                    peer.id == id && peer.kind == Kind::Follower && peer.answered == asked
                })
        };
        if self.words.is_asking()
            && (cx.shared.ensemble.joint().holds(follows)
                || cx.shared.settings.has(Bug::SyncUnasked))
        {
            self.words.confirmed = asked;
        }
        while let Some(word) = self.words.pop_confirmed(cx.ledger.delivered) {
            self.say(cx, word);
        }
        let is_behind = |last: &Waiting| last.question > asked;
        if !self.words.is_asking() && self.words.waiting.back().is_some_and(is_behind) {
            self.ask_who_follows(cx);
        }
    }

    /// Sends the replies that were requested before transaction `zxid` was proposed. A quorum has
    /// acknowledged `zxid`, and therefore still followed this leader after these requests arrived.
    pub(super) fn say_before(&mut self, cx: &mut Context<'_>, zxid: Zxid) {
        while let Some(word) = self.words.pop_before(zxid) {
            self.say(cx, word);
        }
    }

    fn say(&self, cx: &mut Context<'_>, word: Word) {
        let (link, packet) = match word {
            Word::SyncDone(None) => return cx.out.push(Output::Up(Upcall::SyncDone)),
            Word::SessionGone(None, session) => {
                return cx.out.push(Output::Up(Upcall::Revalidated { session, valid: false }));
            }
            Word::SyncDone(Some(link)) => (link, Packet::Sync),
            Word::SessionGone(Some(link), session) => {
                (link, Packet::Revalidated { session, valid: false })
            }
        };
        if self.has(link) {
            cx.send(link, packet);
        }
    }
}
