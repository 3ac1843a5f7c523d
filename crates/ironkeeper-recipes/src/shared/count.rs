//! A number whose changes all clients receive. Curator's `SharedCount`.
//!
//! # On the tree
//! ```text
//! /limits/workers                              persistent: four bytes, big-endian
//! ```
//!
//! # Steps, guarantees, and when things break
//! Those of [`SharedValue`], with a number as the value. A node that does not hold exactly four
//! bytes is reported as [`RecipeError::Malformed`] and not changed.

use bytes::Bytes;
use ironkeeper_client::Client;

use crate::error::{RecipeError, Result};
use crate::shared::value::{SharedValue, ValueChanges, VersionedValue};

/// A number on a path, followed in the background.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::shared::SharedCount;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let count = SharedCount::open(&client, "/limits/workers", 4).await?;
///     let mut changes = count.changes();
///     count.set(5).await?;
///     assert_eq!(changes.next().await.unwrap()?.value, 5);
///     assert_eq!(count.current()?.value, 5);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "SharedCountReader")]
pub struct SharedCount {
    value: SharedValue,
}

impl SharedCount {
    /// Opens the number on `path`; creates it with the seed if it does not exist.
    pub async fn open(client: &Client, path: impl Into<String>, seed: i32) -> Result<SharedCount> {
        let value = SharedValue::open(client, path, seed.to_be_bytes()).await?;
        decode(value.path(), value.current())?;
        Ok(SharedCount { value })
    }

    /// Returns the path of the number.
    pub fn path(&self) -> &str {
        self.value.path()
    }

    /// Returns the last known number. Makes no request.
    pub fn current(&self) -> Result<VersionedValue<i32>> {
        decode(self.path(), self.value.current())
    }

    /// Reads the latest number that the server has.
    pub async fn read(&self) -> Result<VersionedValue<i32>> {
        decode(self.path(), self.value.read().await?)
    }

    /// Writes the number unconditionally.
    pub async fn set(&self, count: i32) -> Result<VersionedValue<i32>> {
        decode(self.path(), self.value.set(count.to_be_bytes()).await?)
    }

    /// Writes if no client has written since `previous`. Returns whether it did.
    #[doc(alias = "trySetCount")]
    #[doc(alias = "compareAndSet")]
    pub async fn try_set(&self, previous: &VersionedValue<i32>, count: i32) -> Result<bool> {
        self.value.try_set(previous, count.to_be_bytes()).await
    }

    /// Returns all changes from now on; only the latest one if changes come faster than they are
    /// taken.
    #[doc(alias = "SharedCountListener")]
    pub fn changes(&self) -> CountChanges {
        CountChanges { path: self.path().to_owned(), changes: self.value.changes() }
    }
}

/// The changes of a [`SharedCount`].
#[derive(Debug)]
pub struct CountChanges {
    path: String,
    changes: ValueChanges,
}

impl CountChanges {
    /// Returns the next number; `None` when the session has ended or the [`SharedCount`] was
    /// dropped.
    pub async fn next(&mut self) -> Option<Result<VersionedValue<i32>>> {
        let state = self.changes.next().await?;
        Some(decode(&self.path, state))
    }
}

fn decode(path: &str, state: VersionedValue<Bytes>) -> Result<VersionedValue<i32>> {
    state.try_map(|data| match <[u8; 4]>::try_from(&data[..]) {
        Ok(bytes) => Ok(i32::from_be_bytes(bytes)),
        Err(_) => Err(RecipeError::Malformed {
            path: path.to_owned(),
            why: format!("a shared count has 4 bytes, but the node has {}", data.len()),
        }),
    })
}
