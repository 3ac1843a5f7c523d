//! Optimistic concurrency without a lock: read, compute, and write with the version that was read.
//!
//! # On the tree
//! ```text
//! /config            any node; its version counts the writes
//! ```
//!
//! # Steps
//! Read data and version; write with that version. If another client has written meanwhile, the
//! write fails, and the steps are repeated with the new data.
//!
//! # Guarantees
//! No update is lost. There is no guard, no watch and no ephemeral node, so a lost connection or an
//! ended session leaves nothing behind. Under heavy contention most tries fail; a
//! [`Mutex`](super::Mutex) is better then.
//!
//! # When things break
//! After a lost reply the node is read again: if its version is the next one and its data equals
//! the written data, the write was applied (or that of another client with the same data, which is
//! equivalent). If there were further writes, the outcome is unknown, and the error reports that.

use bytes::Bytes;
use ironkeeper_client::{Client, ErrorKind};

use crate::error::{RecipeError, Result};
use crate::place::patient;

/// Data, and the version with which it was read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The data.
    pub data: Bytes,
    /// Its version.
    pub version: i32,
}

/// A node that is changed by compare-and-set on its version.
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
/// use ironkeeper_recipes::lock::Optimistic;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     client.create("/list", "a", CreateMode::Persistent).await?;
///     let list = Optimistic::new(&client, "/list");
///     let written = list.update(|old| [old, b",b"].concat()).await?;
///     assert_eq!(written.data, "a,b");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "compareAndSet")]
#[doc(alias = "compare_and_swap")]
pub struct Optimistic {
    client: Client,
    path: String,
}

impl Optimistic {
    /// Returns a handle on the node `path`, which must exist. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> Optimistic {
        Optimistic { client: client.clone(), path: path.into() }
    }

    /// Reads the data and its version.
    pub async fn read(&self) -> Result<Versioned> {
        let node = self.client.retry(&patient(), || self.client.get(&self.path)).await?;
        Ok(Versioned { data: node.data, version: node.stat.version })
    }

    /// Writes if the node still has the version of `seen`; returns `None` if it has another one.
    pub async fn write(
        &self,
        seen: &Versioned,
        data: impl Into<Bytes>,
    ) -> Result<Option<Versioned>> {
        let data = data.into();
        if seen.version == -1 {
            // On the wire -1 means any version. A node has it after 2^32 - 1 writes, until the next
            // write.
            return Err(RecipeError::Misuse("a write cannot depend on version -1".to_owned()));
        }
        let written = self.client.set_idempotent(&self.path, &data, seen.version, &patient()).await;
        match written {
            Ok(stat) => Ok(Some(Versioned { data, version: stat.version })),
            Err(error) if error.kind() == ErrorKind::BadVersion => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads, computes and writes, until a write succeeds. `change` may be called several times.
    pub async fn update<D: Into<Bytes>>(
        &self,
        mut change: impl FnMut(&[u8]) -> D,
    ) -> Result<Versioned> {
        loop {
            let seen = self.read().await?;
            if let Some(written) = self.write(&seen, change(&seen.data)).await? {
                return Ok(written);
            }
        }
    }
}
