//! What goes into the machine and what comes out of it.

use std::fmt;

use bytes::Bytes;
use ironkeeper_proto::election::Opening;
use ironkeeper_proto::quorum_packet::{ForwardedRequest, Touches};
use ironkeeper_proto::{Epoch, Membership, Notification, Packet, ServerId, SessionId, Zxid};

use crate::plan::LogRead;

/// A connection to another server, named by the driver. A name is never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(pub u64);

/// Which of a server's two ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    Election,
    Quorum,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time has passed. Harmless at any moment; needed at [`crate::Zab::deadline_ms`].
    Timer,
    /// A dial has ended, with a connection or without. On the election port the driver has already
    /// sent our opening.
    Dialed {
        peer: ServerId,
        port: Port,
        link: Option<LinkId>,
    },
    /// Somebody dialled our election port and has said who it is.
    Opened {
        link: LinkId,
        opening: Opening,
        /// Whether it comes from an address at which the driver knows the server: one that its
        /// line in a configuration names, or that of a connection with it.
        from_its_address: bool,
    },
    Notification {
        link: LinkId,
        notification: Notification,
    },
    /// Somebody dialled our quorum port.
    Accepted {
        link: LinkId,
    },
    Packet {
        link: LinkId,
        packet: Packet,
    },
    /// The tree that followed a SNAP has arrived as a whole and is kept aside.
    SnapshotReceived {
        link: LinkId,
    },
    /// A piece of a tree has come in on this link, or has gone out: the other side is alive, though it says
    /// nothing else until the tree is through.
    TreeMoved {
        link: LinkId,
    },
    /// The answer to [`Output::ReadLog`].
    LogRead {
        link: LinkId,
        read: LogRead,
    },
    /// A connection is gone, without our asking. After [`Output::Hangup`] nothing comes from it any
    /// more.
    Closed {
        link: LinkId,
    },
    Done(Durable),
}

/// What is durable now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durable {
    /// The log up to here.
    Flushed(Zxid),
    /// The log ends here, no snapshot is newer, and the tree has gone back with them.
    Truncated(Zxid),
    /// The log cannot go back to there: it does not have that transaction, or nothing to rebuild the
    /// tree from. It is as it was.
    CannotTruncate(Zxid),
    /// The leader's tree has taken the place of ours, on disk and in memory.
    Installed(Zxid),
    AcceptedEpoch(Epoch),
    CurrentEpoch(Epoch),
}

/// What the world has to do, in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Write to the log and report [`Durable::Flushed`] when it will survive a power loss.
    Append {
        zxid: Zxid,
        txn: Bytes,
    },
    /// Apply: this transaction is history.
    Commit {
        zxid: Zxid,
        txn: Bytes,
    },
    /// Apply, though this may be undone: the tree has to be where the log is. Nobody is served until
    /// [`Status`] says so.
    FastForward {
        zxid: Zxid,
        txn: Bytes,
    },
    /// Write the promise down and report [`Durable::AcceptedEpoch`].
    WriteAcceptedEpoch(Epoch),
    /// Write down whose history we hold and report [`Durable::CurrentEpoch`].
    WriteCurrentEpoch(Epoch),
    /// Make the log end at this transaction, drop snapshots above it and rebuild the tree.
    Truncate(Zxid),
    /// Make the tree that was received on this link ours. Order matters: first what the log has above
    /// `zxid` goes, then the snapshot appears, then the tree is exchanged.
    InstallSnapshot {
        link: LinkId,
        zxid: Zxid,
    },
    /// Find this transaction in the log and read what follows it.
    ReadLog {
        link: LinkId,
        after: Zxid,
    },
    /// Connect to a member. The address it has last given itself may help if it is not in the
    /// configuration.
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
    /// Behind what was sent so far goes the tree as it is after transaction `zxid`.
    SendSnapshot {
        link: LinkId,
        zxid: Zxid,
    },
    /// What comes next on this link is a tree.
    ReceiveSnapshot {
        link: LinkId,
    },
    /// Answer the leader's ping with the sessions heard of since the last one.
    Pong {
        link: LinkId,
        zxid: Zxid,
    },
    /// To the leader: a learner's client wants this. A `sync` comes back with [`crate::Zab::sync`].
    Request {
        link: LinkId,
        from: ServerId,
        request: Box<ForwardedRequest>,
    },
    /// To the leader: may this session go on at that learner?
    Revalidate {
        link: LinkId,
        from: ServerId,
        session: SessionId,
        timeout_ms: i32,
    },
    /// To the leader: these sessions live.
    Touched {
        from: ServerId,
        touches: Touches,
    },
    /// To a learner: the answer to its oldest question about this session.
    Revalidated {
        session: SessionId,
        valid: bool,
    },
    /// The oldest `sync` of this server's clients is answered.
    SyncDone,
    /// A change of role, to be logged with its reason.
    Became {
        status: Status,
        reason: Option<Reason>,
    },
    /// These members are proposed. To be written down before anything that follows is done: a server
    /// that acknowledges the change must know of it after a restart.
    ConfigProposed(Box<Membership>),
    /// These members are in force. To be written down.
    ConfigCommitted(Box<Membership>),
    /// The members that were proposed never came to be.
    ConfigWithdrawn,
}

/// What a server is doing, as far as clients are concerned: only the last three serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Without a leader, or not yet up to date with it.
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

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hangup {
    /// Of two servers the one with the larger id dials.
    LargerIdDials,
    /// A newer connection has taken its place.
    Replaced,
    /// The peer is connected already, and that connection is alive.
    Connected,
    /// The peer calls itself a member that is connected, from an address that is not the member's.
    OtherAddress,
    /// The peer says it is us.
    OwnId,
    TooManyStrangers,
    /// We do not lead.
    NotLeading,
    /// The role it belonged to has ended.
    RoleEnded,
    /// The peer said what does not belong here.
    Protocol(&'static str),
    /// The peer is silent, or does not acknowledge.
    Silent,
    /// The peer has seen a newer configuration than the one in force here.
    NewerConfig,
    /// The peer has a longer history: it should lead.
    LearnerAhead,
    /// The leader's epoch is older than one we have promised to follow.
    OldEpoch,
    /// Our history cannot be mended piece by piece: come back and ask for the whole.
    NeedSnapshot,
}

/// Why a role has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Started,
    /// The chosen leader could not be reached.
    LeaderUnreachable,
    /// Votes that came after the election name another leader.
    ChoiceLost,
    /// The chosen leader has hung up more than once: it does not lead.
    LeaderHangsUp,
    /// The connection to the leader broke.
    LeaderGone,
    LeaderSilent,
    /// The leader said what does not belong there.
    LeaderProtocol(&'static str),
    /// The leader's epoch is older than one we have promised to follow.
    OldEpoch,
    /// Nobody came to agree on an epoch in time.
    NoEpochQuorum,
    /// No quorum took over the history in time.
    NoSyncQuorum,
    /// Too few followers are left.
    QuorumLost,
    /// A voter has promised a later epoch than ours and could not follow us.
    LaterEpochPromised,
    /// All transaction ids of the epoch are used.
    CounterUsedUp,
    /// The members, or our part among them, have changed.
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
