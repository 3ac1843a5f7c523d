//! Inputs and outputs of the engine.

use std::net::SocketAddr;
use std::sync::Arc;

use ironkeeper_proto::{ServerId, SessionId, Zxid};
use ironkeeper_tree::SnapshotWalk;
use ironkeeper_zab::{
    Durable, DurableStep, Ensemble, LinkId, LinkOp, LogQuery, Reason, Settings, Status,
};

use crate::conn::{Conn, Submit};
use crate::recover::Recovered;
use crate::snapshot::SnapshotJob;

/// An event that the engine processes, see [`crate::Engine::step`].
#[derive(Debug)]
pub enum Input {
    /// A request or an event of a client connection.
    Submit(Submit),
    /// The log thread has completed a step. If the step recovered a state from the files, the
    /// engine replaces its tree first.
    Durable(Durable<Box<Recovered>>),
    /// The snapshot is written or abandoned; its walk is returned to the engine.
    SnapshotDone(SnapshotWalk),
    /// The administrator requests a snapshot.
    TakeSnapshot,
    /// The administrator ends this session, as if it had expired.
    ExpireSession(SessionId),
    /// An input of ZAB: an event of a link, or the result of a log query.
    Peer(ironkeeper_zab::Input),
    /// The snapshot for a learner is sent or abandoned; its walk is returned to the engine.
    SnapshotSent(SnapshotWalk),
}

/// A request of the engine to its driver. The driver performs outputs in order.
#[derive(Debug)]
pub enum Output {
    /// An item for the log thread, which executes items in order.
    Log(LogItem),
    /// Write this snapshot and report [`Input::SnapshotDone`].
    Snapshot(Box<SnapshotJob>),
    /// The task of this connection must run: the connection has output, reads to serve, or is to be
    /// closed.
    Wake(Arc<Conn>),
    /// A warning for the operator, which the driver logs.
    Warn(Warning),
    /// A session has ended; for the server's message log. Emitted by the server that the client was
    /// connected to, and by the leader or the standalone server.
    SessionEnded(Box<SessionEnd>),
    /// The server must stop; the text is the reason, for the operator.
    Halt(String),
    /// For the driver of an ensemble member. A standalone server never emits this output.
    Peers(ToPeers),
}

/// An item of the log thread. `S` is the snapshot to install, see [`DurableStep`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogItem<S = LinkId> {
    /// A durable step. The log thread reports it with [`Input::Durable`], except for
    /// [`DurableStep::WriteMembers`].
    Step(DurableStep<S>),
    /// Begins a new log file with the next append.
    Roll,
}

impl<S> LogItem<S> {
    /// Replaces the snapshot to install, see [`DurableStep::with_snapshot`].
    ///
    /// # Errors
    /// `find` has no snapshot.
    pub fn with_snapshot<T, E>(
        self,
        find: impl FnOnce(S) -> Result<T, E>,
    ) -> Result<LogItem<T>, E> {
        Ok(match self {
            LogItem::Step(step) => LogItem::Step(step.with_snapshot(find)?),
            LogItem::Roll => LogItem::Roll,
        })
    }
}

/// A request of an ensemble member to the links to other servers and to the readers of the log.
#[derive(Debug)]
pub enum ToPeers {
    Link(LinkOp),
    /// Sends this snapshot on the link, after everything sent there so far, in the format for
    /// learners (see [`SnapshotJob::encode_learner_head`]). The driver reports
    /// [`Input::SnapshotSent`], also if the link closes meanwhile.
    SendSnapshot {
        link: LinkId,
        job: Box<SnapshotJob>,
    },
    ReadLog(LogQuery),
    /// The role has changed. The engine has already closed the client connections; whether the
    /// server accepts new ones is in [`crate::Database::serving`].
    Role {
        status: Status,
        reason: Option<Reason>,
    },
}

/// A warning for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// A request exceeded a quota. At most one warning for each quota in 15 seconds.
    QuotaExceeded {
        path: String,
        resource: QuotaResource,
        /// The count after the request.
        used: i64,
        limit: i64,
        /// Whether the request was rejected (a hard limit) or not (a soft limit).
        is_hard: bool,
    },
    /// After this transaction the tree of this server differs from the leader's. Emitted once;
    /// `mntr` counts further mismatches.
    DigestMismatch { zxid: Zxid },
}

/// What a quota limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QuotaResource {
    Nodes,
    Bytes,
}

/// The end of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionEnd {
    pub session: SessionId,
    /// The last address of its client, if the client was connected to this server.
    pub client: Option<SocketAddr>,
    pub timeout_ms: i32,
    /// The number of ephemeral nodes that were deleted with the session.
    pub ephemerals: usize,
    /// True if the session expired, false if its client closed it.
    pub expired: bool,
}

/// The configuration and recovered ZAB state of an ensemble member.
#[derive(Debug)]
pub struct MemberStart {
    pub me: ServerId,
    pub settings: Settings,
    pub ensemble: Ensemble,
    /// The epochs, the end of the log and its last transactions.
    pub recovered: ironkeeper_zab::Recovered,
}
