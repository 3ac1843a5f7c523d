//! A barrier that one sets and removes, and that many wait at. Curator's `DistributedBarrier`.
//!
//! # On the tree
//! ```text
//! /barriers/maintenance        persistent: closed as long as it is there
//! /barriers/maintenance.receipts
//!   _c_<uuid>-receipt          ephemeral: of somebody who has set or removed the barrier
//! ```
//!
//! # Steps
//! 1. [`Barrier::set`] creates the node, [`Barrier::remove`] deletes it, each in one transaction with a
//!    write to a receipt, by which a try whose answer was lost is known.
//! 2. [`Barrier::wait`] lets its server catch up, reads and watches the node, and goes on when there is
//!    none. After an event it looks again.
//!
//! # Guarantees
//! Nobody passes a barrier that was set before the wait began and has not been removed since, whatever
//! server it asks. The removal costs one watch event per waiter, which is as few as can be: all of them
//! go on. Nothing is left on the server by those who gave up: the node is read, not looked for, so a
//! barrier that is not there gets no watch. Every [`Barrier::set`] and [`Barrier::remove`] takes place once. A node
//! with the children of another recipe is refused: [`RecipeError::OtherRecipe`](crate::RecipeError::OtherRecipe).
//!
//! # When things break
//! - Disconnected: the wait goes on after the reconnect, at the same or another server.
//! - Session over: the wait ends with an error. The barrier stays: its node belongs to nobody.
//! - The future of [`Barrier::wait`] dropped: nothing is left to withdraw.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Transaction, Version};

use crate::error::Result;
use crate::other_recipes;
use crate::place::{beside, create_containers, patient};
use crate::reads::children_or_none;
use crate::receipt::{Receipts, refusal};

/// A barrier on a path, set and removed by anybody.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::barrier::Barrier;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let barrier = Barrier::new(&client, "/barriers/maintenance");
///     barrier.set().await?;
///     let worker = tokio::spawn({
///         let barrier = barrier.clone();
///         async move { barrier.wait().await }
///     });
///     barrier.remove().await?;
///     worker.await??;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "DistributedBarrier")]
pub struct Barrier {
    client: Client,
    path: String,
    receipts: Arc<OnceLock<Receipts>>,
}

impl Barrier {
    /// A barrier on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Barrier {
        Barrier { client: client.clone(), path: path.into(), receipts: Arc::default() }
    }

    /// The path of the barrier.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Closes the barrier, once. Says whether it was open until now.
    #[doc(alias = "setBarrier")]
    pub async fn set(&self) -> Result<bool> {
        let create = |once: Transaction| once.create(&self.path, "", CreateMode::Persistent);
        loop {
            let Err(error) = self.receipts()?.commit(&self.client, create).await else {
                return Ok(true);
            };
            match refusal(&error) {
                Some(ErrorKind::NodeExists) => {
                    self.refuse_other_recipes().await?;
                    return Ok(false);
                }
                Some(ErrorKind::NoNode) => create_containers(&self.client, &self.path).await?,
                _ => return Err(error),
            }
        }
    }

    /// Opens the barrier for all who wait, once. Says whether it was closed until now.
    #[doc(alias = "removeBarrier")]
    pub async fn remove(&self) -> Result<bool> {
        let delete = |once: Transaction| once.delete(&self.path, Version::Any);
        let Err(error) = self.receipts()?.commit(&self.client, delete).await else {
            return Ok(true);
        };
        match refusal(&error) {
            Some(ErrorKind::NoNode) => Ok(false),
            _ => Err(error),
        }
    }

    /// A barrier that is set or removed once more after a lost reply would be set or removed against the
    /// will of those who came in between.
    fn receipts(&self) -> Result<&Receipts> {
        if let Some(receipts) = self.receipts.get() {
            return Ok(receipts);
        }
        let receipts = Receipts::new(beside(&self.path, "receipts")?);
        Ok(self.receipts.get_or_init(|| receipts))
    }

    /// Whether the barrier is closed.
    pub async fn is_set(&self) -> Result<bool> {
        let client = &self.client;
        let found = client
            .retry(&patient(), || {
                let (synced, found) = (client.sync(&self.path), client.exists(&self.path));
                async move {
                    synced.await?;
                    found.await
                }
            })
            .await?;
        Ok(found.is_some())
    }

    /// Waits until the barrier is open.
    #[doc(alias = "waitOnBarrier")]
    pub async fn wait(&self) -> Result<()> {
        let client = &self.client;
        loop {
            let read = client
                .retry(&patient(), || {
                    // Both take their place in line now: the read is as new as the sync.
                    let synced = client.sync(&self.path);
                    let read = client.get_and_watch(&self.path);
                    async move {
                        synced.await?;
                        read.await
                    }
                })
                .await;
            match read {
                Ok((node, watch)) => {
                    if node.stat.num_children > 0 {
                        self.refuse_other_recipes().await?;
                    }
                    drop(watch.await?);
                }
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A barrier that is a lock's or a queue's node as well would be opened by nobody.
    async fn refuse_other_recipes(&self) -> Result<()> {
        let names = children_or_none(&self.client, &self.path).await?;
        other_recipes::refuse(&self.path, &names, |_| false)
    }

    /// Waits this long at most. Says whether the barrier was open.
    #[doc(alias = "wait_timeout")]
    pub async fn wait_within(&self, patience: Duration) -> Result<bool> {
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(passed) => passed.map(|()| true),
            Err(_) => Ok(false),
        }
    }
}
