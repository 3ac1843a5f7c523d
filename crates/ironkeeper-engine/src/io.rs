//! What goes into the engine and what comes out of it.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use ironkeeper_proto::{Epoch, Membership, ServerId, SessionId, Zxid};
use ironkeeper_tree::SnapshotWalk;
use ironkeeper_zab::{Durable, Ensemble, LinkId, Reason, Settings, Status};

use crate::conn::{Conn, Submit};
use crate::recover::Recovered;
use crate::snapshot::SnapshotJob;

/// What can happen to the engine.
#[derive(Debug)]
pub enum Input {
    /// A client wants something.
    Submit(Submit),
    /// The log survives a power loss up to here.
    Flushed(Zxid),
    /// The snapshot is written (or given up); its walk comes home.
    SnapshotDone(SnapshotWalk),
    /// Somebody asks for a snapshot now.
    TakeSnapshot,
    /// The session is to end now, as if it had been silent for too long.
    ExpireSession(SessionId),
    /// From another server, or the end of a durable step that is neither a flush nor has changed the
    /// tree: [`Durable::AcceptedEpoch`], [`Durable::CurrentEpoch`], [`Durable::CannotTruncate`].
    Peer(ironkeeper_zab::Input),
    /// The log was cut, or a leader's tree installed, and this is what the files hold now. `done` is
    /// [`Durable::Truncated`] or [`Durable::Installed`]; the broadcast hears of it after the exchange.
    Rebuilt { state: Box<Recovered>, done: Durable },
    /// A tree sent to a learner is through (or given up); its walk comes home.
    SnapshotSent(SnapshotWalk),
}

/// What the engine wants done, in this order.
#[derive(Debug)]
pub enum Output {
    /// Append to the log and report [`Input::Flushed`] after a sync.
    Append { zxid: Zxid, txn: Bytes },
    /// Begin a new log file with the next append.
    Roll,
    /// Write this snapshot and report [`Input::SnapshotDone`].
    Snapshot(Box<SnapshotJob>),
    /// The connection has output, or reads to serve, or is to be closed.
    Wake(Arc<Conn>),
    /// Something the operator should know.
    Warn(String),
    /// For the log. Comes from the server that the client was connected to, and from the one that
    /// decides about sessions.
    SessionEnded(Box<SessionEnd>),
    /// Nothing can go on: the reason is for the operator.
    Halt(String),
    /// For the links to other servers. Only these come: `Dial`, `Hangup`, `Notify`, `Send` and
    /// `ReceiveSnapshot`.
    Peer(ironkeeper_zab::Output),
    /// Behind what was sent so far on this link goes this tree, in the form for learners (see
    /// [`SnapshotJob::encode_learner_head`]). To be reported with [`Input::SnapshotSent`], also when
    /// the link breaks in between.
    SendSnapshot { link: LinkId, job: Box<SnapshotJob> },
    /// To be done in order with [`Output::Append`].
    Durable(DurableStep),
    /// Find this transaction in the log and read what follows it. The answer is
    /// [`ironkeeper_zab::Input::LogRead`].
    ReadLog { link: LinkId, after: Zxid },
    /// The role has changed, to be logged with its reason. Connections have been told already;
    /// whether new ones are welcome is what [`crate::Database::serving`] says.
    Role { status: Status, reason: Option<Reason> },
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    pub session: SessionId,
    /// Where its client was connected from last, if it was connected to this server.
    pub client: Option<SocketAddr>,
    pub timeout_ms: i32,
    /// Ephemeral nodes that were deleted with it.
    pub ephemerals: usize,
    /// It was silent for too long; otherwise its client has closed it.
    pub expired: bool,
}

/// A step of the log thread other than an append. The first four are answered when they are durable;
/// the members need no answer, but have to be written down before anything that follows is done.
#[derive(Debug)]
pub enum DurableStep {
    /// Answered with [`Durable::AcceptedEpoch`] in an [`Input::Peer`].
    WriteAcceptedEpoch(Epoch),
    /// Answered with [`Durable::CurrentEpoch`] in an [`Input::Peer`].
    WriteCurrentEpoch(Epoch),
    /// Make the log end at this transaction, drop snapshots above it and recover again. Answered with
    /// [`Input::Rebuilt`], or with [`Durable::CannotTruncate`] in an [`Input::Peer`].
    Truncate(Zxid),
    /// Make the tree that was received on this link ours: first what the log has above `zxid` goes,
    /// then the snapshot appears, then the older files go. Answered with [`Input::Rebuilt`].
    InstallSnapshot { link: LinkId, zxid: Zxid },
    /// These members are proposed.
    ConfigProposed(Box<Membership>),
    /// These members are in force.
    ConfigCommitted(Box<Membership>),
    /// The members that were proposed never came to be.
    ConfigWithdrawn,
}

/// What makes a server a member of an ensemble.
#[derive(Debug)]
pub struct MemberStart {
    pub me: ServerId,
    pub settings: Settings,
    pub ensemble: Ensemble,
    /// Epochs, the end of the log and the last transactions in it.
    pub recovered: ironkeeper_zab::Recovered,
}
