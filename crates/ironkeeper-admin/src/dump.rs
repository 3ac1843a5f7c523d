//! Sessions, ephemerals and connections.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ironkeeper_proto::SessionId;

/// Items by the time at which they end, in milliseconds of the wall clock.
pub type Schedule<T> = BTreeMap<i64, Vec<T>>;

/// The sessions and connections by the time at which they end, and the ephemerals.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dump {
    pub sessions: Schedule<SessionId>,
    /// The paths of each session in order.
    pub ephemerals: Vec<(SessionId, Vec<String>)>,
    pub connections: Schedule<EndingConnection>,
}

/// A connection that ends at a certain time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndingConnection {
    pub peer: SocketAddr,
    /// [`SessionId::NONE`] before the connection has a session.
    pub session: SessionId,
}
