//! The simplest exclusive lock: one ephemeral node that only one client can create. For teaching,
//! and for locks with two or three contenders.
//!
//! # On the tree
//! ```text
//! /locks/report          ephemeral, created by the holder; its data is a unique mark
//! ```
//!
//! # Steps
//! Create the node. If it exists, read and watch it, and try again when it changes. Release by
//! deleting it.
//!
//! # Guarantees
//! One holder at a time among guards whose session is open; increasing fencing tokens. No fairness:
//! the first create wins. **Herd effect**: a release wakes all N waiters, with N watch events and N
//! creates, of which N-1 fail, where the [`Mutex`](super::Mutex) causes one event. The tests
//! measure both.
//!
//! # When things break
//! As for the [`Mutex`](super::Mutex), with one difference: if another client deletes the node, the
//! next holder creates it with the same name. [`Guard::lost`] and [`Guard::check`] detect that. But
//! [`Guard::fence`] checks only that the lock is held, not by which client: use the token.
//!
//! A persistent node or a container on the path causes [`RecipeError::Malformed`].

use std::time::Duration;

use ironkeeper_client::{Client, ErrorKind, Stat};

use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lock::request::within;
use crate::place::{Place, patient};

/// The ephemeral owner in the stat of a container node.
const CONTAINER: i64 = i64::MIN;

/// An exclusive lock that consists of one node.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::SingleNodeLock;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let lock = SingleNodeLock::new(&client, "/locks/report");
///     let guard = lock.lock().await?;
///     assert!(lock.try_lock().await?.is_none());
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct SingleNodeLock {
    client: Client,
    path: String,
}

impl SingleNodeLock {
    /// Returns a lock that consists of the node `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> SingleNodeLock {
        SingleNodeLock { client: client.clone(), path: path.into() }
    }

    /// Waits for the lock.
    pub async fn lock(&self) -> Result<Guard> {
        loop {
            if let Some(guard) = self.claim().await? {
                return Ok(guard);
            }
            let client = &self.client;
            match client.retry(&patient(), || client.get_and_watch(&self.path)).await {
                Ok((node, watch)) => {
                    self.refuse_lasting(&node.stat)?;
                    watch.await?;
                }
                Err(error) if error.kind() == ErrorKind::NoNode => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Acquires the lock if it is free.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        let claimed = self.claim().await?;
        if claimed.is_none() {
            let client = &self.client;
            if let Some(stat) = client.retry(&patient(), || client.exists(&self.path)).await? {
                self.refuse_lasting(&stat)?;
            }
        }
        Ok(claimed)
    }

    async fn claim(&self) -> Result<Option<Guard>> {
        let mark = self.client.random_uuid();
        let place = Place::claim(&self.client, &self.path, mark.as_bytes()).await?;
        Ok(place.map(Guard::new))
    }

    /// Returns an error for a persistent node or a container: no session ends with it, so a wait
    /// for its deletion could last forever.
    fn refuse_lasting(&self, stat: &Stat) -> Result<()> {
        if stat.ephemeral_owner != 0 && stat.ephemeral_owner != CONTAINER {
            return Ok(());
        }
        let why = "not the node of a lock: it belongs to no session".to_owned();
        Err(RecipeError::Malformed { path: self.path.clone(), why })
    }

    /// Waits for the lock for at most `patience`.
    #[doc(alias = "try_lock_for")]
    #[doc(alias = "acquire_timeout")]
    pub async fn lock_within(&self, patience: Duration) -> Result<Option<Guard>> {
        within(patience, self.lock()).await
    }
}
