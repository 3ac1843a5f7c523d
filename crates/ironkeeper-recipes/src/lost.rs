//! The reasons for the end of a guard without a release.

use std::fmt;

/// The reason why a guard was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Lost {
    /// The session has ended, and its ephemeral nodes are deleted.
    SessionEnded,
    /// Another client deleted the node.
    NodeDeleted,
    /// The connection was lost, and the recipe treats that as a loss.
    Suspended,
    /// The lease time has passed.
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
