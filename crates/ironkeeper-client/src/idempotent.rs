//! Writes that can be retried after a lost reply without being applied twice.
//!
//! When a retry fails, each operation checks whether it failed because the first attempt was
//! applied: the node exists with the same data, its version is the next one, or it does not exist.
//! A change of another client with the same result counts as success, because the two cannot be
//! distinguished and the difference does not matter. For ephemeral nodes it does: they have an
//! owner, and so has a lock; their owner must be this session.

use ironkeeper_proto::{CreateMode, Stat};

use crate::client::{Client, Version};
use crate::create::{CreateOptions, Created};
use crate::error::{Error, ErrorKind, Happened, Result};
use crate::retry::{Retries, RetryPolicy};

impl Client {
    /// Creates a node and retries after a lost connection. If a retry finds the node with this data
    /// and version 0, the create was applied. If the data or version differ, the node may have been
    /// created and then written to: the error states that the request [may have been
    /// applied](Error::happened). Sequential nodes are rejected; use [`Client::create_protected`]
    /// for them.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::{Client, CreateMode, RetryPolicy};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     let policy = RetryPolicy::times(5, Duration::from_millis(100));
    ///     client.create_idempotent("/n", "data", CreateMode::Persistent, &policy).await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "idempotent")]
    pub async fn create_idempotent(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        options: impl Into<CreateOptions>,
        policy: &RetryPolicy,
    ) -> Result<Created> {
        let (data, options) = (data.as_ref(), options.into());
        if options.mode().is_sequential() {
            let error = Error::at(ErrorKind::InvalidArgument, path);
            return Err(error.with_detail("sequential nodes need a protected create"));
        }
        let mut retries = Retries::new(self, policy);
        let mut in_doubt = false;
        loop {
            let error = match self.create_with(path, data, &options).await {
                Err(error) if error.kind() == ErrorKind::NodeExists && in_doubt => {
                    match self.get(path).await {
                        Ok(node)
                            if node.data == data
                                && node.stat.version == 0
                                && node.stat.ephemeral_owner == self.owner(options.mode()) =>
                        {
                            return Ok(Created { path: path.to_owned(), stat: node.stat });
                        }
                        Ok(_) => return Err(error.maybe_happened()),
                        // The node was deleted meanwhile: create it again.
                        Err(gone) if gone.kind() == ErrorKind::NoNode => {
                            in_doubt = false;
                            continue;
                        }
                        Err(error) => error,
                    }
                }
                Err(error) => error,
                done => return done,
            };
            if !error.is_retriable() {
                return Err(error);
            }
            in_doubt |= error.happened() == Happened::Maybe;
            retries.pause(error).await?;
        }
    }

    /// Sets the data of a node and retries after a lost connection. If a retry finds this data and
    /// the version after the expected one, the set was applied.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::{Client, CreateMode, RetryPolicy};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/n", "1", CreateMode::Persistent).await?;
    ///     let policy = RetryPolicy::times(5, Duration::from_millis(100));
    ///     assert_eq!(client.set_idempotent("/n", "2", 0, &policy).await?.version, 1);
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "idempotent")]
    pub async fn set_idempotent(
        &self,
        path: &str,
        data: impl AsRef<[u8]>,
        version: impl Into<Version>,
        policy: &RetryPolicy,
    ) -> Result<Stat> {
        let (data, version) = (data.as_ref(), version.into());
        let mut retries = Retries::new(self, policy);
        let mut in_doubt = false;
        loop {
            let error = match self.set(path, data, version).await {
                Err(error) if error.kind() == ErrorKind::BadVersion && in_doubt => {
                    match self.get(path).await {
                        Ok(node)
                            if node.data == data
                                && node.stat.version == version.code().wrapping_add(1) =>
                        {
                            return Ok(node.stat);
                        }
                        Ok(_) => return Err(error),
                        Err(error) => error,
                    }
                }
                Err(error) => error,
                done => return done,
            };
            if !error.is_retriable() {
                return Err(error);
            }
            in_doubt |= error.happened() == Happened::Maybe;
            retries.pause(error).await?;
        }
    }

    /// Deletes a node and retries after a lost connection. If a retry finds no node, it was
    /// deleted.
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// use ironkeeper_client::{Client, CreateMode, RetryPolicy, Version};
    ///
    /// # #[ironkeeper_doctest::server]
    /// #[tokio::main]
    /// async fn main() -> Result<(), Box<dyn std::error::Error>> {
    ///     let client = Client::connect("127.0.0.1:2181").await?;
    ///     client.create("/n", "", CreateMode::Persistent).await?;
    ///     let policy = RetryPolicy::times(5, Duration::from_millis(100));
    ///     client.delete_idempotent("/n", Version::Any, &policy).await?;
    ///     Ok(())
    /// }
    /// ```
    #[doc(alias = "idempotent")]
    #[doc(alias = "quietly")]
    pub async fn delete_idempotent(
        &self,
        path: &str,
        version: impl Into<Version>,
        policy: &RetryPolicy,
    ) -> Result<()> {
        let version = version.into();
        let mut retries = Retries::new(self, policy);
        let mut in_doubt = false;
        loop {
            let error = match self.delete(path, version).await {
                Err(error) if error.kind() == ErrorKind::NoNode && in_doubt => return Ok(()),
                Err(error) if error.is_retriable() => error,
                other => return other,
            };
            in_doubt |= error.happened() == Happened::Maybe;
            retries.pause(error).await?;
        }
    }
}

impl Client {
    /// Returns the ephemeral owner of a node that this session creates.
    fn owner(&self, mode: CreateMode) -> i64 {
        if mode.is_ephemeral() { self.session_id().0 } else { 0 }
    }
}
