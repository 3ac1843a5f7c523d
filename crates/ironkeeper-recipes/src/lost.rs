//! How something that was held comes to an end without being released.

use std::fmt;

/// Why a guard is not valid any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The session is over, and its ephemeral nodes with it.
    SessionEnded,
    /// The node was deleted by somebody else.
    NodeDeleted,
    /// The connection broke, and the guard was told to take that for a loss.
    Suspended,
    /// The time for which it was granted has passed.
    Expired,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lost::SessionEnded => "lost: the session is over",
            Lost::NodeDeleted => "lost: the node was deleted by somebody else",
            Lost::Suspended => "lost: the connection broke",
            Lost::Expired => "lost: the lease has expired",
        })
    }
}

impl std::error::Error for Lost {}
