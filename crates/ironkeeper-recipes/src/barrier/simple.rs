//! A barrier that one client sets and removes, and at which any number of clients wait. Curator's
//! `DistributedBarrier`.
//!
//! # On the tree
//! ```text
//! /barriers/maintenance        persistent: closed as long as it is there
//! /barriers/maintenance.receipts
//!   _c_<uuid>-receipt          ephemeral: of somebody who has set or removed the barrier
//! ```
//!
//! # Steps
//! 1. [`Barrier::set`] creates the node, [`Barrier::remove`] deletes it, each in one transaction
//!    with a write to a receipt. The receipt shows whether an attempt with a lost reply was
//!    applied.
//! 2. [`Barrier::wait`] sends a `sync`, reads and watches the node, and returns when the node does
//!    not exist. After an event it starts again.
//!
//! # Guarantees
//! No wait returns while the barrier has been set since before the wait began, whichever server the
//! client is connected to. The removal costs one watch event per waiter, the minimum, because all
//! waiters proceed. A waiter that times out leaves no watch on a missing node: it reads the node
//! with `get`, which sets no watch if the node does not exist. Every [`Barrier::set`] and
//! [`Barrier::remove`] is applied at most once. A node with children of another recipe is rejected:
//! [`RecipeError::OtherRecipe`](crate::RecipeError::OtherRecipe).
//!
//! # When things break
//! - Disconnected: the wait continues after the reconnect, at the same or another server.
//! - Session ended: the wait returns an error. The barrier stays: its node is persistent.
//! - The future of [`Barrier::wait`] dropped: there is no node to delete.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Transaction, Version};

use crate::error::Result;
use crate::other_recipes;
use crate::place::{beside, create_containers, patient};
use crate::reads::children_or_none;
use crate::receipt::{Receipts, refusal};

/// A barrier on a path. Any client can set and remove it.
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
    /// Creates a barrier on `path`. Sends no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Barrier {
        Barrier { client: client.clone(), path: path.into(), receipts: Arc::default() }
    }

    /// Returns the path of the barrier.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Closes the barrier, once even if a reply is lost. Returns whether it was open before.
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

    /// Opens the barrier for all waiting clients, once even if a reply is lost. Returns whether it
    /// was closed before.
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

    /// Returns the receipts. Without them, a `set` or `remove` repeated after a lost reply could
    /// undo the change of another client made in between.
    fn receipts(&self) -> Result<&Receipts> {
        if let Some(receipts) = self.receipts.get() {
            return Ok(receipts);
        }
        let receipts = Receipts::new(beside(&self.path, "receipts")?);
        Ok(self.receipts.get_or_init(|| receipts))
    }

    /// Returns whether the barrier is closed.
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
                    // The client sends both requests now, in this order: the read is at least as
                    // new as the sync.
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

    /// Rejects the children of another recipe: a barrier node that is also the node of a lock or a
    /// queue would not be deleted.
    async fn refuse_other_recipes(&self) -> Result<()> {
        let names = children_or_none(&self.client, &self.path).await?;
        other_recipes::refuse(&self.path, &names, |_| false)
    }

    /// Waits until the barrier is open, at most for `patience`. Returns whether it was open.
    #[doc(alias = "wait_timeout")]
    pub async fn wait_within(&self, patience: Duration) -> Result<bool> {
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(passed) => passed.map(|()| true),
            Err(_) => Ok(false),
        }
    }
}
