//! ZAB, ZooKeeper's atomic broadcast, as a pure state machine.
//!
//! It knows servers, epochs, transaction ids and opaque transactions; it knows neither the tree nor
//! files nor sockets, and reads no clock. What arrives is an [`Input`], what is to be done about it
//! are [`Output`]s, in order. Durable steps are outputs too: their completion comes back as
//! [`Input::Done`], and what was promised on their strength leaves only then.
//!
//! Start from [`Zab`]: an ensemble of one with [`Zab::solo`], a member of a larger one with
//! [`Zab::member`].
//!
//! ```
//! use bytes::Bytes;
//! use ironkeeper_proto::Zxid;
//! use ironkeeper_zab::{Output, Zab};
//!
//! let mut zab = Zab::solo(Zxid(41));
//! let mut out = Vec::new();
//! let zxid = zab.next_zxid();
//! zab.propose(zxid, Bytes::from_static(b"txn"), &mut out);
//! assert!(matches!(out.pop(), Some(Output::Append { zxid: Zxid(42), .. })));
//! // Nothing is committed before it is durable.
//! zab.on_flushed(zxid, &mut out);
//! assert!(matches!(out.pop(), Some(Output::Commit { zxid: Zxid(42), .. })));
//! ```

mod choice;
pub mod election;
pub mod ensemble;
pub mod history;
mod io;
mod leader;
mod learner;
mod ledger;
mod member;
mod mesh;
pub mod plan;
pub mod quorum;
mod reconfig;
mod renewals;
mod settings;
mod timers;

use bytes::Bytes;
use ironkeeper_proto::{Epoch, Membership, ServerId, SessionId, Zxid};

pub use ensemble::Ensemble;
pub use io::{Durable, Hangup, Input, LinkId, Output, Port, Reason, Status};
pub use member::{Epochs, Recovered};
pub use plan::LogRead;
pub use reconfig::ReconfigRefused;
pub use settings::{Bug, Settings};

use ironkeeper_proto::quorum_packet::ForwardedRequest;
use ledger::Ledger;
use member::Member;

/// A server that listens to its leader, for the administrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnerView {
    /// Negative for those who have no number.
    pub id: ServerId,
    /// Whether it only listens.
    pub observes: bool,
    /// Whether it has the history and serves clients.
    pub is_up_to_date: bool,
    /// The last transaction it has said to be durable; observers do not say.
    pub acknowledged: Option<Zxid>,
}

/// One member's view of the broadcast.
#[derive(Debug)]
pub struct Zab {
    ledger: Ledger,
    /// `None` in an ensemble of one, whose own log is the quorum.
    member: Option<Box<Member>>,
}

impl Zab {
    /// An ensemble of one, going on after `last`, the last transaction in its log.
    pub fn solo(last: Zxid) -> Zab {
        Zab { ledger: Ledger::new(last), member: None }
    }

    /// A member of an ensemble, not yet started. `seed` spreads what should not happen everywhere at
    /// once; it has no part in what is agreed on.
    pub fn member(
        me: ServerId,
        settings: Settings,
        ensemble: Ensemble,
        recovered: Recovered,
        seed: u64,
    ) -> Zab {
        let mut ledger = Ledger::new(recovered.last);
        let (count_max, bytes_max) = (settings.history_count_max, settings.history_bytes_max);
        let mut history = history::History::new(recovered.history_base, count_max, bytes_max);
        for (zxid, txn) in recovered.history {
            history.push(zxid, txn);
        }
        if history.last() != recovered.last {
            history.restart(recovered.last);
        }
        ledger.history = Some(history);
        ledger.log_from = recovered.log_from;
        let member = Member::new(me, settings, ensemble, recovered.epochs, seed);
        Zab { ledger, member: Some(Box::new(member)) }
    }

    /// Takes in one thing that happened. The first input starts the machine.
    pub fn step(&mut self, now_ms: u64, input: Input, out: &mut Vec<Output>) {
        match &mut self.member {
            Some(member) => member.step(&mut self.ledger, now_ms, input, out),
            None => {
                if let Input::Done(Durable::Flushed(zxid)) = input {
                    self.on_flushed(zxid, out);
                }
            }
        }
    }

    /// When [`Input::Timer`] is to be given next; `u64::MAX` is never.
    pub fn deadline_ms(&self) -> u64 {
        self.member.as_ref().map_or(u64::MAX, |member| member.deadline_ms())
    }

    pub fn last_proposed(&self) -> Zxid {
        self.ledger.last_proposed
    }

    /// The last transaction this server has heard of. What is asked for from now on comes behind it.
    #[inline]
    pub fn appended(&self) -> Zxid {
        self.ledger.appended
    }

    /// How many proposals wait for their commit.
    pub fn outstanding(&self) -> usize {
        self.ledger.pending.len()
    }

    /// Whether [`Zab::propose`] may be called: we lead, are established, and have ids left.
    pub fn accepts_proposals(&self) -> bool {
        self.member.as_ref().is_none_or(|member| member.accepts_proposals(&self.ledger))
    }

    /// The id the next proposal must carry. When the counter of an epoch is used up, a leader that
    /// is its own quorum simply begins the next epoch.
    #[inline]
    pub fn next_zxid(&self) -> Zxid {
        let last = self.ledger.last_proposed;
        last.next().unwrap_or_else(|| Zxid::new(Epoch(last.epoch().0 + 1), 1))
    }

