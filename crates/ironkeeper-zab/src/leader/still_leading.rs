//! What only somebody who still leads may say: that a client's `sync` is done, so that whoever reads behind it
//! sees everything that was acknowledged before it began; and that there is no such session, which its client
//! takes for the end of all it held.
//!
//! For that it is not enough to have delivered everything proposed so far: a leader that was cut off may not
//! know yet that others have elected a new one, and what that one has committed. So a leader first makes sure
//! that it still leads. It asks its followers, and each that answers had not promised itself to anybody else
//! when it did; with a quorum of answers to a question that was sent after the request had come, no other
//! leader can have been established before that. The question is a ping with a number in place of the
//! transaction id, which learners of any make send back as it is. One question serves all requests that have
//! come before it was sent, and one at a time is open.
//!
//! A quorum that acknowledges a proposal made after the `sync` says the same. So a `sync` never holds up a
//! commit, and its answer always leaves before the first commit that was proposed after it: learners, ours
//! and Apache's, count on that order to find out whose answer it is.

use std::collections::VecDeque;

use ironkeeper_proto::{Packet, ServerId, SessionId, Zxid};

use super::{Leader, Stage};
use crate::io::{LinkId, Output};
use crate::learner::Kind;
use crate::member::Context;
use crate::settings::Bug;

/// What is said once it is certain that we still lead. To the learner whose client it is for; `None` for
/// our own.
#[derive(Clone, Copy, Debug)]
enum Word {
    SyncDone(Option<LinkId>),
    SessionGone(Option<LinkId>, SessionId),
}

/// A word that was not given yet.
#[derive(Debug)]
struct Waiting {
    /// The last transaction proposed before it was asked for.
    after: Zxid,
    /// The question that has to be answered.
    question: u64,
    word: Word,
}

/// See the head of this file.
#[derive(Debug, Default)]
pub(super) struct Words {
    /// In the order in which they were asked for. Bounded by the limits on outstanding requests and on
    /// connections.
    waiting: VecDeque<Waiting>,
    /// The last question that was sent.
    asked: u64,
    /// The last question a quorum has answered.
    confirmed: u64,
}

impl Words {
    pub(super) fn syncs(&self) -> usize {
        self.waiting.iter().filter(|next| matches!(next.word, Word::SyncDone(_))).count()
    }

    fn is_asking(&self) -> bool {
        self.confirmed < self.asked
    }

    /// Those that were taken up before this transaction was proposed.
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

/// A question as learners see it: no transaction has such an id.
fn ping(question: u64) -> Packet {
    Packet::Ping { zxid: Zxid(-(question as i64)) }
}

impl Leader {
    pub(crate) fn sync(&mut self, cx: &mut Context<'_>, link: Option<LinkId>) {
        self.say_if_leading(cx, Word::SyncDone(link));
    }

    /// There is no such session, as far as we know.
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
        // An open question was sent before this came and says nothing about it.
        let question = self.words.asked + 1;
        self.words.waiting.push_back(Waiting { after, question, word });
        self.settle_words(cx);
    }

    fn ask_who_follows(&mut self, cx: &mut Context<'_>) {
        self.words.asked += 1;
        for (link, peer) in &self.peers {
            // Before they are up to date, learners do not answer pings.
            if peer.kind == Kind::Follower && peer.stage == Stage::Live {
                cx.out.push(Output::Send { link: *link, packet: ping(self.words.asked) });
            }
        }
        self.settle_words(cx);
    }

    /// A learner is up to date from now on, and may be needed for an open question.
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

    /// Answers what can be answered by now, and asks again for those that came behind the last question.
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

    /// The first of these transactions is about to be committed: a quorum has it, and so still followed after
    /// everything that was asked for before it was proposed.
    pub(super) fn say_before(&mut self, cx: &mut Context<'_>, zxid: Zxid) {
        while let Some(word) = self.words.pop_before(zxid) {
            self.say(cx, word);
        }
    }

    fn say(&self, cx: &mut Context<'_>, word: Word) {
        let (link, packet) = match word {
            Word::SyncDone(None) => return cx.out.push(Output::SyncDone),
            Word::SessionGone(None, session) => {
                return cx.out.push(Output::Revalidated { session, valid: false });
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
