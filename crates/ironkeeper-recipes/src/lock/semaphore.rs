//! A counting semaphore with leases: Curator's `InterProcessSemaphoreV2`.
//!
//! # On the tree
//! ```text
//! /semaphore                                    container
//!   locks                                       a fair mutex: who may take the next lease
//!     _c_<uuid>-lock-0000000012
//!   leases
//!     _c_<uuid>-lease-0000000007                ephemeral: one lease each
//!     _c_<uuid>-lease-0000000008
//! ```
//! [`Semaphore::with_data`] sets the data of both kinds of nodes; Curator's `setNodeData` sets that
//! of the leases only.
//!
//! The limit is a number that all users agree on, or the data of a node (four bytes, big-endian, as
//! in a shared count) that can change while the semaphore is in use.
//!
//! # Steps
//! 1. Lock the mutex `locks`: only its holder, the head of the queue, creates leases; the other
//!    clients wait in order.
//! 2. Create an ephemeral sequential child of `leases`.
//! 3. List the leases. If the index of the own lease is smaller than the limit, it is granted;
//!    otherwise wait for a change of the list or of the limit, and list again.
//! 4. Release the mutex. Release the lease by deleting its node.
//!
//! # Guarantees
//! There are never more valid leases than the largest limit in force while they were granted.
//! Leases are granted in the order of the requests. An increased limit takes effect immediately.
//! Several leases are granted together or not at all, and two such requests cannot deadlock. Only
//! the head of the queue watches the leases: the release of a lease costs one watch event there,
//! and the change of the mutex's holder one more, independent of the number of waiters.
//!
//! # Leases that expire
//! With [`Semaphore::with_lease_time`] a lease expires. The head of the queue deletes a lease whose
//! time has passed; the guard of the lease is lost slightly before that. The time begins with the
//! grant, which writes it into the node of the lease. Times are compared by the `mtime` and `ctime`
//! of nodes, on the clock of the servers: the clocks of clients need not agree.
//!
//! # Deadlocks
//! A [`DeadlockDetector`](super::DeadlockDetector) reads the queue and the leases. With
//! [`Semaphore::heeding_deadlocks`] it can end a wait: each queued client has a second watch on its
//! own queue node, as with the [`Mutex`], and the head of the queue has one on the youngest of the
//! leases that it waits for. That costs a read when the wait for the leases begins, and one watch
//! event when that lease is written or deleted. The victim of a deadlock deletes its leases and its
//! queue node. Without this option there are no such reads and watches.
//!
//! # When things break
//! As for the [`Mutex`]: a wait continues after a reconnect, and the end of a session deletes its
//! leases. If another client deletes a lease that is not granted yet, the wait returns
//! [`RecipeError::NodeGone`].

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ironkeeper_client::{Client, CreateMode, ErrorKind, Version, Watch};
use tokio::time::Instant;

use crate::error::{RecipeError, Result};
use crate::guard::{Guard, at, from_now};
use crate::lock::Mutex;
use crate::lock::event::LockEvents;
use crate::lock::request::{LockRequest, within};
use crate::other_recipes;
use crate::place::{Place, create_containers, join, patient};
use crate::queue_of_waiters::{
    Bases, Contender, Participant, line_up, participants, told_to_give_up,
};
use crate::reads::children_or_none;

pub(crate) const BASES: Bases = &["lease-"];

/// The prefix of the data of a lease that expires. The milliseconds and a line feed follow.
const LEASE_TIME: &[u8] = b"lease-time-ms=";

/// A counting semaphore.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::Semaphore;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let semaphore = Semaphore::new(&client, "/semaphores/printers", 2)?;
///     let leases = semaphore.acquire_many(2).await?;
///     assert!(semaphore.try_acquire().await?.is_none());
///     for lease in leases {
///         lease.release().await?;
///     }
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "InterProcessSemaphoreV2")]
pub struct Semaphore {
    client: Client,
    path: String,
    leases: String,
    mutex: Mutex,
    limit: Limit,
    lease_time: Option<Duration>,
    /// Whether the path was checked for nodes of other recipes.
    is_alone: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum Limit {
    Fixed(usize),
    Node(String),
}

impl Semaphore {
    /// Returns a semaphore on `path` with at most `limit` leases. All users must use the same
    /// limit. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>, limit: i32) -> Result<Semaphore> {
        let limit = usize::try_from(limit)
            .map_err(|_| RecipeError::Misuse(format!("a semaphore cannot have {limit} leases")))?;
        Ok(Semaphore::with_limit(client, path.into(), Limit::Fixed(limit)))
    }

