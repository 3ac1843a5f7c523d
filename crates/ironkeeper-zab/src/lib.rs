//! ZAB, ZooKeeper's atomic broadcast, as a pure state machine.
//!
//! The state machine handles servers, epochs, zxids and opaque transactions. It has no access to
//! the tree, files, sockets or clocks. The driver passes an [`Input`] and performs the resulting
//! [`Output`]s, in order. Durable steps are outputs too: their completion comes back as
//! [`Input::Done`], and only then are the packets sent that depend on them.
//!
//! The entry point is [`Zab`]: [`Zab::standalone`] for a server of its own, [`Zab::member`] for a
//! member of an ensemble.
//!
//! ```
//! use bytes::Bytes;
//! use ironkeeper_proto::Zxid;
//! use ironkeeper_zab::{DurableStep, Output, Upcall, Zab};
//!
//! let mut zab = Zab::standalone(Zxid(41));
//! let mut out = Vec::new();
//! let proposer = zab.proposer().expect("a standalone server leads from the beginning");
//! proposer.propose(Bytes::from_static(b"txn"), &mut out);
//! assert!(matches!(out.pop(), Some(Output::Durable(DurableStep::Append { zxid: Zxid(42), .. }))));
//! // Nothing is committed before it is durable.
//! zab.on_flushed(Zxid(42), &mut out);
//! assert!(matches!(out.pop(), Some(Output::Up(Upcall::Commit { zxid: Zxid(42), .. }))));
//! ```

#![warn(unreachable_pub)]

mod choice;
pub mod election;
pub mod ensemble;
pub mod history;
mod io;
mod leader;
mod learner;
mod ledger;
mod mesh;
pub mod plan;
pub mod quorum;
mod quorum_port;
mod reconfig;
mod renewals;
mod settings;
mod shared;
mod timers;
mod votes;
mod zab;

pub use ensemble::Ensemble;
pub use io::{
    Durable, DurableStep, Hangup, Input, LinkId, LinkOp, LogQuery, MembersChange, Output, Port,
    Reason, Status, Upcall,
};
pub use leader::{LearnerView, Proposer};
pub use plan::LogRead;
pub use reconfig::ReconfigRefused;
pub use settings::{Bug, Settings};
pub use shared::{Epochs, Recovered};
pub use zab::Zab;

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use ironkeeper_proto::{Epoch, Zxid};

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
        let mut zab = Zab::standalone(Zxid(0));
        let mut out = Vec::new();
        for _ in 0..3 {
            zab.proposer().unwrap().propose(Bytes::new(), &mut out);
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
        let mut zab = Zab::standalone(Zxid::new(Epoch(4), u32::MAX - 1));
        let mut out = Vec::new();
        for (epoch, next) in [(4, Zxid::new(Epoch(4), u32::MAX)), (5, Zxid::new(Epoch(5), 1))] {
            let proposer = zab.proposer().unwrap();
            assert_eq!(proposer.zxid(), next);
            proposer.propose(Bytes::new(), &mut out);
            zab.on_flushed(next, &mut out);
            assert_eq!(zab.status(), Status::Leading { epoch: Epoch(epoch) });
        }
        assert_eq!(commits(&out).len(), 2);
        assert!(!out.iter().any(|output| matches!(output, Output::Up(Upcall::Became { .. }))));
    }

    #[test]
    fn a_standalone_server_has_no_timers_no_membership_and_no_epochs() {
        let mut zab = Zab::standalone(Zxid(7));
        assert_eq!(zab.deadline_ms(), u64::MAX);
        assert!(zab.ensemble().is_none() && zab.epochs().is_none());
        assert!(zab.may_snapshot() && zab.learners().is_empty());
        let mut out = Vec::new();
        zab.step(1_000_000, Input::Timer, &mut out);
        assert_eq!(out, []);
    }

    const _: () = assert!(size_of::<Output>() <= 72);
}
