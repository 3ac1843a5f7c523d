//! The server as a whole.

use ironkeeper_metrics::Totals;
use ironkeeper_proto::{ServerId, Zxid};

/// The state of the server.
#[derive(Clone, Debug, PartialEq)]
pub struct ServerState {
    /// See [`version`](crate::version()).
    pub version: String,
    /// Latencies of requests in milliseconds.
    pub latency: Totals,
    pub packets_received: u64,
    pub packets_sent: u64,
    pub connections: usize,
    /// Requests in progress.
    pub outstanding: usize,
    /// The last transaction applied.
    pub zxid: Zxid,
    pub mode: Mode,
    pub nodes: usize,
    /// Sizes of proposals, if the server leads.
    pub proposal_sizes: Option<ProposalSizes>,
}

/// The role of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Standalone,
    /// A member without a leader; it serves reads at most.
    Looking,
    Leader,
    Follower,
    /// The member that sends the transactions to the observer.
    Observer {
        master: ServerId,
    },
}

impl Mode {
    /// Returns Apache's name for the mode of a server.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Standalone => "standalone",
            Mode::Looking => "read-only",
            Mode::Leader => "leader",
            Mode::Follower => "follower",
            Mode::Observer { .. } => "observer",
        }
    }

    /// Returns Apache's name for the state of a member among its peers.
    pub fn peer_state(self) -> Option<&'static str> {
        match self {
            Mode::Standalone => None,
            Mode::Looking => Some("looking"),
            Mode::Leader => Some("leading - broadcast"),
            Mode::Follower => Some("following - broadcast"),
            Mode::Observer { .. } => Some("observing - broadcast"),
        }
    }
}

/// The sizes of a leader's proposals in bytes; -1 before the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProposalSizes {
    pub last: i64,
    pub min: i64,
    pub max: i64,
}

/// Which requests the server serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    ReadsAndWrites,
    ReadsOnly,
    Nothing,
}
