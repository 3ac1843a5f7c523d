//! ZAB, ZooKeeper's atomic broadcast, as a pure state machine.
//!
//! The state machine handles servers, epochs, zxids and opaque transactions. It has no access to
//! the tree, files, sockets or clocks. The driver passes an [`Input`] and performs the resulting
//! [`Output`]s, in order. Durable steps are outputs too: their completion comes back as
//! [`Input::Done`], and only then are the packets sent that depend on them.
//!
//! The entry point is [`Zab`]: [`Zab::solo`] for an ensemble of one, [`Zab::member`] for a member
//! of a larger one.
//!
//! ```
//! use bytes::Bytes;
//! use ironkeeper_proto::Zxid;
//! use ironkeeper_zab::{DurableStep, Output, Upcall, Zab};
//!
//! let mut zab = Zab::solo(Zxid(41));
//! let mut out = Vec::new();
//! let zxid = zab.next_zxid();
//! zab.propose(zxid, Bytes::from_static(b"txn"), &mut out);
//! assert!(matches!(out.pop(), Some(Output::Durable(DurableStep::Append { zxid: Zxid(42), .. }))));
//! // Nothing is committed before it is durable.
//! zab.on_flushed(zxid, &mut out);
//! assert!(matches!(out.pop(), Some(Output::Up(Upcall::Commit { zxid: Zxid(42), .. }))));
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
use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerMessage};
use ironkeeper_proto::{Epoch, Membership, ServerId, Zxid};

pub use ensemble::Ensemble;
pub use io::{
    Durable, DurableStep, Hangup, Input, LinkId, LinkOp, LogQuery, MembersChange, Output, Port,
    Reason, Status, Upcall,
};
pub use member::{Epochs, Recovered};
pub use plan::LogRead;
pub use reconfig::ReconfigRefused;
pub use settings::{Bug, Settings};

use ledger::Ledger;
use member::Member;

/// The state of a learner as its leader sees it, for monitoring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnerView {
    /// Negative for a learner without an id of its own.
    pub id: ServerId,
    /// Whether the learner is an observer.
    pub observes: bool,
    /// Whether the learner is synchronized and serves clients.
    pub is_up_to_date: bool,
    /// The last transaction that the learner has acknowledged; observers do not acknowledge.
    pub acknowledged: Option<Zxid>,
}

/// The ZAB state machine of one server.
#[derive(Debug)]
pub struct Zab {
    ledger: Ledger,
    /// `None` in an ensemble of one, whose own log is the quorum.
    member: Option<Box<Member>>,
}

impl Zab {
    /// Creates an ensemble of one that continues after `last`, the last transaction in its log.
    pub fn solo(last: Zxid) -> Zab {
        Zab { ledger: Ledger::new(last), member: None }
    }

    /// Creates a member of an ensemble; the first input starts it. `seed` randomizes delays so that
    /// servers do not act at the same time; agreement does not depend on it.
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

    /// Processes one input. The first input starts the state machine.
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

    /// Returns when [`Input::Timer`] is due next; `u64::MAX` is never.
    pub fn deadline_ms(&self) -> u64 {
        self.member.as_ref().map_or(u64::MAX, |member| member.deadline_ms())
    }

    pub fn last_proposed(&self) -> Zxid {
        self.ledger.last_proposed
    }

    /// Returns the last transaction that this server has received or proposed. Requests that arrive
    /// from now on are ordered after it.
    #[inline]
    pub fn appended(&self) -> Zxid {
        self.ledger.appended
    }

    /// Returns the number of proposals that are not committed yet.
    pub fn outstanding(&self) -> usize {
        self.ledger.pending.len()
    }

    /// Returns whether [`Zab::propose`] may be called: this server is an established leader and the
    /// epoch has zxids left.
    pub fn accepts_proposals(&self) -> bool {
        self.member.as_ref().is_none_or(|member| member.accepts_proposals(&self.ledger))
    }

    /// Returns the zxid that the next proposal must have. When the counter of an epoch is used up,
    /// an ensemble of one continues with the next epoch.
    #[inline]
    pub fn next_zxid(&self) -> Zxid {
        let last = self.ledger.last_proposed;
        last.next().unwrap_or_else(|| Zxid::new(Epoch(last.epoch().0 + 1), 1))
    }

