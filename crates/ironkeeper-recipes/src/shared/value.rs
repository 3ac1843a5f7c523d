//! A value whose changes all clients receive. Curator's `SharedValue`.
//!
//! # On the tree
//! ```text
//! /config/limits                               persistent: the bytes of the value
//! ```
//!
//! # Steps
//! 1. Create the node with the seed if it does not exist.
//! 2. Read and watch it; when the watch fires, read it again.
//! 3. A write goes directly to the node; a write that depends on the value read is conditional on
//!    its version.
//!
//! # Guarantees
//! [`SharedValue::current`] never goes back: a state replaces another one only if its mzxid is
//! larger. Versions are not compared, because they overflow. [`SharedValue::try_set`] writes only
//! if no other client has written since. Readers receive the latest value, not every one in
//! between. At most one watch event per reader and change; fewer if changes come faster than they
//! are read.
//!
//! # When things break
//! - Disconnected: the last known value stays; changes are delivered after the reconnect.
//! - The reply to a write is lost: [`SharedValue::set`] and [`SharedValue::try_set`] repeat the
//!   write if it was not applied. If that is unknown, they return the lost connection as an error,
//!   whose `happened` is `Maybe`.
//! - The node is deleted: the last known value stays until a client creates the node again.
//! - Session ended: the last known value stays, and the streams of changes end.

use bytes::Bytes;
use ironkeeper_client::{Client, ErrorKind, Node, Stat, Zxid};
use tokio::sync::watch;

use crate::cache::{Task, follow};
use crate::error::Result;
use crate::place::patient;
use crate::shared::write::{Upon, Written, overwrite, refuse_wild_version, write_once};

/// A value, with the version and the zxids of its node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct VersionedValue<T> {
    /// The value.
    pub value: T,
    /// The version of the node.
    pub version: i32,
    /// The zxid of the transaction that wrote it, which orders the states.
    pub zxid: Zxid,
    /// The zxid of the transaction that created the node.
    pub czxid: Zxid,
}

impl<T> VersionedValue<T> {
    pub(crate) fn new(value: T, stat: &Stat) -> VersionedValue<T> {
        VersionedValue { value, version: stat.version, zxid: stat.mzxid, czxid: stat.czxid }
    }

    pub(crate) fn try_map<U>(self, f: impl FnOnce(T) -> Result<U>) -> Result<VersionedValue<U>> {
        let VersionedValue { value, version, zxid, czxid } = self;
        Ok(VersionedValue { value: f(value)?, version, zxid, czxid })
    }
}

#[derive(Debug)]
struct Latest {
    state: VersionedValue<Bytes>,
    is_over: bool,
}

/// A value on a path, followed in the background.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::shared::SharedValue;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let value = SharedValue::open(&client, "/config/limits", "10").await?;
///     let mut changes = value.changes();
///
///     let seen = value.current();
///     assert!(value.try_set(&seen, "20").await?);
///     assert!(!value.try_set(&seen, "30").await?); // another client has written since
///     assert_eq!(changes.next().await.unwrap().value, "20");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "SharedValueReader")]
pub struct SharedValue {
    client: Client,
    path: String,
    latest: watch::Sender<Latest>,
    _follower: Task,
}