    /// Returns a semaphore whose limit is the data of the node `limit_path`, which may change at
    /// any time. The limit is zero if the node does not exist. Makes no request.
    #[doc(alias = "SharedCountReader")]
    pub fn with_shared_limit(
        client: &Client,
        path: impl Into<String>,
        limit_path: impl Into<String>,
    ) -> Semaphore {
        Semaphore::with_limit(client, path.into(), Limit::Node(limit_path.into()))
    }

    fn with_limit(client: &Client, path: String, limit: Limit) -> Semaphore {
        Semaphore {
            client: client.clone(),
            leases: join(&path, "leases"),
            mutex: Mutex::new(client, join(&path, "locks")),
            path,
            limit,
            lease_time: None,
            is_alone: Arc::default(),
        }
    }

    /// Writes the limit for semaphores made by [`Semaphore::with_shared_limit`].
    pub async fn set_shared_limit(client: &Client, limit_path: &str, limit: i32) -> Result<()> {
        if limit < 0 {
            return Err(RecipeError::Misuse(format!("a semaphore cannot have {limit} leases")));
        }
        create_containers(client, limit_path).await?;
        client
            .retry(&patient(), || {
                client.set_or_create(limit_path, limit.to_be_bytes(), CreateMode::Persistent)
            })
            .await?;
        Ok(())
    }

    /// Sets the data of the leases and of the queue nodes, which identifies their owner: a
    /// [`DeadlockDetector`](super::DeadlockDetector) distinguishes the tasks of a session by it.
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Semaphore {
        self.mutex = self.mutex.with_data(data);
        self
    }

    /// Ends the wait with an error when a deadlock is detected and this waiter is the victim. Costs
    /// a second watch while waiting, in the queue and at its head. See
    /// [the page of this lock](self#deadlocks).
    pub fn heeding_deadlocks(mut self) -> Semaphore {
        self.mutex = self.mutex.heeding_deadlocks();
        self
    }

    /// Lets leases expire after this time. All users must set a lease time: a client without one
    /// does not delete the expired leases of others.
    pub fn with_lease_time(mut self, time: Duration) -> Semaphore {
        self.lease_time = Some(time);
        self
    }

    /// Returns the path of the semaphore.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Subscribes to the events of this semaphore in this process, from now on: of the queue nodes
    /// in `locks`, which are granted at the head of the queue, and of the nodes in `leases`.
    pub fn events(&self) -> LockEvents {
        self.mutex.events()
    }

    /// Waits for a lease.
    pub async fn acquire(&self) -> Result<Guard> {
        Ok(self.acquire_many(1).await?.pop().expect("as many as were asked for"))
    }

    /// Waits for several leases; all or none.
    pub async fn acquire_many(&self, count: usize) -> Result<Vec<Guard>> {
        self.check_count(count)?;
        self.refuse_other_recipes().await?;
        let head = self.mutex.lock().await?;
        let granted = self.take(count, true).await?;
        Ok(finish(head, granted).await?.expect("they were waited for"))
    }

    /// Waits for several leases for at most `patience`; all or none.
    #[doc(alias = "acquire_timeout")]
    pub async fn acquire_many_within(
        &self,
        count: usize,
        patience: Duration,
    ) -> Result<Option<Vec<Guard>>> {
        within(patience, self.acquire_many(count)).await
    }