    /// Proposes a transaction. `zxid` must be the result of [`Zab::next_zxid`].
    ///
    /// # Panics
    /// If `zxid` is another one, or [`Zab::accepts_proposals`] does not hold.
    #[inline]
    pub fn propose(&mut self, zxid: Zxid, txn: Bytes, out: &mut Vec<Output>) {
        assert_eq!(zxid, self.next_zxid(), "transaction ids are handed out in order");
        self.ledger.last_proposed = zxid;
        match &mut self.member {
            None => self.ledger.append(zxid, txn, out),
            Some(member) => member.propose(&mut self.ledger, zxid, txn, out),
        }
    }

    /// Notes that the log is durable up to `zxid`. In an ensemble of one this commits.
    #[inline]
    pub fn on_flushed(&mut self, zxid: Zxid, out: &mut Vec<Output>) {
        if let Some(member) = &mut self.member {
            return member.on_flushed(&mut self.ledger, zxid, out);
        }
        self.ledger.flushed = self.ledger.flushed.max(zxid);
        while let Some((zxid, txn)) = self.ledger.pending.pop_front_if(|(first, _)| *first <= zxid)
        {
            self.ledger.delivered = zxid;
            out.push(Output::Up(Upcall::Commit { zxid, txn }));
        }
    }

    /// Returns the role of this server.
    pub fn status(&self) -> Status {
        match &self.member {
            Some(member) => member.status(),
            None => Status::Leading { epoch: self.ledger.last_proposed.epoch() },
        }
    }

    /// Returns the membership as this server knows it; `None` in an ensemble of one.
    pub fn ensemble(&self) -> Option<&Ensemble> {
        self.member.as_ref().map(|member| member.ensemble())
    }

    /// Returns acceptedEpoch and currentEpoch; `None` in an ensemble of one.
    pub fn epochs(&self) -> Option<Epochs> {
        self.member.as_ref().map(|member| member.epochs())
    }

    /// Returns the learners of this server, if it leads.
    pub fn learners(&self) -> Vec<LearnerView> {
        self.member.as_ref().map_or_else(Vec::new, |member| member.learners())
    }

    /// Returns the replies that wait on this leader for leadership confirmation, oldest first.
    pub fn unconfirmed(&self) -> impl Iterator<Item = &LeaderMessage> {
        self.member.iter().flat_map(|member| member.unconfirmed())
    }

    /// Returns whether the state contains only committed transactions, so that no later leader
    /// undoes part of a snapshot of it.
    pub fn may_snapshot(&self) -> bool {
        self.member.is_none() || !matches!(self.status(), Status::Looking)
    }

    /// Checks whether a reconfig to this membership could be proposed now. The transaction, of type
    /// `reconfig` with the text of the new configuration, is then proposed like any other.
    pub fn may_reconfigure(&self, next: &Membership) -> Result<(), ReconfigRefused> {
        match &self.member {
            None => Err(ReconfigRefused::Disabled),
            Some(member) => member.may_reconfigure(&self.ledger, next),
        }
    }

    /// Sends a message of the layer above from a learner to its leader. Returns false if there is no
    /// leader.
    pub fn send_to_leader(&mut self, message: LearnerMessage, out: &mut Vec<Output>) -> bool {
        self.member.as_mut().is_some_and(|member| member.send_to_leader(message, out))
    }

    /// On the leader: replies to a learner as soon as everything proposed until now is delivered.
    pub fn reply_delivered(&mut self, to: LinkId, reply: LeaderMessage, out: &mut Vec<Output>) {
        if let Some(member) = &mut self.member {
            member.reply_delivered(&mut self.ledger, to, reply, out);
        }
    }

    /// On the leader: replies as soon as everything proposed until now is delivered and a quorum
    /// has confirmed the leadership (Raft's ReadIndex): to a learner if a link is given, else with
    /// [`Upcall::FromLeader`]. Replies are sent in the order of these calls, and before the first
    /// commit that was proposed after the call. An ensemble of one needs no confirmation and
    /// replies at once.
    pub fn reply_confirmed(
        &mut self,
        to: Option<LinkId>,
        reply: LeaderMessage,
        out: &mut Vec<Output>,
    ) {
        match &mut self.member {
            Some(member) => member.reply_confirmed(&mut self.ledger, to, reply, out),
            None => out.push(Output::Up(Upcall::FromLeader(reply))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commits(out: &[Output]) -> Vec<Zxid> {
        out.iter()
            .filter_map(|output| match output {
                Output::Up(Upcall::Commit { zxid, .. }) => Some(*zxid),
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
