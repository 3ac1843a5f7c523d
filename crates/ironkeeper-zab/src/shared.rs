//! What all roles of a server share: its epochs, its ensemble, its timers, its position in the log.

use std::collections::BTreeSet;

use bytes::Bytes;
use ironkeeper_proto::{Epoch, Packet, ServerId, Zxid};

use crate::election::Vote;
use crate::ensemble::Ensemble;
use crate::io::{DurableStep, Hangup, LinkId, LinkOp, Output, Reason};
use crate::ledger::Ledger;
use crate::renewals::Renewals;
use crate::settings::Settings;
use crate::timers::{Timer, Timers};

/// The epochs of a server, as they are on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Epochs {
    /// acceptedEpoch: the latest epoch in which this server has agreed to follow a leader.
    pub accepted: Epoch,
    /// currentEpoch: the latest epoch with whose leader this server has synchronized.
    pub current: Epoch,
}

/// The state from which a member starts. The tree was rebuilt from the whole log, and the log was
/// synced once, because recovery may have read it from the page cache.
#[derive(Clone, Debug, Default)]
pub struct Recovered {
    pub epochs: Epochs,
    /// The last transaction in the log, or the zxid of the snapshot if the log has none after it.
    pub last: Zxid,
    /// The zxid after which the log has no gap: a snapshot that came from a leader, or the
    /// beginning.
    pub log_from: Zxid,
    /// The last transactions, up to `last`, without a gap.
    pub history: Vec<(Zxid, Bytes)>,
    /// The zxid before the first transaction of `history`.
    pub history_base: Zxid,
}

/// The state that all roles share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) me: ServerId,
    pub(crate) settings: Settings,
    pub(crate) ensemble: Ensemble,
    pub(crate) epochs: Epochs,
    pub(crate) timers: Timers,
    pub(crate) now_ms: u64,
    /// The largest acceptedEpoch that a member has sent.
    pub(crate) accepted_seen: Epoch,
    /// Servers that are LOOKING, by their last vote on the link between the election ports. Bounded
    /// by the mesh.
    pub(crate) looking: BTreeSet<ServerId>,
    pub(crate) renewals: Renewals,
    /// The number of durable steps other than appends that are not complete.
    pub(crate) steps_open: usize,
    /// The result of the last election; also the reply to other servers' notifications.
    pub(crate) vote: Vote,
    /// Our history cannot be repaired with DIFF or TRUNC.
    pub(crate) needs_snapshot: bool,
    /// The only voter of its ensemble, without links to other servers and without epochs on disk.
    pub(crate) is_standalone: bool,
    random: u64,
}

/// The maximum difference between the epochs of two servers of an ensemble: more than any number of
/// elections that a server can have missed. A larger difference is an error or an attack, and would
/// use up the epoch numbers.
const EPOCH_LEAP: i64 = 1 << 20;

impl Shared {
    pub(crate) fn new(
        me: ServerId,
        settings: Settings,
        ensemble: Ensemble,
        epochs: Epochs,
        seed: u64,
    ) -> Shared {
        Shared {
            me,
            settings,
            ensemble,
            epochs,
            accepted_seen: epochs.accepted,
            looking: BTreeSet::new(),
            renewals: Renewals::default(),
            timers: Timers::default(),
            now_ms: 0,
            steps_open: 0,
            vote: Vote {
                leader: ServerId::NONE,
                zxid: Zxid::ZERO,
                round: 0,
                peer_epoch: epochs.current,
            },
            needs_snapshot: false,
            is_standalone: false,
            random: seed | 1,
        }
    }

    /// Returns the largest epoch that is accepted from another server.
    pub(crate) fn epoch_in_reach(&self) -> Epoch {
        Epoch(self.epochs.accepted.0.saturating_add(EPOCH_LEAP))
    }

    /// Returns a random number (xorshift; nothing depends on its quality).
    pub(crate) fn random(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

/// The state and the outputs that a role works with.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a mut Shared,
    pub(crate) ledger: &'a mut Ledger,
    pub(crate) out: &'a mut Vec<Output>,
}

impl Context<'_> {
    pub(crate) fn send(&mut self, link: LinkId, packet: Packet) {
        self.out.push(Output::Link(LinkOp::Send { link, packet }));
    }

    pub(crate) fn hang_up(&mut self, link: LinkId, reason: Hangup) {
        self.out.push(Output::Link(LinkOp::Hangup { link, reason }));
    }

    pub(crate) fn write_accepted(&mut self, epoch: Epoch) {
        self.shared.steps_open += 1;
        self.out.push(Output::Durable(DurableStep::WriteAcceptedEpoch(epoch)));
    }

    pub(crate) fn write_current(&mut self, epoch: Epoch) {
        self.shared.steps_open += 1;
        self.out.push(Output::Durable(DurableStep::WriteCurrentEpoch(epoch)));
    }

    pub(crate) fn set_timer(&mut self, timer: Timer, in_ms: u64) {
        let at_ms = self.shared.now_ms + in_ms;
        self.shared.timers.set(timer, at_ms);
    }
}

/// Whether a role continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Stay,
    Look(Reason),
}
