//! Client connections.

use std::net::SocketAddr;

use ironkeeper_proto::{SessionId, Xid, Zxid};

/// A client connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Connection {
    pub peer: SocketAddr,
    /// Requests that wait in the connection's lane.
    pub queued: usize,
    /// Whether the server reads from the socket.
    pub is_read: bool,
    pub has_unsent: bool,
    pub packets_received: u64,
    pub packets_sent: u64,
    /// `None` before the connection has a session.
    pub session: Option<SessionState>,
}

/// A session, and the requests of its connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionState {
    pub id: SessionId,
    pub timeout_ms: i32,
    /// Apache's short name of the last operation.
    pub last_operation: &'static str,
    /// The time of the connection by the wall clock.
    pub established_ms: i64,
    /// Negative after a reset of the statistics.
    pub last_xid: Xid,
    pub last_zxid: Zxid,
    /// The time of the last reply by the monotonic clock.
    pub last_response_ms: u64,
    pub last_latency_ms: u64,
    pub min_latency_ms: u64,
    pub average_latency_ms: u64,
    pub max_latency_ms: u64,
}
