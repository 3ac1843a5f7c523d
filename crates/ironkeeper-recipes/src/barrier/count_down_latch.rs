//! A latch that opens after a number of counts. The `CountDownLatch` of menagerie and of
//! java.util.concurrent.
//!
//! # On the tree
//! ```text
//! /latches/loaded               persistent; its data is how many are missing: "2"
//!   closed                      persistent; goes with the last count. Those who wait watch it
//!   counted-<id>                the receipt of a count
//! ```
//!
//! # Steps
//! The first client that uses the latch creates its node and `closed` in one transaction.
//! 1. [`CountDownLatch::count_down`]: read the number; then in one transaction create a receipt,
//!    write the number less one with the version that was read, and with the last count delete
//!    `closed`. NodeExists for the receipt means that an earlier attempt was applied and its reply
//!    was lost.
//! 2. [`CountDownLatch::wait`]: read and watch `closed`; return when `closed` does not exist and
//!    the number is 0.
//!
//! # Guarantees
//! Every count is applied exactly once, also when the connection is lost. With
//! [`CountDownLatch::count_down_as`] this holds across sessions and restarts as well: its receipt
//! is persistent, and a second count with the same id changes nothing. A wait costs one watch
//! event, at the last count.
//!
//! # When things break
//! - Disconnected: counts and waits continue after the reconnect.
//! - Session ended: counts and waits return an error. The caller cannot know whether the count was
//!   applied; with an id, it can count again.
//! - The future of a count dropped: the count is applied at most once.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, Node, Version};

use crate::error::{RecipeError, Result};
use crate::place::{create_containers, join, patient};

/// A latch on a path.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::barrier::CountDownLatch;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let latch = CountDownLatch::new(&client, "/latches/loaded", 2)?;
///     let waiting = tokio::spawn({
///         let latch = latch.clone();
///         async move { latch.wait().await }
///     });
///     assert_eq!(latch.count_down().await?, 1);
///     assert_eq!(latch.count_down_as("part-2").await?, 0);
///     waiting.await??;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ZkCountDownLatch")]
pub struct CountDownLatch {
    client: Client,
    path: String,
    count: u64,
}

/// The receipt of an anonymous count, not needed after the count. `Drop` deletes the node in the
/// background; it is ephemeral, so it ends with the session at the latest.
struct Receipt<'a> {
    client: &'a Client,
    path: String,
}

impl Drop for Receipt<'_> {
    fn drop(&mut self) {
        if !self.client.state().is_final() {
            drop(self.client.delete_guaranteed(&self.path, Version::Any));
        }
    }
}

impl CountDownLatch {
    /// Creates a latch on `path` that opens after `count` counts. If the node exists, its number
    /// applies and `count` is ignored. Sends no request.
    pub fn new(client: &Client, path: impl Into<String>, count: u64) -> Result<CountDownLatch> {
        if count == 0 {
            return Err(RecipeError::Misuse("a latch that is never closed: 0 counts".to_owned()));
        }
        Ok(CountDownLatch { client: client.clone(), path: path.into(), count })
    }

    /// Returns the path of the latch.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns how many counts are missing.
    pub async fn missing(&self) -> Result<u64> {
        Ok(self.read().await?.1)
    }

    /// Counts one and returns how many counts are missing. Has no effect if the latch is open.
    pub async fn count_down(&self) -> Result<u64> {
        let path = join(&self.path, &format!("counted-{}", self.client.random_uuid()));
        let receipt = Receipt { client: &self.client, path };
        self.count(&receipt.path, CreateMode::Ephemeral).await
    }

    /// Counts one for `id` and returns how many counts are missing. An id is counted once,
    /// whichever clients count with it and however often.
    pub async fn count_down_as(&self, id: &str) -> Result<u64> {
        if id.is_empty() || id.contains('/') {
            return Err(RecipeError::Misuse(format!("{id:?} cannot be part of a node's name")));
        }
        let receipt = join(&self.path, &format!("counted-{id}"));
        self.count(&receipt, CreateMode::Persistent).await
    }

