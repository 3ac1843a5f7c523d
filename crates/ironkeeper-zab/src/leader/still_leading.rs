//! A client's `sync`: whoever reads behind it sees everything that was acknowledged before it began.
//!
//! For that it is not enough to have delivered everything proposed so far: a leader that was cut off may not
//! know yet that others have elected a new one, and what that one has committed. So a leader first makes sure
//! that it still leads. It asks its followers, and each that answers had not promised itself to anybody else
//! when it did; with a quorum of answers to a question that was sent after the `sync` had come, no other
//! leader can have been established before that. The question is a ping with a number in place of the
//! transaction id, which learners of any make send back as it is. One question serves all `sync`s that have
//! come before it was sent, and one at a time is open.
//!
//! A quorum that acknowledges a proposal made after the `sync` says the same. So a `sync` never holds up a
//! commit, and its answer always leaves before the first commit that was proposed after it: learners, ours
//! and Apache's, count on that order to find out whose answer it is.

use std::collections::VecDeque;

use ironkeeper_proto::{Packet, ServerId, Zxid};

use super::{Leader, Stage};
use crate::io::{LinkId, Output};
use crate::learner::Kind;
use crate::member::Context;
use crate::settings::Bug;

/// A `sync` that is not answered yet.
#[derive(Debug)]
struct Waiting {
    /// The last transaction proposed before it.
    after: Zxid,
    /// The question that has to be answered.
    question: u64,
    /// The learner whose client it is; `None` for our own.
    link: Option<LinkId>,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Syncs {
    /// In the order in which they came. Bounded by the limit on outstanding requests.
    waiting: VecDeque<Waiting>,
    /// The last question that was sent.
    asked: u64,
    /// The last question a quorum has answered.
    confirmed: u64,
}

impl Syncs {
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn is_asking(&self) -> bool {
        self.confirmed < self.asked
    }

    /// Those that were taken up before this transaction was proposed.
    fn pop_before(&mut self, zxid: Zxid) -> Option<Option<LinkId>> {
        self.waiting.pop_front_if(|sync| sync.after < zxid).map(|sync| sync.link)
    }

    fn pop_confirmed(&mut self, delivered: Zxid) -> Option<Option<LinkId>> {
        let confirmed = self.confirmed;
        self.waiting
            .pop_front_if(|sync| sync.question <= confirmed && sync.after <= delivered)
            .map(|sync| sync.link)
    }
}

/// A question as learners see it: no transaction has such an id.
fn ping(question: u64) -> Packet {
    Packet::Ping { zxid: Zxid(-(question as i64)) }
}

impl Leader {
    pub(crate) fn sync(&mut self, cx: &mut Context<'_>, link: Option<LinkId>) {
        let after = cx.ledger.pending.back().map_or(cx.ledger.delivered, |(zxid, _)| *zxid);
        // An open question was sent before this came and says nothing about it.
        let question = self.syncs.asked + 1;
        self.syncs.waiting.push_back(Waiting { after, question, link });
        self.settle_syncs(cx);
    }

    fn ask_who_follows(&mut self, cx: &mut Context<'_>) {
        self.syncs.asked += 1;
        for (link, peer) in &self.peers {
            // Before they are up to date, learners do not answer pings.
            if peer.kind == Kind::Follower && peer.stage == Stage::Live {
                cx.out.push(Output::Send { link: *link, packet: ping(self.syncs.asked) });
            }
        }
        self.settle_syncs(cx);
    }

    /// A learner is up to date from now on, and may be needed for an open question.
    pub(super) fn ask_newcomer(&self, cx: &mut Context<'_>, link: LinkId) {
        if self.syncs.is_asking() {
            cx.send(link, ping(self.syncs.asked));
        }
    }

    pub(super) fn on_pong(&mut self, cx: &mut Context<'_>, link: LinkId, echo: Zxid) {
        let Some(peer) = self.peers.get_mut(&link) else { return };
        let asked = 1..=self.syncs.asked;
        if let Some(question) = echo.0.checked_neg().and_then(|number| u64::try_from(number).ok())
            && asked.contains(&question)
        {
            peer.answered = peer.answered.max(question);
            self.settle_syncs(cx);
        }
    }

    /// Answers what can be answered by now, and asks again for those that came behind the last question.
    pub(super) fn settle_syncs(&mut self, cx: &mut Context<'_>) {
        let (me, asked) = (cx.shared.me, self.syncs.asked);
        let follows = |id: ServerId| {
            id == me
                || self.peers.values().any(|peer| {
                    peer.id == id && peer.kind == Kind::Follower && peer.answered == asked
                })
        };
        if self.syncs.is_asking()
            && (cx.shared.ensemble.joint().holds(follows)
                || cx.shared.settings.has(Bug::SyncUnasked))
        {
            self.syncs.confirmed = asked;
        }
        while let Some(link) = self.syncs.pop_confirmed(cx.ledger.delivered) {
            self.answer_sync(cx, link);
        }
        let is_behind = |last: &Waiting| last.question > asked;
        if !self.syncs.is_asking() && self.syncs.waiting.back().is_some_and(is_behind) {
            self.ask_who_follows(cx);
        }
    }

    /// The first of these transactions is about to be committed: a quorum has it, and so still followed after
    /// every `sync` that came before it was proposed.
    pub(super) fn answer_syncs_before(&mut self, cx: &mut Context<'_>, zxid: Zxid) {
        while let Some(link) = self.syncs.pop_before(zxid) {
            self.answer_sync(cx, link);
        }
    }

    fn answer_sync(&self, cx: &mut Context<'_>, link: Option<LinkId>) {
        match link {
            None => cx.out.push(Output::SyncDone),
            Some(link) if self.has(link) => cx.send(link, Packet::Sync),
            Some(_) => {}
        }
    }
}
