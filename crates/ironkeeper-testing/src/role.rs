//! The role of a server in its ensemble.

use std::fmt;

use ironkeeper_zab::Status;

/// The role of a member of an ensemble.
///
/// ```
/// use ironkeeper_testing::{Role, TestCluster};
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let cluster = TestCluster::start(3)?;
///     let leaders = cluster.ids().filter(|id| cluster.server(*id).role() == Role::Leader);
///     assert_eq!(leaders.count(), 1);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// The server is not running.
    Stopped,
    /// The server is running without a leader and does not serve clients.
    Looking,
    /// The server leads the ensemble.
    Leader,
    /// The server follows the leader and votes.
    Follower,
    /// The server follows the leader and does not vote.
    Observer,
}

impl Role {
    /// Returns true if a server in this role serves clients.
    ///
    /// ```
    /// use ironkeeper_testing::Role;
    ///
    /// assert!(Role::Observer.serves() && !Role::Looking.serves());
    /// ```
    pub fn serves(self) -> bool {
        matches!(self, Role::Leader | Role::Follower | Role::Observer)
    }
}

impl From<Status> for Role {
    fn from(status: Status) -> Role {
        match status {
            Status::Looking => Role::Looking,
            Status::Leading { .. } => Role::Leader,
            Status::Following { .. } => Role::Follower,
            Status::Observing { .. } => Role::Observer,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Role::Stopped => "stopped",
            Role::Looking => "looking",
            Role::Leader => "leader",
            Role::Follower => "follower",
            Role::Observer => "observer",
        })
    }
}