    /// Acquires a lease if one is free and there are no waiters.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(self.try_acquire_many(1).await?.and_then(|mut leases| leases.pop()))
    }

    /// Acquires several leases if they are free and there are no waiters.
    pub async fn try_acquire_many(&self, count: usize) -> Result<Option<Vec<Guard>>> {
        self.check_count(count)?;
        self.refuse_other_recipes().await?;
        let Some(head) = self.mutex.try_lock().await? else { return Ok(None) };
        let granted = self.take(count, false).await?;
        finish(head, granted).await
    }

    /// Waits for a lease for at most `patience`.
    #[doc(alias = "acquire_timeout")]
    #[doc(alias = "try_acquire_for")]
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Guard>> {
        within(patience, self.acquire()).await
    }

    /// Returns the owners of all lease nodes: the holders, and the head of the queue if it waits.
    pub async fn participants(&self) -> Result<Vec<Participant>> {
        let mut leases = participants(&self.client, &self.leases, BASES).await?;
        let limit = self.limit().await?;
        for (at, lease) in leases.iter_mut().enumerate() {
            lease.is_granted = at < limit;
        }
        Ok(leases)
    }

    fn check_count(&self, count: usize) -> Result<()> {
        match self.limit {
            _ if count == 0 => Err(RecipeError::Misuse("no leases were asked for".to_owned())),
            Limit::Fixed(limit) if count > limit => Err(RecipeError::Misuse(format!(
                "{}: {count} leases were asked for, and there are only {limit}",
                self.path
            ))),
            _ => Ok(()),
        }
    }

    /// Checks once that no other recipe uses the path. A recipe that starts later finds the nodes
    /// of this semaphore and returns an error itself.
    async fn refuse_other_recipes(&self) -> Result<()> {
        if self.is_alone.load(Ordering::Relaxed) {
            return Ok(());
        }
        let names = children_or_none(&self.client, &self.path).await?;
        other_recipes::refuse(&self.path, &names, |name| name == "leases")?;
        self.is_alone.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Creates and acquires `count` leases; the caller holds the mutex. Returns `None` if they are
    /// not free and `waits` is `false`.
    async fn take(&self, count: usize, waits: bool) -> Result<Option<Vec<Guard>>> {
        let mut places = Vec::with_capacity(count);
        for _ in 0..count {
            let (data, mode) = (&self.request().data, CreateMode::EphemeralSequential);
            let place = Place::take(&self.client, &self.leases, BASES[0], data, mode).await?;
            self.request().tell_of_place(&place);
            places.push(place);
        }
        // The reference point for the expiry of other leases. It is not earlier than the creation
        // of the own nodes, so no lease is deleted too early.
        let taken = Instant::now();
        if !self.has_room(&places).await? {
            if !waits {
                for place in places {
                    place.withdraw().await?;
                }
                return Ok(None);
            }
            self.wait_for_room(&places, taken).await?;
        }
        let deadline = match self.lease_time {
            Some(time) => Some(self.start_clock(&places, time).await?),
            None => None,
        };
        let grant = |place| self.request().grant(place).until(deadline);
        Ok(Some(places.into_iter().map(grant).collect()))
    }

    /// Returns the `LockRequest` used for queue nodes; lease nodes share its data.
    fn request(&self) -> &LockRequest {
        self.mutex.request()
    }

    /// Waits until the indexes of all `places` are smaller than the limit.
    async fn wait_for_room(&self, places: &[Place], taken: Instant) -> Result<()> {
        let room = async {
            loop {
                self.wait(places, taken).await?;
                if self.has_room(places).await? {
                    return Ok(());
                }
            }
        };
        // A detector takes the youngest lease for the waiting node, even if the session has others.
        let Some(youngest) = places.last() else { return room.await };
        let on_deadlock = |cycle: &str| self.request().tell_of_deadlock(youngest, cycle);
        tokio::select! {
            // `biased`: a grant precedes a deadlock notice.
            biased;
            outcome = room => outcome,
            // One watch for the whole wait, even if the leases change several times.
            told = told_to_give_up(youngest, on_deadlock), if self.request().heeds_deadlocks => {
                Err(told)
            }
        }
    }

    /// Writes the lease time into the nodes of granted leases, which starts the time, and returns
    /// its end. The time spent waiting for the grant does not count.
    async fn start_clock(&self, places: &[Place], time: Duration) -> Result<Instant> {
        // Computed before the first write, so that the guard ends before the time in the node.
        let deadline = from_now(time);
        let mut data = LEASE_TIME.to_vec();
        data.extend_from_slice(time.as_millis().to_string().as_bytes());
        data.push(b'\n');
        data.extend_from_slice(&self.request().data);
        for place in places {
            // A repetition after a lost reply restarts the time in the node, so `deadline` is still
            // earlier.
            let write = || self.client.set(place.path(), &data, Version::Any);
            match self.client.retry(&patient(), write).await {
                Err(error) if error.kind() == ErrorKind::NoNode => {
                    return Err(RecipeError::NodeGone { path: place.path().to_owned() });
                }
                written => written?,
            };
        }
        Ok(deadline)
    }

    async fn has_room(&self, ours: &[Place]) -> Result<bool> {
        let listed = self.client.retry(&patient(), || self.client.children(&self.leases)).await;
        let names = match listed {
            Err(error) if error.kind() == ErrorKind::NoNode => Vec::new(),
            other => other?,
        };
        let (_, last) = self.line(&names, ours)?;
        Ok(last < self.limit().await?)
    }

    /// Returns the leases in order, and the index of the last of `ours`. The index decides, not the
    /// number of leases: two clients that create leases at the same time, because the queue node of
    /// the head was deleted, do not wait for each other then.
    fn line<'a>(&self, names: &'a [String], ours: &[Place]) -> Result<(Vec<Contender<'a>>, usize)> {
        let line = line_up(names, BASES, ours.first().map(Place::name));
        let mut last = 0;
        for place in ours {
            match line.iter().position(|other| other.name == place.name()) {
                Some(at) => last = last.max(at),
                None => return Err(RecipeError::NodeGone { path: place.path().to_owned() }),
            }
        }
        Ok((line, last))
    }

    async fn limit(&self) -> Result<usize> {
        let path = match &self.limit {
            Limit::Fixed(limit) => return Ok(*limit),
            Limit::Node(path) => path,
        };
        let data = match self.client.retry(&patient(), || self.client.get(path)).await {
            Ok(node) => node.data,
            Err(error) if error.kind() == ErrorKind::NoNode => return Ok(0),
            Err(error) => return Err(error.into()),
        };
        parse_limit(path, &data)
    }

    /// Waits until the leases or the limit have changed, or a lease has expired.
    async fn wait(&self, ours: &[Place], taken: Instant) -> Result<()> {
        let client = &self.client;
        let (names, _, leases_changed) =
            match client.retry(&patient(), || client.children_and_watch(&self.leases)).await {
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::NoNode => return Ok(()),
                Err(error) => return Err(error.into()),
            };
        let (line, last) = self.line(&names, ours)?;
        let limit_changed = match &self.limit {
            Limit::Fixed(_) => None,
            // The limit node may be created later, so this watch is set by `exists`. It is removed
            // below.
            Limit::Node(path) => {
                Some(client.retry(&patient(), || client.exists_and_watch(path)).await?.1)
            }
        };
        // Changes before the watches were set do not fire them, so read the limit again.
        if last < self.limit().await? {
            take_off(leases_changed).await?;
            if let Some(watch) = limit_changed {
                take_off(watch).await?;
            }
            return Ok(());
        }
        let next_end = self.remove_expired(&line, ours, taken).await?;
        let mut leases_changed = leases_changed;
        let mut limit_changed = limit_changed;
        tokio::select! {
            biased;
            event = &mut leases_changed => { event?; }
            event = either(&mut limit_changed) => { event?; }
            () = at(next_end) => {}
        }
        // Remove the watch that has not fired, so that it causes no event after the grant.
        take_off(leases_changed).await?;
        if let Some(watch) = limit_changed {
            take_off(watch).await?;
        }
        Ok(())
    }

    /// Deletes expired leases of others, and returns when the next one expires.
    async fn remove_expired(
        &self,
        line: &[Contender<'_>],
        ours: &[Place],
        taken: Instant,
    ) -> Result<Option<Instant>> {
        let (true, Some(own)) = (self.lease_time.is_some(), ours.first()) else { return Ok(None) };
        let mut next: Option<Instant> = None;
        for other in line.iter().filter(|other| !ours.iter().any(|o| o.name() == other.name)) {
            let path = join(&self.leases, other.name);
            let node = match self.client.retry(&patient(), || self.client.get(&path)).await {
                Ok(node) => node,
                Err(error) if error.kind() == ErrorKind::NoNode => continue,
                Err(error) => return Err(error.into()),
            };
            let Some(time) = parse_lease_time(&node.data) else { continue };
            // The time from the creation of the own node to the expiry of the other lease, on the
            // clock of the servers. The `mtime` of the other node is its grant. One millisecond is
            // added because the times are truncated to milliseconds.
            let left_ms = (node.stat.mtime - own.stat().ctime + 1)
                .saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
            let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
            // An end that overflows `Instant` never comes.
            let Some(end) = taken.checked_add(left) else { continue };
            if Instant::now() < end {
                next = Some(next.map_or(end, |next| next.min(end)));
                continue;
            }
            let removed =
                self.client.retry(&patient(), || self.client.delete(&path, Version::Any)).await;
            match removed {
                Err(error) if error.kind() != ErrorKind::NoNode => return Err(error.into()),
                _ => {}
            }
        }
        Ok(next)
    }
}

