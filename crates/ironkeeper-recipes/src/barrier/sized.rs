//! A double barrier whose number of members is in the data of its node, not in the programs.
//!
//! # On the tree
//! ```text
//! /barriers/job                      persistent; its data is the number: "3"
//!   _c_<uuid>-member                 ephemeral: somebody inside
//!   ready                            persistent: the number is complete, all may go on
//! ```
//!
//! # Steps
//! As the [double barrier](super::DoubleBarrier), with one more step: a waiting member also watches
//! the data, and evaluates again when the number changes. [`SizedBarrier::set_size`] writes the
//! number; an operator with a shell may do so as well.
//!
//! # Guarantees
//! Those of the double barrier. Entering costs one watch event per waiting member, and one more for
//! each change of the number. The data watch is removed from the server when the wait ends.
//!
//! # When things break
//! As with the double barrier. If the node does not exist, entering fails with
//! [`ErrorKind::NoNode`]; if its data is not a number above 0, with [`RecipeError::Malformed`].

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Version};

use super::gathering::{Gathering, Membership, Size};
use crate::error::{RecipeError, Result};
use crate::place::{create_containers, patient};

/// A barrier for the number of members that its node contains.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::barrier::SizedBarrier;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let barrier = SizedBarrier::new(&client, "/barriers/job");
///     barrier.set_size(5).await?;
///     let waiting = tokio::spawn({
///         let barrier = barrier.clone();
///         async move { barrier.enter().await }
///     });
///     // There are fewer workers than was thought.
///     barrier.set_size(1).await?;
///     waiting.await??.leave().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SizedBarrier {
    gathering: Gathering,
}

impl SizedBarrier {
    /// Creates a barrier on `path`. Sends no request.
    pub fn new(client: &Client, path: impl Into<String>) -> SizedBarrier {
        let (client, path) = (client.clone(), path.into());
        SizedBarrier { gathering: Gathering { client, path, size: Size::InData } }
    }

    /// Returns the path of the barrier.
    pub fn path(&self) -> &str {
        &self.gathering.path
    }

    /// Writes the number of members, and creates the barrier if it does not exist.
    pub async fn set_size(&self, size: usize) -> Result<()> {
        if size == 0 {
            return Err(RecipeError::Misuse("a barrier for nobody: its size is 0".to_owned()));
        }
        let (client, path, data) = (&self.gathering.client, self.path(), size.to_string());
        loop {
            match client.retry(&patient(), || client.set(path, &data, Version::Any)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
            let mode = CreateMode::Persistent;
            match client.retry(&patient(), || client.create(path, &data, mode)).await {
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NodeExists => {}
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    create_containers(client, path).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
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
    pub async fn enter_within(&self, patience: Duration) -> Result<Option<Membership>> {
        match tokio::time::timeout(patience, self.enter()).await {
            Ok(entered) => entered.map(Some),
            Err(_) => Ok(None),
        }
    }
}
