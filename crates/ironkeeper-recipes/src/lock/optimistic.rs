//! No lock at all: read, compute, write if nobody else has written. The version of the node decides.
//!
//! # On the tree
//! ```text
//! /config            any node; its version counts the writes
//! ```
//!
//! # Steps
//! Read data and version; write with that version. If another was faster, the write fails, and it is
//! done again with what the other has written.
//!
//! # Guarantees
//! No update is lost. Nothing is held, so nothing can be lost: no watch, no ephemeral node, and a
//! broken connection or the end of the session leave nothing behind. Under heavy contention most tries
//! are in vain; a [`Mutex`](super::Mutex) is better then.
//!
//! # When things break
//! After a lost reply the node is read again: if it has the very next version and our data, the write
//! was ours (or another's of the same content, which is the same). If more has happened since, the
//! outcome is unknown and the error says so.

use bytes::Bytes;
use ironkeeper_client::{Client, ErrorKind};

use crate::error::{RecipeError, Result};
use crate::place::patient;

/// Data, and the version it was read or written with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The data.
    pub data: Bytes,
    /// Its version.
    pub version: i32,
}

/// A node that is changed optimistically.
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
    /// The node `path`, which must exist.
    pub fn new(client: &Client, path: impl Into<String>) -> Optimistic {
        Optimistic { client: client.clone(), path: path.into() }
    }

    /// What is there.
    pub async fn read(&self) -> Result<Versioned> {
        let node = self.client.retry(&patient(), || self.client.get(&self.path)).await?;
        Ok(Versioned { data: node.data, version: node.stat.version })
    }

    /// Writes if nobody has written since `seen` was read; `None` if somebody has.
    pub async fn write(
        &self,
        seen: &Versioned,
        data: impl Into<Bytes>,
    ) -> Result<Option<Versioned>> {
        let data = data.into();
        if seen.version == -1 {
            // On the wire this would mean any version. It comes after 2^32 - 1 writes, and another
            // write goes past it.
            return Err(RecipeError::Misuse("a write cannot depend on version -1".to_owned()));
        }
        let written = self.client.set_idempotent(&self.path, &data, seen.version, &patient()).await;
        match written {
            Ok(stat) => Ok(Some(Versioned { data, version: stat.version })),
            Err(error) if error.kind() == ErrorKind::BadVersion => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Reads, computes and writes until nobody was faster. `change` may be called several times.
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
