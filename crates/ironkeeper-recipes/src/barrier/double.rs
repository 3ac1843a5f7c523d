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
//! Enter: create a node; watch `ready`; list the children. Whoever finds the number complete creates
//! `ready`. The others wait for it.
//!
//! Leave: list the children. The one with the lowest name stays, waits for the highest, and looks
//! again until it is alone; then it deletes `ready` and goes. The others go at once and wait for the
//! lowest.
//!
//! # Guarantees
//! Nobody goes on before the number was complete: a reconnect, or a `ready` that an earlier round left behind, is
//! no reason, and no event but that of a `ready` which is written while we wait. More members than the number may come: they pass as long as somebody
//! of the round is inside. Nobody returns from leaving before all who were inside have left.
//!
//! Entering costs one watch event per waiting member, when the last one comes, and none before. A
//! member that leaves wakes one other, the last wakes all. Participants of Curator and kazoo count as
//! ours do; they go on when they find `ready`, however old it is.
//!
//! # When things break
//! - Disconnected: the wait goes on after the reconnect.
//! - Session over: the wait ends with an error; for the others the member has left.
//! - Our node deleted by somebody else: [`RecipeError::NodeGone`] at the next look.
//! - A future dropped, or given up after a time: the member is not inside any more. Others may have
//!   counted it and gone on.

use std::time::Duration;

use ironkeeper_client::Client;

use super::gathering::{Gathering, Membership, Size};
use crate::error::{RecipeError, Result};

/// A barrier for a number of members.
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
    /// A barrier on `path` for `size` members, who should all say the same number. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, size: usize) -> Result<DoubleBarrier> {
        if size == 0 {
            return Err(RecipeError::Misuse("a barrier for nobody: its size is 0".to_owned()));
        }
        let (client, path) = (client.clone(), path.into());
        Ok(DoubleBarrier { gathering: Gathering { client, path, size: Size::Fixed(size) } })
    }

    /// The path of the barrier.
    pub fn path(&self) -> &str {
        &self.gathering.path
    }

    /// How many are inside or waiting to be.
    pub async fn count(&self) -> Result<usize> {
        self.gathering.count().await
    }

    /// Waits until all are here.
    pub async fn enter(&self) -> Result<Membership> {
        self.gathering.enter().await
    }

    /// Waits this long at most. `None` if not all came: we have left then.
    #[doc(alias = "enter_timeout")]
    pub async fn enter_within(&self, patience: Duration) -> Result<Option<Membership>> {
        match tokio::time::timeout(patience, self.enter()).await {
            Ok(entered) => entered.map(Some),
            Err(_) => Ok(None),
        }
    }
}