/// Releases the mutex after the leases were granted or withdrawn.
async fn finish(head: Guard, granted: Option<Vec<Guard>>) -> Result<Option<Vec<Guard>>> {
    match head.release().await {
        // Another client deleted the queue node; the leases are valid nevertheless.
        Err(RecipeError::Lost { why: crate::Lost::NodeDeleted, .. }) | Ok(()) => Ok(granted),
        Err(error) => Err(error),
    }
}

/// Removes a watch. A lost connection removes it, too: the client does not set a removed watch
/// again after the reconnect.
async fn take_off(watch: Watch) -> Result<()> {
    match watch.remove().await {
        Err(error) if !error.is_retriable() => Err(error.into()),
        _ => Ok(()),
    }
}

async fn either(watch: &mut Option<Watch>) -> Result<()> {
    match watch {
        Some(watch) => {
            watch.await?;
            Ok(())
        }
        None => std::future::pending().await,
    }
}

fn parse_limit(path: &str, data: &[u8]) -> Result<usize> {
    let number = <[u8; 4]>::try_from(data).ok().map(i32::from_be_bytes);
    number.and_then(|number| usize::try_from(number).ok()).ok_or_else(|| RecipeError::Malformed {
        path: path.to_owned(),
        why: "the limit of a semaphore is a number in four bytes, and not negative".to_owned(),
    })
}