    /// Puts a transaction up for agreement. `zxid` is the one [`Zab::next_zxid`] gave.
    ///
    /// # Panics
    /// If it is another one, or [`Zab::accepts_proposals`] does not hold.
    #[inline]
    pub fn propose(&mut self, zxid: Zxid, txn: Bytes, out: &mut Vec<Output>) {
        assert_eq!(zxid, self.next_zxid(), "transaction ids are handed out in order");
        self.ledger.last_proposed = zxid;
        match &mut self.member {
            None => self.ledger.append(zxid, txn, out),
            Some(member) => member.propose(&mut self.ledger, zxid, txn, out),
        }
    }

    /// The log is durable up to `zxid`: with a quorum of one, that commits.
    #[inline]
    pub fn on_flushed(&mut self, zxid: Zxid, out: &mut Vec<Output>) {
        if let Some(member) = &mut self.member {
            return member.on_flushed(&mut self.ledger, zxid, out);
        }
        self.ledger.flushed = self.ledger.flushed.max(zxid);
        while let Some((zxid, txn)) = self.ledger.pending.pop_front_if(|(first, _)| *first <= zxid)
        {
            self.ledger.delivered = zxid;
            out.push(Output::Commit { zxid, txn });
        }
    }

    /// What this server is doing.
    pub fn status(&self) -> Status {
        match &self.member {
            Some(member) => member.status(),
            None => Status::Leading { epoch: self.ledger.last_proposed.epoch() },
        }
    }

    /// The members as this server knows them; `None` in an ensemble of one.
    pub fn ensemble(&self) -> Option<&Ensemble> {
        self.member.as_ref().map(|member| member.ensemble())
    }

    /// What was promised and taken over; `None` in an ensemble of one.
    pub fn epochs(&self) -> Option<Epochs> {
        self.member.as_ref().map(|member| member.epochs())
    }

    /// Those who listen to this server, if it leads.
    pub fn learners(&self) -> Vec<LearnerView> {
        self.member.as_ref().map_or_else(Vec::new, |member| member.learners())
    }

    /// How many `sync`s a leader has not answered yet.
    pub fn pending_syncs(&self) -> usize {
        self.member.as_ref().map_or(0, |member| member.pending_syncs())
    }

    /// Whether the tree holds nothing but history, so that a snapshot of it can never be wrong.
    pub fn may_snapshot(&self) -> bool {
        self.member.is_none() || !matches!(self.status(), Status::Looking)
    }

    /// Whether a change to these members could be proposed now. The transaction, of type `reconfig` with
    /// the text of the new configuration, is then proposed like any other.
    pub fn may_reconfigure(&self, next: &Membership) -> Result<(), ReconfigRefused> {
        match &self.member {
            None => Err(ReconfigRefused::Disabled),
            Some(member) => member.may_reconfigure(&self.ledger, next),
        }
    }

    /// A learner hands a client's request to its leader. False if there is none at the moment.
    pub fn forward(&mut self, request: ForwardedRequest, out: &mut Vec<Output>) -> bool {
        self.member.as_mut().is_some_and(|member| member.forward(request, out))
    }

    /// A learner asks its leader whether a session may go on here. False if there is no leader.
    pub fn revalidate(
        &mut self,
        session: SessionId,
        timeout_ms: i32,
        out: &mut Vec<Output>,
    ) -> bool {
        self.member.as_mut().is_some_and(|member| member.revalidate(session, timeout_ms, out))
    }

    /// A leader answers [`Output::Revalidate`]: the session lives.
    pub fn session_lives(&mut self, link: LinkId, session: SessionId, out: &mut Vec<Output>) {
        if let Some(member) = &mut self.member {
            member.session_lives(&mut self.ledger, link, session, out);
        }
    }

    /// A leader knows no such session, which a learner's client wants back if a link is given, else one of its
    /// own. [`Output::Revalidated`] or a packet to the learner follows when it is certain that it still leads: a
    /// later leader could know of it.
    pub fn session_gone(
        &mut self,
        link: Option<LinkId>,
        session: SessionId,
        out: &mut Vec<Output>,
    ) {
        match &mut self.member {
            Some(member) => member.session_gone(&mut self.ledger, link, session, out),
            None => out.push(Output::Revalidated { session, valid: false }),
        }
    }

    /// A leader takes up a `sync`, in its place among the requests: of a learner if a link is given,
    /// else of its own clients. [`Output::SyncDone`] or a packet to the learner follows when everything
    /// proposed until now is delivered and a quorum has confirmed that it still follows. An ensemble of one
    /// has nobody to ask: it answers when what was proposed is delivered, without this.
    pub fn sync(&mut self, link: Option<LinkId>, out: &mut Vec<Output>) {
        if let Some(member) = &mut self.member {
            member.sync(&mut self.ledger, link, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits(out: &[Output]) -> Vec<Zxid> {
        out.iter()
            .filter_map(|output| match output {
                Output::Commit { zxid, .. } => Some(*zxid),
                _ => None,
            })
            .collect()
    }

    #[test]
    fn nothing_commits_before_its_flush_and_commits_keep_their_order() {
        let mut zab = Zab::solo(Zxid(0));
        let mut out = Vec::new();
        for _ in 0..3 {
            zab.propose(zab.next_zxid(), Bytes::new(), &mut out);
        }
        assert!(commits(&out).is_empty());
        zab.on_flushed(Zxid(2), &mut out);
        assert_eq!(commits(&out), [Zxid(1), Zxid(2)]);
        assert_eq!(zab.outstanding(), 1);
        out.clear();
        zab.on_flushed(Zxid(2), &mut out);
        assert!(out.is_empty(), "a repeated report is harmless");
    }

    #[test]
    fn a_used_up_counter_begins_a_new_epoch() {
        let zab = Zab::solo(Zxid::new(Epoch(4), u32::MAX));
        assert_eq!(zab.next_zxid(), Zxid::new(Epoch(5), 1));
    }

    const _: () = assert!(size_of::<Output>() <= 72);
}
