//! The inputs and outputs of [`crate::Zab`].

use std::fmt;

use bytes::Bytes;
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::quorum_packet::{LeaderMessage, LearnerMessage};
use ironkeeper_proto::{Epoch, Membership, Notification, Packet, ServerId, Zxid};

use crate::plan::LogRead;

/// A link: a connection to another server, on either port. The driver assigns the ids and never
/// reuses one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// One of the two ports on which servers connect to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    Election,
    Quorum,
}

/// An event that the driver passes to [`crate::Zab::step`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time has passed. Required at [`crate::Zab::deadline_ms`], without effect at other times.
    Timer,
    /// A dial has succeeded (`link`) or failed (`None`). On the election port the driver has
    /// already sent our opening.
    Dialed {
        peer: ServerId,
        port: Port,
        link: Option<LinkId>,
    },
    /// A server has dialed our election port and sent its opening.
    Opened {
        link: LinkId,
        opening: Opening,
        /// Whether the source is a known address of the server: one from its line in a
        /// configuration, or the address of a link with it.
        from_its_address: bool,
    },
    Notification {
        link: LinkId,
        notification: Notification,
    },
    /// A server has dialed our quorum port.
    Accepted {
        link: LinkId,
    },
    Packet {
        link: LinkId,
        packet: Packet,
    },
    /// The snapshot after a SNAP packet was received completely, into a file of its own.
    SnapshotReceived {
        link: LinkId,
    },
    /// A part of a snapshot was received or sent on this link. The peer is alive, although it sends
    /// no packets until the snapshot is complete.
    TreeMoved {
        link: LinkId,
    },
    /// The result of a [`LogQuery`].
    LogRead {
        link: LinkId,
        read: LogRead,
    },
    /// The peer closed the link, or the link broke. Not reported after [`LinkOp::Hangup`], which
    /// also ends all other inputs of the link.
    Closed {
        link: LinkId,
    },
    Done(Durable),
}

/// The completion of a [`DurableStep`]. `R` is the state recovered from the files, which the layer
/// above needs and [`crate::Zab`] does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable<R = ()> {
    /// The log up to this zxid survives a power loss.
    Flushed(Zxid),
    /// The log ends at `zxid`, no snapshot is newer, and `state` is the content of the files.
    Truncated {
        zxid: Zxid,
        state: R,
    },
    /// The log cannot be truncated to this zxid: it does not contain the transaction, or there is
    /// no snapshot from which to rebuild the state. The files are unchanged.
    CannotTruncate(Zxid),
    /// The leader's snapshot is installed, and `state` is the content of the files.
    Installed {
        zxid: Zxid,
        state: R,
    },
    AcceptedEpoch(Epoch),
    CurrentEpoch(Epoch),
}

/// An action that [`crate::Zab`] requests, grouped by the part of the server that performs it. The
/// order counts across all groups: a packet after a durable step refers to the state after the
/// step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// For the links to other servers.
    Link(LinkOp),
    /// For the log thread.
    Durable(DurableStep),
    /// For the threads that read the log while it is written.
    ReadLog(LogQuery),
    /// For the layer above: the replicated state and its clients.
    Up(Upcall),
}

/// An operation on the links to other servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkOp {
    /// Connect to a member and report [`Input::Dialed`]. `hint` is the address that the member last
    /// sent in its opening; the driver dials it if the configuration has no reachable address.
    Dial {
        peer: ServerId,
        port: Port,
        hint: Option<Box<String>>,
    },
    Hangup {
        link: LinkId,
        reason: Hangup,
    },
    Notify {
        link: LinkId,
        notification: Box<Notification>,
    },
    Send {
        link: LinkId,
        packet: Packet,
    },
    /// Receive the next bytes on this link as a snapshot, into a file of its own, and report
    /// [`Input::SnapshotReceived`].
    ReceiveSnapshot {
        link: LinkId,
    },
}

