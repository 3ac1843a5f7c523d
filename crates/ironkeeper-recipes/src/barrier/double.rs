//! A barrier that a number of members enter together and leave together. Curator's
//! `DistributedDoubleBarrier`.
//!
//! # On the tree
//! ```text
//! /barriers/job                      container, removed when empty
//!   _c_<uuid>-member                 ephemeral: somebody inside
//!   _c_<uuid>-member
//!   ready                            persistent: the number is complete, all may go on
//! ```
//!
//! # Steps
//! Enter: create a node; watch `ready`; list the children. A member that finds the number complete
//! creates `ready`. The others wait for it.
//!
//! Leave: list the children. The member with the lowest name keeps its node, waits for the member
//! with the highest name, and lists again until it is alone; then it deletes `ready` and its own
//! node. The other members delete their nodes at once and wait for the lowest.
//!
//! # Guarantees
//! No member enters before the number was complete: a reconnect or a `ready` left by an earlier
//! round does not open the barrier, and the only event that does is that of a `ready` written while
//! the member waits. More members than the number may come: they enter as long as a member of the
//! round is inside. No member returns from leaving before all members that were inside have left.
//!
//! Entering costs one watch event per waiting member, when the last member comes, and none before.
//! A member that leaves wakes at most one other member, the last one wakes all. Participants of
//! Curator and kazoo are counted as members; they enter when they find `ready`, however old it is.
//!
//! # When things break
//! - Disconnected: the wait continues after the reconnect.
//! - Session ended: the wait returns an error; for the other members this member has left.
//! - Own node deleted by another client: [`RecipeError::NodeGone`] at the next read.
//! - A future dropped, or a timeout: the member is not inside any more. Other members may have
//!   counted it and entered.

use std::time::Duration;

use ironkeeper_client::Client;

use super::gathering::{Gathering, Membership, Size};
use crate::error::{RecipeError, Result};

/// A barrier for a fixed number of members.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::barrier::DoubleBarrier;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let barrier = DoubleBarrier::new(&client, "/barriers/job", 2)?;
///     let other = tokio::spawn({
///         let barrier = barrier.clone();
///         async move { barrier.enter().await?.leave().await }
///     });
///     let inside = barrier.enter().await?; // both are here
///     inside.leave().await?; // both are done
///     other.await??;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "DistributedDoubleBarrier")]
pub struct DoubleBarrier {
    gathering: Gathering,
}

impl DoubleBarrier {
    /// Creates a barrier on `path` for `size` members. All members should use the same size. Sends
    /// no request.
    pub fn new(client: &Client, path: impl Into<String>, size: usize) -> Result<DoubleBarrier> {
        if size == 0 {
            return Err(RecipeError::Misuse("a barrier for nobody: its size is 0".to_owned()));
        }
        let (client, path) = (client.clone(), path.into());
        Ok(DoubleBarrier { gathering: Gathering { client, path, size: Size::Fixed(size) } })
    }

    /// Returns the path of the barrier.
    pub fn path(&self) -> &str {
        &self.gathering.path
    }

    /// Returns how many members are inside or wait to enter.
    pub async fn count(&self) -> Result<usize> {
        self.gathering.count().await
    }

    /// Waits until all members have come.
    pub async fn enter(&self) -> Result<Membership> {
        self.gathering.enter().await
    }

    /// Waits until all members have come, at most for `patience`. Returns `None` if the number was
    /// not complete in time: this member has left then.
    #[doc(alias = "enter_timeout")]
    pub async fn enter_within(&self, patience: Duration) -> Result<Option<Membership>> {
        match tokio::time::timeout(patience, self.enter()).await {
            Ok(entered) => entered.map(Some),
            Err(_) => Ok(None),
        }
    }
}