    /// Waits until the latch is open.
    #[doc(alias = "await")]
    pub async fn wait(&self) -> Result<()> {
        let (client, closed) = (&self.client, self.closed());
        let mut seen = None;
        loop {
            match client.retry(&patient(), || client.get_and_watch(&closed)).await {
                Ok((_, watch)) => drop(watch.await?),
                // The latch is open, or it does not exist yet: the number decides.
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    let (node, missing) = self.read_latest().await?;
                    if missing == 0 {
                        return Ok(());
                    }
                    // `closed` is created with the latch and deleted by its last count. If it is
                    // missing at two consecutive reads of the same latch (same czxid), the latch is
                    // malformed.
                    if seen.replace(node.stat.czxid) == Some(node.stat.czxid) {
                        return Err(self.unseen());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits until the latch is open, at most for `patience`. Returns whether it is open.
    pub async fn wait_within(&self, patience: Duration) -> Result<bool> {
        match tokio::time::timeout(patience, self.wait()).await {
            Ok(waited) => waited.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Removes the latch, open or not. Clients that wait create a new one and wait for it.
    pub async fn remove(&self) -> Result<()> {
        let client = &self.client;
        match client.retry(&patient(), || client.delete_recursive(&self.path)).await {
            Err(error) if error.kind() != ErrorKind::NoNode => Err(error.into()),
            _ => Ok(()),
        }
    }

    fn unseen(&self) -> RecipeError {
        let why = "not open, but nobody can see it: its child is missing".to_owned();
        RecipeError::Malformed { path: self.closed(), why }
    }

    fn closed(&self) -> String {
        join(&self.path, "closed")
    }

    async fn count(&self, receipt: &str, mode: CreateMode) -> Result<u64> {
        let (client, closed) = (&self.client, self.closed());
        loop {
            let (node, missing) = self.read().await?;
            let Some(left) = missing.checked_sub(1) else { return Ok(0) };
            let counted = client
                .retry(&patient(), || {
                    let mut count = client.transaction().create(receipt, "", mode).set(
                        &self.path,
                        left.to_string(),
                        node.stat.version,
                    );
                    if left == 0 {
                        count = count.delete(&closed, Version::Any);
                    }
                    count.commit()
                })
                .await;
            match counted {
                Ok(_) => return Ok(left),
                Err(error) if error.kind() == ErrorKind::NodeExists => {
                    return Ok(self.read_latest().await?.1);
                }
                // Another count came first, or the latch was removed.
                Err(error) if error.kind() == ErrorKind::BadVersion => {}
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    if error.failed_operation() == Some(2) {
                        return Err(self.unseen());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads as [`CountDownLatch::read`] does, after a `sync`.
    async fn read_latest(&self) -> Result<(Node, u64)> {
        let client = &self.client;
        client.retry(&patient(), || client.sync(&self.path)).await?;
        self.read().await
    }

    /// Returns the node and the number. Creates the latch if it does not exist.
    async fn read(&self) -> Result<(Node, u64)> {
        let client = &self.client;
        loop {
            match client.retry(&patient(), || client.get(&self.path)).await {
                Ok(node) => {
                    let text = std::str::from_utf8(&node.data).unwrap_or_default();
                    return match text.parse() {
                        Ok(missing) => Ok((node, missing)),
                        Err(_) => {
                            let why = format!("{:?} is not the number of a latch", node.data);
                            Err(RecipeError::Malformed { path: self.path.clone(), why })
                        }
                    };
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
            create_containers(client, &self.path).await?;
            let mode = CreateMode::Persistent;
            let created = client
                .retry(&patient(), || {
                    let create =
                        client.transaction().create(&self.path, self.count.to_string(), mode);
                    create.create(&self.closed(), "", mode).commit()
                })
                .await;
            match created {
                Err(error)
                    if !matches!(error.kind(), ErrorKind::NodeExists | ErrorKind::NoNode) =>
                {
                    return Err(error.into());
                }
                _ => {}
            }
        }
    }
}