/// A change on disk, executed by the log thread, one after the other.
///
/// `S` identifies the snapshot to install: [`crate::Zab`] uses the link that received it, the log
/// thread needs the file. [`DurableStep::with_snapshot`] converts between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DurableStep<S = LinkId> {
    /// Append to the log and report [`Durable::Flushed`] when the transaction survives a power
    /// loss.
    Append { zxid: Zxid, txn: Bytes },
    /// Store acceptedEpoch and report [`Durable::AcceptedEpoch`].
    WriteAcceptedEpoch(Epoch),
    /// Store currentEpoch and report [`Durable::CurrentEpoch`].
    WriteCurrentEpoch(Epoch),
    /// Truncate the log to this zxid, delete newer snapshots, recover again and report
    /// [`Durable::Truncated`]; or change nothing and report [`Durable::CannotTruncate`].
    Truncate(Zxid),
    /// Replace the history by the leader's snapshot and report [`Durable::Installed`]. The log
    /// above `zxid` is deleted first, then the snapshot is renamed into place, then older files are
    /// deleted.
    InstallSnapshot { zxid: Zxid, snapshot: S },
    /// Store the membership before the next step begins: a server that acknowledges a reconfig must
    /// know the new membership after a restart. Reports nothing.
    WriteMembers(MembersChange),
}

/// A change of the stored membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MembersChange {
    /// A reconfig to this membership is proposed.
    Proposed(Box<Membership>),
    /// This membership is in force.
    Committed(Box<Membership>),
    /// The proposed membership was never committed.
    Withdrawn,
}

impl<S> DurableStep<S> {
    /// Replaces the snapshot of [`DurableStep::InstallSnapshot`] by the result of `find`; other
    /// steps are unchanged.
    ///
    /// # Errors
    /// Returns the error of `find`.
    pub fn with_snapshot<T, E>(
        self,
        find: impl FnOnce(S) -> Result<T, E>,
    ) -> Result<DurableStep<T>, E> {
        Ok(match self {
            DurableStep::InstallSnapshot { zxid, snapshot } => {
                DurableStep::InstallSnapshot { zxid, snapshot: find(snapshot)? }
            }
            DurableStep::Append { zxid, txn } => DurableStep::Append { zxid, txn },
            DurableStep::WriteAcceptedEpoch(epoch) => DurableStep::WriteAcceptedEpoch(epoch),
            DurableStep::WriteCurrentEpoch(epoch) => DurableStep::WriteCurrentEpoch(epoch),
            DurableStep::Truncate(zxid) => DurableStep::Truncate(zxid),
            DurableStep::WriteMembers(change) => DurableStep::WriteMembers(change),
        })
    }
}

/// A query of the log: does it contain the transaction `after`, and which transactions follow? The
/// result is [`Input::LogRead`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// The link of the learner that needs the transactions.
    pub link: LinkId,
    pub after: Zxid,
}

/// A call to the layer above ZAB.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Upcall {
    /// Apply this transaction: it is committed.
    Commit { zxid: Zxid, txn: Bytes },
    /// Apply this transaction, although a later leader may undo it: the state must match the end of
    /// the log. No client is served before [`Upcall::Became`] with a role that serves.
    FastForward { zxid: Zxid, txn: Bytes },
    /// Send a snapshot of the state after transaction `zxid`, after everything already sent on this
    /// link.
    SendSnapshot { link: LinkId, zxid: Zxid },
    /// Reply to the leader's ping with a [`Packet::Pong`] that contains the report of this learner.
    Pong { link: LinkId, zxid: Zxid },
    /// On the leader: the report of a learner, not empty.
    Report(Bytes),
    /// On the leader: a message that a learner sent with [`crate::Zab::send_to_leader`].
    FromLearner { link: LinkId, message: LearnerMessage },
    /// A message of the leader: on a learner one that the leader sent, on the leader itself one
    /// that it addressed to its own clients ([`crate::Zab::reply_confirmed`] without a link).
    FromLeader(LeaderMessage),
    /// The role has changed.
    Became { status: Status, reason: Option<Reason> },
    /// A new membership is in force: apply it to the state, after the transactions committed so
    /// far.
    MembersCommitted(Box<Membership>),
}

