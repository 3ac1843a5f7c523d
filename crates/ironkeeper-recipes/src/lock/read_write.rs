//! A fair lock for many readers or one writer: Curator's `InterProcessReadWriteLock`.
//!
//! # On the tree
//! ```text
//! /locks/index                                    container, removed when empty
//!   _c_<uuid>-__READ__0000000004                  holds: no writer before it
//!   _c_<uuid>-__WRIT__0000000005                  waits for 4
//!   _c_<uuid>-__READ__0000000006                  waits for 5
//! ```
//! With [`ReadWriteLock::with_host_names`] the names contain the host:
//! `_c_<uuid>-<host>-R-0000000004` and `_c_<uuid>-<host>-W-0000000005`. With
//! [`ReadWriteLock::with_kazoo_names`] they are those of kazoo's `ReadLock` and `WriteLock`:
//! `_c_<uuid>-__rlock__0000000004` and `_c_<uuid>-__lock__0000000005`. All users of a path must use
//! the same style.
//!
//! # Steps
//! As for the [`Mutex`](super::Mutex), but a reader waits only for the nearest writer before it,
//! and a writer for its direct predecessor, reader or writer.
//!
//! A writer can become a reader (downgrade) without another writer in between: it creates a reader
//! node with the number of its writer node, then deletes the writer node. Writers queued meanwhile
//! have larger numbers. There is no upgrade: two readers that upgrade would wait for each other
//! forever.
//!
//! # Guarantees
//! At any time one writer or any number of readers, among guards whose session is open. No
//! starvation, because grants follow the sequence numbers. A release costs one watch event for each
//! contender that waits for that node: the release of a writer wakes only the readers right behind
//! it, which are all granted, or the writer right behind it. Fencing tokens increase from writer to
//! writer; a downgraded guard keeps its token.
//!
//! # When things break
//! As with the [`Mutex`](super::Mutex).

use std::ops::Deref;
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode};

use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lock::event::LockEvents;
use crate::lock::request::{LockRequest, within};
use crate::place::Place;
use crate::queue_of_waiters::{Bases, Contender, Participant, READER, Rule, WRITER, participants};

const CURATOR: Bases = &["__READ__", "__WRIT__"];
const HOST: Bases = &["-R-", "-W-"];
const KAZOO: Bases = &["__rlock__", "__lock__"];

/// A fair lock for many readers or one writer.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::ReadWriteLock;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let lock = ReadWriteLock::new(&client, "/locks/index");
///     let (one, two) = (lock.read().await?, lock.read().await?);
///     assert!(lock.try_write().await?.is_none());
///     one.release().await?;
///     two.release().await?;
///     let writing = lock.write().await?;
///     let reading = writing.downgrade().await?; // no other writer got in between
///     reading.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "InterProcessReadWriteLock")]
#[doc(alias = "RwLock")]
#[doc(alias = "ReadLock")]
#[doc(alias = "WriteLock")]
pub struct ReadWriteLock {
    request: LockRequest,
    /// The ends of the names of reader and writer nodes, before the number.
    names: [String; 2],
}

