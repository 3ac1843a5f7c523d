//! Why a connection is closed.

use ironkeeper_proto::Zxid;
use thiserror::Error;

/// The reason for closing a connection. For the log; the client sees a closed socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum CloseReason {
    #[error("the client closed its session")]
    SessionClosed,
    #[error("the session expired")]
    SessionExpired,
    #[error("the session was refused: unknown, expired or wrong password")]
    SessionRefused,
    #[error("the session moved to another connection")]
    SessionMoved,
    #[error("frame length {0} is outside of 0..={1}; raise jute.maxbuffer if that is wanted")]
    FrameLength(i64, usize),
    #[error("the connect request is malformed")]
    BadConnect,
    #[error("the client has seen zxid {0}, this server only {1}; it must try another server")]
    ClientAhead(Zxid, Zxid),
    #[error("the frame is too short for a request header")]
    NoHeader,
    #[error("the auth request is malformed")]
    BadAuth,
    #[error("unknown or internal operation {0}")]
    BadOperation(i32),
    #[error("authentication failed")]
    AuthFailed,
    #[error("authentication is enforced and the client has not authenticated")]
    NotAdmitted,
    #[error("too many bytes of large requests are in work; see largeRequestMaxBytes")]
    LargeRequests,
    #[error("sessions are opened faster than connection_throttle_tokens allows")]
    ConnectionThrottled,
    #[error(
        "a request waited for longer than its session lives; see request_throttle_max_requests"
    )]
    StaleRequest,
    #[error("the client does not read: {0} bytes are waiting")]
    SlowReader(usize),
    #[error("the reply to a multiRead would be longer than {0} bytes")]
    ReplyLength(usize),
    #[error("this server has no leader at the moment; the client must try another server")]
    NotServing,
    #[error("this server has no leader and serves only those who ask for read-only")]
    OnlyReads,
    #[error("this server's part in the ensemble has changed")]
    RoleChanged,
    #[error("the disk is full: no session can be opened until there is room")]
    DiskFull,
    #[error("it was asked for")]
    Asked,
    #[error("the server shuts down")]
    Shutdown,
}
