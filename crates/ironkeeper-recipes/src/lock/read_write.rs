//! A fair lock for many readers or one writer: Curator's `InterProcessReadWriteLock`.
//!
//! # On the tree
//! ```text
//! /locks/index                                    container, removed when empty
//!   _c_<uuid>-__READ__0000000004                  holds: no writer before it
//!   _c_<uuid>-__WRIT__0000000005                  waits for 4
//!   _c_<uuid>-__READ__0000000006                  waits for 5
//! ```
//! With [`ReadWriteLock::with_host_names`] the names say who it is: `_c_<uuid>-<host>-R-0000000004` and
//! `_c_<uuid>-<host>-W-0000000005`; with [`ReadWriteLock::with_kazoo_names`] they are those of kazoo's `ReadLock` and
//! `WriteLock`: `_c_<uuid>-__rlock__0000000004` and `_c_<uuid>-__lock__0000000005`. All users of a path have to
//! agree on the style.
//!
//! # Steps
//! As the [`Mutex`](super::Mutex), but a reader waits only for the nearest writer before it, and a
//! writer for whoever stands right before it.
//!
//! A writer becomes a reader without letting anybody in between: it creates a reader's node with its
//! own number, then deletes its writer's node. Since the number is the old one, no writer that queued
//! meanwhile is before it. There is no way up: two readers that wait for each other to become a writer
//! would wait for ever.
//!
//! # Guarantees
//! At any time one writer or any number of readers, among guards whose session lives; nobody starves,
//! since turns follow the numbers. One watch event per release of a reader or writer for each who
//! waits for that very node: a writer's release wakes the readers right behind it, who all may enter,
//! and nobody else. Fencing tokens grow from writer to writer; a downgraded guard keeps its token.
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
    /// What the names of readers and writers end with, before the number.
    names: [String; 2],
}

impl ReadWriteLock {
    /// A lock on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> ReadWriteLock {
        ReadWriteLock {
            request: LockRequest::new(client, path.into(), CURATOR),
            names: names(CURATOR, ""),
        }
    }

    /// Names that say who it is: `host-R-n` and `host-W-n`. All users of the path have to do so.
    pub fn with_host_names(mut self, host: &str) -> ReadWriteLock {
        self.request.bases = HOST;
        self.names = names(HOST, host);
        self
    }

    /// Names that kazoo's `ReadLock` and `WriteLock` understand. All users of the path have to do so. kazoo's `Lock` is a
    /// writer that does not see readers: it has no place here.
    pub fn with_kazoo_names(mut self) -> ReadWriteLock {
        self.request.bases = KAZOO;
        self.names = names(KAZOO, "");
        self
    }

    /// What the nodes say about their owner.
    pub fn with_data(mut self, data: impl Into<Bytes>) -> ReadWriteLock {
        self.request.data = data.into();
        self
    }

    /// Takes a broken connection for a loss, as Curator's standard policy does.
    pub fn losing_on_suspend(mut self) -> ReadWriteLock {
        self.request.loses_on_suspend = true;
        self
    }

    /// Lets the wait end when a deadlock is found and this waiter is chosen to give way. See
    /// [`DeadlockDetector`](super::DeadlockDetector).
    pub fn heeding_deadlocks(mut self) -> ReadWriteLock {
        self.request.heeds_deadlocks = true;
        self
    }

    /// The path of the lock.
    pub fn path(&self) -> &str {
        &self.request.path
    }

    /// What happens to this lock in this process from now on.
    pub fn events(&self) -> LockEvents {
        self.request.events()
    }

    /// Waits until no writer is before us.
    #[doc(alias = "readLock")]
    pub async fn read(&self) -> Result<Guard> {
        let place = self.request.wait(&self.names[READER], Rule::Reader).await?;
        Ok(self.request.grant(place))
    }

    /// Reads if no writer holds or waits.
    pub async fn try_read(&self) -> Result<Option<Guard>> {
        let place = self.request.take_if_free(&self.names[READER], Rule::Reader).await?;
        Ok(place.map(|place| self.request.grant(place)))
    }

    /// Waits this long at most until no writer is before us.
    #[doc(alias = "read_timeout")]
    pub async fn read_within(&self, patience: Duration) -> Result<Option<Guard>> {
        within(patience, self.read()).await
    }

    /// Waits until nobody is before us.
    #[doc(alias = "writeLock")]
    pub async fn write(&self) -> Result<WriteGuard> {
        let place = self.request.wait(&self.names[WRITER], Rule::First).await?;
        Ok(self.writing(place))
    }

    /// Writes if nobody holds or waits.
    pub async fn try_write(&self) -> Result<Option<WriteGuard>> {
        let place = self.request.take_if_free(&self.names[WRITER], Rule::First).await?;
        Ok(place.map(|place| self.writing(place)))
    }

    /// Waits this long at most until nobody is before us.
    #[doc(alias = "write_timeout")]
    pub async fn write_within(&self, patience: Duration) -> Result<Option<WriteGuard>> {
        within(patience, self.write()).await
    }

    fn writing(&self, place: Place) -> WriteGuard {
        WriteGuard { guard: self.request.grant(place), lock: self.clone() }
    }

    /// Everybody who holds or waits, in order.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        participants(&self.request.client, &self.request.path, self.request.bases).await
    }
}

/// A held write lock: a [`Guard`] that can become a reader's.
#[derive(Debug)]
#[must_use = "a guard that is dropped gives back what it holds"]
pub struct WriteGuard {
    guard: Guard,
    lock: ReadWriteLock,
}

impl WriteGuard {
    /// Becomes a reader; no writer comes in between. On an error, and if the future is dropped, the
    /// lock is given back.
    pub async fn downgrade(self) -> Result<Guard> {
        let reading = self.read_too().await?;
        self.guard.release().await?;
        Ok(reading)
    }

    /// Reads in addition to writing. The writer may then be released first: that is a downgrade, too.
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
        // Without the writer's node the number is worth nothing: somebody may have come in before.
        if !self.guard.check().await? {
            let path = self.guard.path().to_owned();
            return Err(RecipeError::Lost { path, why: crate::Lost::NodeDeleted });
        }
        Ok(request.grant(place).with_token(self.guard.fencing_token()))
    }

    /// Gives it back. See [`Guard::release`].
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