impl ReadWriteLock {
    /// Returns a lock on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> ReadWriteLock {
        ReadWriteLock {
            request: LockRequest::new(client, path.into(), CURATOR),
            names: names(CURATOR, ""),
        }
    }

    /// Uses node names with the host: `host-R-n` and `host-W-n`. All users of the path must do so.
    pub fn with_host_names(mut self, host: &str) -> ReadWriteLock {
        self.request.bases = HOST;
        self.names = names(HOST, host);
        self
    }

    /// Uses node names that kazoo's `ReadLock` and `WriteLock` understand. All users of the path
    /// must do so. Do not use kazoo's `Lock` on the path: it is a writer that ignores readers.
    pub fn with_kazoo_names(mut self) -> ReadWriteLock {
        self.request.bases = KAZOO;
        self.names = names(KAZOO, "");
        self
    }

    /// Sets the data of the contender nodes, which identifies their owner.
    pub fn with_data(mut self, data: impl Into<Bytes>) -> ReadWriteLock {
        self.request.data = data.into();
        self
    }

    /// Treats a lost connection as the loss of the lock, as Curator's standard policy does.
    pub fn losing_on_suspend(mut self) -> ReadWriteLock {
        self.request.loses_on_suspend = true;
        self
    }

    /// Ends the wait with an error when a deadlock is detected and this waiter is the victim. See
    /// [`DeadlockDetector`](super::DeadlockDetector).
    pub fn heeding_deadlocks(mut self) -> ReadWriteLock {
        self.request.heeds_deadlocks = true;
        self
    }

    /// Returns the path of the lock.
    pub fn path(&self) -> &str {
        &self.request.path
    }

    /// Subscribes to the events of this lock in this process, from now on.
    pub fn events(&self) -> LockEvents {
        self.request.events()
    }

    /// Waits until no writer precedes this reader.
    #[doc(alias = "readLock")]
    pub async fn read(&self) -> Result<Guard> {
        let place = self.request.wait(&self.names[READER], Rule::Reader).await?;
        Ok(self.request.grant(place))
    }

    /// Acquires the read lock if no writer holds it or waits.
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        let place = self.request.take_if_free(&self.names[READER], Rule::Reader).await?;
        Ok(place.map(|place| self.request.grant(place)))
    }

    /// Waits for the read lock for at most `patience`.
    #[doc(alias = "read_timeout")]
    pub async fn read_within(&self, patience: Duration) -> Result<Option<Guard>> {
        within(patience, self.read()).await
    }

    /// Waits until no contender precedes this writer.
    #[doc(alias = "writeLock")]
    pub async fn write(&self) -> Result<WriteGuard> {
        let place = self.request.wait(&self.names[WRITER], Rule::First).await?;
        Ok(self.writing(place))
    }

    /// Acquires the write lock if there is no holder and no waiter.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        let place = self.request.take_if_free(&self.names[WRITER], Rule::First).await?;
        Ok(place.map(|place| self.writing(place)))
    }

    /// Waits for the write lock for at most `patience`.
    #[doc(alias = "write_timeout")]
    pub async fn write_within(&self, patience: Duration) -> Result<Option<WriteGuard>> {
        within(patience, self.write()).await
    }

    fn writing(&self, place: Place) -> WriteGuard {
        WriteGuard { guard: self.request.grant(place), lock: self.clone() }
    }

    /// Returns all holders and waiters, in the order of the queue.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(&self.request.client, &self.request.path, self.request.bases).await
    }
}

/// A held write lock: a [`Guard`] that can become the guard of a reader.
#[derive(Debug)]
#[must_use = "a guard that is dropped gives back what it holds"]
pub struct WriteGuard {
    guard: Guard,
    lock: ReadWriteLock,
}

impl WriteGuard {
    /// Becomes a reader; no other writer is granted in between. On an error, or if the future is
    /// dropped, the lock is released.
    pub async fn downgrade(self) -> Result<Guard> {
        let reading = self.read_too().await?;
        self.guard.release().await?;
        Ok(reading)
    }

    /// Acquires the read lock in addition to the write lock. If the writer is released first, that
    /// is a downgrade, too.
    pub async fn read_too(&self) -> Result<Guard> {
        let request = &self.lock.request;
        let Some(writer) = Contender::parse(self.guard.node_name(), request.bases) else {
            let path = self.guard.path().to_owned();
            return Err(RecipeError::Malformed { path, why: "no number in the name".to_owned() });
        };
        let name = format!("{}{:010}", self.lock.names[READER], writer.sequence);
        let place = Place::take(
            &request.client,
            &request.path,
            &name,
            &request.data,
            CreateMode::Ephemeral,
        )
        .await?;
        // If the writer node was deleted before the reader node was created, another writer may
        // have been granted.
        if !self.guard.check().await? {
            let path = self.guard.path().to_owned();
            return Err(RecipeError::Lost { path, why: crate::Lost::NodeDeleted });
        }
        Ok(request.grant(place).with_token(self.guard.fencing_token()))
    }

    /// Releases the write lock. See [`Guard::release`].
    pub async fn release(self) -> Result<()> {
        self.guard.release().await
    }
}

impl Deref for WriteGuard {
    type Target = Guard;

    fn deref(&self) -> &Guard {
        &self.guard
    }
}

fn names(bases: Bases, host: &str) -> [String; 2] {
    [format!("{host}{}", bases[READER]), format!("{host}{}", bases[WRITER])]
}