impl SharedValue {
    /// Opens the value on `path`; if the node does not exist, creates it with the seed, and its
    /// parents as containers.
    pub async fn open(
        client: &Client,
        path: impl Into<String>,
        seed: impl AsRef<[u8]>,
    ) -> Result<SharedValue> {
        let path = path.into();
        let node = loop {
            match client.retry(&patient(), || client.get(&path)).await {
                Ok(node) => break node,
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    // The next read finds the node, created here or by another client. So it does
                    // not matter after a lost connection whether the seed was written.
                    match write_once(client, &path, seed.as_ref(), Upon::Nothing).await {
                        Err(error) if !error.client_error().is_some_and(|e| e.is_retriable()) => {
                            return Err(error);
                        }
                        _ => {}
                    }
                }
                Err(error) => return Err(error.into()),
            }
        };
        let state = VersionedValue::new(node.data, &node.stat);
        let latest = watch::Sender::new(Latest { state, is_over: false });
        let follower = Task::spawn({
            let (client, path, latest) = (client.clone(), path.clone(), latest.clone());
            async move {
                let seen = |node: Option<Node>| {
                    if let Some(node) = node {
                        put(&latest, VersionedValue::new(node.data, &node.stat));
                    }
                };
                let why = follow(&client, &path, seen).await;
                tracing::debug!(%path, error = %why, "shared value no longer followed");
                latest.send_modify(|latest| latest.is_over = true);
            }
        });
        Ok(SharedValue { client: client.clone(), path, latest, _follower: follower })
    }

    /// Returns the path of the value.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the last known state. Makes no request.
    pub fn current(&self) -> VersionedValue<Bytes> {
        self.latest.borrow().state.clone()
    }

    /// Reads the latest state that the server has.
    pub async fn read(&self) -> Result<VersionedValue<Bytes>> {
        let node = self.client.retry(&patient(), || self.client.get(&self.path)).await?;
        let state = VersionedValue::new(node.data, &node.stat);
        put(&self.latest, state.clone());
        Ok(state)
    }

    /// Writes the value unconditionally and once: after a lost connection the write is repeated if
    /// it was not applied. Where other clients have written since, that is unknown, and the error
    /// is the lost connection.
    pub async fn set(&self, data: impl AsRef<[u8]>) -> Result<VersionedValue<Bytes>> {
        let data = data.as_ref();
        let stat = match overwrite(&self.client, &self.path, data).await? {
            Some(stat) => stat,
            // The node does not exist: this request returns the server's error.
            None => self.client.retry(&patient(), || self.client.set(&self.path, data, 0)).await?,
        };
        let state = VersionedValue::new(Bytes::copy_from_slice(data), &stat);
        put(&self.latest, state.clone());
        Ok(state)
    }

    /// Writes if no client has written since `previous`. Returns whether it did. If not,
    /// [`SharedValue::current`] returns the newer state, for the next attempt.
    #[doc(alias = "trySetValue")]
    #[doc(alias = "compareAndSet")]
    pub async fn try_set<T>(
        &self,
        previous: &VersionedValue<T>,
        data: impl AsRef<[u8]>,
    ) -> Result<bool> {
        refuse_wild_version(&self.path, previous.version)?;
        if self.latest.borrow().state.zxid > previous.zxid {
            return Ok(false);
        }
        let (data, upon) = (data.as_ref(), Upon::Version(previous.version, previous.czxid));
        match write_once(&self.client, &self.path, data, upon).await? {
            Written::Yes(stat) => {
                put(&self.latest, VersionedValue::new(Bytes::copy_from_slice(data), &stat));
                Ok(true)
            }
            Written::No => {
                self.read().await?;
                Ok(false)
            }
        }
    }

    /// Returns all changes from now on; only the latest one if changes come faster than they are
    /// taken.
    #[doc(alias = "SharedValueListener")]
    pub fn changes(&self) -> ValueChanges {
        let latest = self.latest.subscribe();
        let told = latest.borrow().state.zxid;
        ValueChanges { latest, told }
    }
}

/// Replaces the state if the new one has a larger zxid. Zxids order the states; versions do not.
fn put(latest: &watch::Sender<Latest>, state: VersionedValue<Bytes>) {
    latest.send_if_modified(|latest| {
        let is_later = state.zxid > latest.state.zxid;
        if is_later {
            latest.state = state;
        }
        is_later
    });
}

/// The changes of a [`SharedValue`].
#[derive(Debug)]
pub struct ValueChanges {
    latest: watch::Receiver<Latest>,
    told: Zxid,
}

impl ValueChanges {
    /// Returns the next state; `None` when the session has ended or the [`SharedValue`] was
    /// dropped.
    pub async fn next(&mut self) -> Option<VersionedValue<Bytes>> {
        loop {
            {
                let latest = self.latest.borrow_and_update();
                if latest.state.zxid > self.told {
                    self.told = latest.state.zxid;
                    return Some(latest.state.clone());
                }
                if latest.is_over {
                    return None;
                }
            }
            self.latest.changed().await.ok()?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state(version: i32, zxid: i64) -> VersionedValue<Bytes> {
        let stat = Stat { version, mzxid: Zxid(zxid), ..Stat::default() };
        VersionedValue::new(Bytes::new(), &stat)
    }

    #[test]
    fn curator_688_a_version_that_overflows_does_not_stop_the_value() {
        let latest = watch::Sender::new(Latest { state: state(i32::MAX, 10), is_over: false });
        put(&latest, state(i32::MIN, 11));
        assert_eq!(latest.borrow().state.version, i32::MIN);
        // A late reply to an earlier read changes nothing.
        put(&latest, state(i32::MAX, 10));
        assert_eq!(latest.borrow().state.version, i32::MIN);
        // A node that was deleted and created again begins at zero.
        put(&latest, state(0, 12));
        assert_eq!(latest.borrow().state.version, 0);
    }
}