fn parse_lease_time(data: &[u8]) -> Option<Duration> {
    split_lease_time(data).map(|(time, _)| time)
}

/// Splits the data of a lease into the lease time and the data of the owner. Returns `None` if the
/// lease does not expire, or is not granted yet.
pub(crate) fn split_lease_time(data: &[u8]) -> Option<(Duration, &[u8])> {
    let rest = data.strip_prefix(LEASE_TIME)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let millis = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((Duration::from_millis(millis), &rest[end + 1..]))
}

/// An exclusive lock with the layout of a semaphore of one lease, not re-entrant: Curator's
/// `InterProcessSemaphoreMutex`. Otherwise as [`Semaphore`], including deadlocks and watch events:
/// two per change of holders, where the [`Mutex`] needs one.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::SemaphoreMutex;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mutex = SemaphoreMutex::new(&client, "/locks/printer");
///     let guard = mutex.lock().await?;
///     assert!(mutex.try_lock().await?.is_none());
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "InterProcessSemaphoreMutex")]
pub struct SemaphoreMutex {
    semaphore: Semaphore,
}

impl SemaphoreMutex {
    /// Returns a lock on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> SemaphoreMutex {
        SemaphoreMutex { semaphore: Semaphore::with_limit(client, path.into(), Limit::Fixed(1)) }
    }

    /// Sets the data of the nodes, which identifies their owner. See [`Semaphore::with_data`].
    pub fn with_data(mut self, data: impl Into<Bytes>) -> SemaphoreMutex {
        self.semaphore = self.semaphore.with_data(data);
        self
    }

    /// Ends the wait with an error when a deadlock is detected and this waiter is the victim. See
    /// [`Semaphore::heeding_deadlocks`].
    pub fn heeding_deadlocks(mut self) -> SemaphoreMutex {
        self.semaphore = self.semaphore.heeding_deadlocks();
        self
    }

    /// Returns the path of the lock.
    pub fn path(&self) -> &str {
        self.semaphore.path()
    }

    /// Subscribes to the events of this lock in this process, from now on. See
    /// [`Semaphore::events`].
    pub fn events(&self) -> LockEvents {
        self.semaphore.events()
    }

    /// Waits for the lock.
    pub async fn lock(&self) -> Result<Guard> {
        self.semaphore.acquire().await
    }

    /// Acquires the lock if it is free and there are no waiters.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.semaphore.try_acquire().await
    }

    /// Waits for the lock for at most `patience`.
    #[doc(alias = "try_lock_for")]
    #[doc(alias = "acquire_timeout")]
    pub async fn lock_within(&self, patience: Duration) -> Result<Option<Guard>> {
        self.semaphore.acquire_within(patience).await
    }
}