/// Pushes the upcall and the durable step for a membership that is now in force.
pub(crate) fn push_members_committed(out: &mut Vec<Output>, members: Membership) {
    let members = Box::new(members);
    out.push(Output::Up(Upcall::MembersCommitted(members.clone())));
    out.push(Output::Durable(DurableStep::WriteMembers(MembersChange::Committed(members))));
}

/// The role of a server, as clients see it. Only the last three serve clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// The server has no leader, or is not yet up to date with it.
    Looking,
    Following {
        leader: ServerId,
        epoch: Epoch,
    },
    Observing {
        leader: ServerId,
        epoch: Epoch,
    },
    Leading {
        epoch: Epoch,
    },
}

/// Why this server closes a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// Of two servers the one with the larger id dials.
    LargerIdDials,
    /// A newer link of the same peer replaces it, or it is dead.
    Replaced,
    /// The peer already has a link, and that link is alive.
    Connected,
    /// The peer claims the id of a connected member, from another address than the member's.
    OtherAddress,
    /// The peer claims this server's id.
    OwnId,
    TooManyStrangers,
    /// This server does not lead.
    NotLeading,
    /// The role that used the link has ended.
    RoleEnded,
    /// The peer violated the protocol.
    Protocol(&'static str),
    /// The peer timed out: it sent no packets, or no acknowledgement.
    Silent,
    /// The peer's membership is newer than the one in force here.
    NewerConfig,
    /// The learner has a longer history than this leader, and should lead instead.
    LearnerAhead,
    /// The leader's epoch is smaller than our acceptedEpoch.
    OldEpoch,
    /// Our history cannot be repaired with DIFF or TRUNC: reconnect and request a snapshot.
    NeedSnapshot,
}

/// Why a role has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Started,
    /// The elected server could not be reached.
    LeaderUnreachable,
    /// Votes received after the election name another leader.
    ChoiceLost,
    /// The elected server closed the link more than once: it does not lead.
    LeaderHangsUp,
    /// The link to the leader broke.
    LeaderGone,
    LeaderSilent,
    /// The leader violated the protocol.
    LeaderProtocol(&'static str),
    /// The leader's epoch is smaller than our acceptedEpoch.
    OldEpoch,
    /// No quorum agreed on an epoch in time.
    NoEpochQuorum,
    /// No quorum acknowledged NEWLEADER in time.
    NoSyncQuorum,
    /// The connected followers are no quorum any more.
    QuorumLost,
    /// A voter's acceptedEpoch is larger than our epoch, so it could not follow us.
    LaterEpochPromised,
    /// The counter of the epoch has reached its maximum.
    CounterUsedUp,
    /// The membership, or this server's role in it, has changed.
    Reconfigured,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reason::Started => "the server has started",
            Reason::LeaderUnreachable => "the chosen leader cannot be reached",
            Reason::ChoiceLost => "later votes name another leader than the chosen one",
            Reason::LeaderHangsUp => "the chosen leader hangs up: it does not lead",
            Reason::LeaderGone => "the connection to the leader broke",
            Reason::LeaderSilent => "the leader has been silent for too long",
            Reason::LeaderProtocol(what) => {
                return write!(f, "the leader broke the protocol: {what}");
            }
            Reason::OldEpoch => "the leader's epoch is older than one promised before",
            Reason::NoEpochQuorum => "no quorum agreed on an epoch in time",
            Reason::NoSyncQuorum => "no quorum took over the history in time",
            Reason::QuorumLost => "too few followers are left",
            Reason::LaterEpochPromised => "a voter has promised a later epoch",
            Reason::CounterUsedUp => "all transaction ids of the epoch are used",
            Reason::Reconfigured => "the members have changed",
        })
    }
}
