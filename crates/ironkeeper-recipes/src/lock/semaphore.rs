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
//! The nodes of both say what [`Semaphore::with_data`] gives; Curator's `setNodeData` reaches the leases alone.
//!
//! The limit is a number that all users agree on, or the data of a node (four bytes, big-endian, as a
//! shared count has it) that can change while the semaphore is in use.
//!
//! # Steps
//! 1. Take the mutex `locks`: one at a time asks for leases, the others wait in order.
//! 2. Create an ephemeral sequential child of `leases`.
//! 3. List the leases. If ours is among the first, as many as the limit says, it is granted; else wait
//!    for a change of the list or of the limit, and look again.
//! 4. Release the mutex. Give the lease back by deleting its node.
//!
//! # Guarantees
//! Never more valid leases than the largest limit in force while they were granted; granted in the
//! order of asking; a raised limit is noticed at once; several leases are granted together or not at
//! all, and no two who ask for several wait for each other. Only the one at the head of the line
//! watches the leases: a lease that is given back costs one watch event there, and the hand-over of the
//! mutex one more, however many wait.
//!
//! # Leases that expire
//! With [`Semaphore::with_lease_time`] a lease ends by itself. Its guard is lost a little before
//! others may take it away, and whoever waits at the head of the line does so when the time has
//! passed. The time begins with the grant, which writes it into the node of the lease. Times are
//! compared on the clock of the servers, by the times of modification of nodes: no clocks of clients
//! have to agree.
//!
//! # Deadlocks
//! A [`DeadlockDetector`](super::DeadlockDetector) knows the line and the leases. With
//! [`Semaphore::heeding_deadlocks`] the wait can be ended by it: those in the line have a second watch on
//! their own place, as those of the [`Mutex`], and the head of the line has one on the youngest of the
//! leases that it waits for. That costs a read when the wait for them begins, and one watch event when that
//! lease is written to or given back. Whoever is told to give way withdraws its leases and its place. Without
//! it there are no such reads and watches.
//!
//! # When things break
//! As with the [`Mutex`]: a wait outlasts a reconnect, a session that ends takes its leases with it. A lease
//! that somebody deletes while it is waited for ends the wait with [`RecipeError::NodeGone`].

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

/// What the data of a lease that expires begins with, before the milliseconds and a line feed.
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
    /// Whether the path has been looked at, and found without another recipe.
    is_alone: Arc<AtomicBool>,
}

#[derive(Clone, Debug)]
enum Limit {
    Fixed(usize),
    Node(String),
}

impl Semaphore {
    /// A semaphore on `path` with so many leases. Everybody has to give the same number.
    pub fn new(client: &Client, path: impl Into<String>, limit: i32) -> Result<Semaphore> {
        let limit = usize::try_from(limit)
            .map_err(|_| RecipeError::Misuse(format!("a semaphore cannot have {limit} leases")))?;
        Ok(Semaphore::with_limit(client, path.into(), Limit::Fixed(limit)))
    }

    /// A semaphore whose limit is the data of the node `limit_path`, which may change at any time. A
    /// node that is not there stands for zero.
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

    /// Sets the limit that semaphores made by [`Semaphore::with_shared_limit`] follow.
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

    /// What the leases say about their owner, and so does its place in the line for them: it is by this
    /// that a [`DeadlockDetector`](super::DeadlockDetector) tells the tasks of a session apart.
    pub fn with_data(mut self, data: impl Into<Bytes>) -> Semaphore {
        self.mutex = self.mutex.with_data(data);
        self
    }

    /// Lets the wait end when a deadlock is found and this waiter is chosen to give way. Costs a second
    /// watch while waiting, in the line and at its head. See [the page of this lock](self#deadlocks).
    pub fn heeding_deadlocks(mut self) -> Semaphore {
        self.mutex = self.mutex.heeding_deadlocks();
        self
    }

    /// Lets leases end by themselves after this time. Everybody has to do so for others' leases to be
    /// taken away.
    pub fn with_lease_time(mut self, time: Duration) -> Semaphore {
        self.lease_time = Some(time);
        self
    }

    /// The path of the semaphore.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// What happens in this process from now on: to the places in `locks`, which are granted when they come to
    /// the head of the line, and to the nodes in `leases`.
    pub fn events(&self) -> LockEvents {
        self.mutex.events()
    }

    /// Waits for a lease.
    pub async fn acquire(&self) -> Result<Guard> {
        Ok(self.acquire_many(1).await?.pop().expect("as many as were asked for"))
    }

    /// Waits for several leases at once; all or none.
    pub async fn acquire_many(&self, count: usize) -> Result<Vec<Guard>> {
        self.check_count(count)?;
        self.refuse_other_recipes().await?;
        let head = self.mutex.lock().await?;
        let granted = self.take(count, true).await?;
        Ok(finish(head, granted).await?.expect("they were waited for"))
    }

    /// Waits for several leases this long at most; all or none.
    #[doc(alias = "acquire_timeout")]
    pub async fn acquire_many_within(
        &self,
        count: usize,
        patience: Duration,
    ) -> Result<Option<Vec<Guard>>> {
        within(patience, self.acquire_many(count)).await
    }

    /// Takes a lease if one is free and nobody waits.
    pub async fn try_acquire(&self) -> Result<Option<Guard>> {
        Ok(self.try_acquire_many(1).await?.and_then(|mut leases| leases.pop()))
    }

    /// Takes several leases if they are free and nobody waits.
    pub async fn try_acquire_many(&self, count: usize) -> Result<Option<Vec<Guard>>> {
        self.check_count(count)?;
        self.refuse_other_recipes().await?;
        let Some(head) = self.mutex.try_lock().await? else { return Ok(None) };
        let granted = self.take(count, false).await?;
        finish(head, granted).await
    }

    /// Waits for a lease this long at most.
    #[doc(alias = "acquire_timeout")]
    #[doc(alias = "try_acquire_for")]
    pub async fn acquire_within(&self, patience: Duration) -> Result<Option<Guard>> {
        within(patience, self.acquire()).await
    }

    /// Everybody who has a lease, and the one that is about to get one.
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

    /// Looks once whether another recipe is at work on the path. What comes later sees our nodes, and is
    /// refused itself.
    async fn refuse_other_recipes(&self) -> Result<()> {
        if self.is_alone.load(Ordering::Relaxed) {
            return Ok(());
        }
        let names = children_or_none(&self.client, &self.path).await?;
        other_recipes::refuse(&self.path, &names, |name| name == "leases")?;
        self.is_alone.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// With the mutex held. `None` if they are not free and shall not be waited for.
    async fn take(&self, count: usize, waits: bool) -> Result<Option<Vec<Guard>>> {
        let mut places = Vec::with_capacity(count);
        for _ in 0..count {
            let (data, mode) = (&self.request().data, CreateMode::EphemeralSequential);
            let place = Place::take(&self.client, &self.leases, BASES[0], data, mode).await?;
            self.request().tell_of_place(&place);
            places.push(place);
        }
        // By which the time of others is measured, so that they are not cut short by what a create took.
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

    /// What the places in the line are asked for with. The leases have it in common with them.
    fn request(&self) -> &LockRequest {
        self.mutex.request()
    }

    /// Returns when all of them are among the first, as many as the limit says.
    async fn wait_for_room(&self, places: &[Place], taken: Instant) -> Result<()> {
        let room = async {
            loop {
                self.wait(places, taken).await?;
                if self.has_room(places).await? {
                    return Ok(());
                }
            }
        };
        // The youngest is the one that a detector can tell to be waiting, whatever else we have.
        let Some(youngest) = places.last() else { return room.await };
        let on_deadlock = |cycle: &str| self.request().tell_of_deadlock(youngest, cycle);
        tokio::select! {
            // Whoever can go on need not give way.
            biased;
            outcome = room => outcome,
            // One watch for the whole wait, however often the leases change meanwhile.
            told = told_to_give_up(youngest, on_deadlock), if self.request().heeds_deadlocks => {
                Err(told)
            }
        }
    }

    /// Lets the time of leases begin, which are ours from now on, and says when it ends: who waited for
    /// them has not had them yet.
    async fn start_clock(&self, places: &[Place], time: Duration) -> Result<Instant> {
        // From before the first write, so that a guard never outlives its node's time.
        let deadline = from_now(time);
        let mut data = LEASE_TIME.to_vec();
        data.extend_from_slice(time.as_millis().to_string().as_bytes());
        data.push(b'\n');
        data.extend_from_slice(&self.request().data);
        for place in places {
            // Repeated after a lost reply, it begins once more, which is later than we count.
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

    /// The leases in order, and where the last of ours stands. The place decides, not the number of
    /// leases: two who ask at the same time, because somebody deleted the head of the line, do not
    /// wait for each other then.
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

    /// Returns when the leases or the limit have changed, or when a lease has expired.
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
            // The limit may appear later, so this one watch is for existence. It goes below.
            Limit::Node(path) => {
                Some(client.retry(&patient(), || client.exists_and_watch(path)).await?.1)
            }
        };
        // What changed before the watches were set fires none of them.
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
        // The one that fired is gone; the other one must not wake us when we have long got our lease.
        take_off(leases_changed).await?;
        if let Some(watch) = limit_changed {
            take_off(watch).await?;
        }
        Ok(())
    }

    /// Takes away leases whose time is over, and says when the next one's will be.
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
            // On the clock of the servers: how long after our own node was created it ends. The node was
            // written when the lease was granted. One more, as
            // the times are cut to milliseconds.
            let left_ms = (node.stat.mtime - own.stat().ctime + 1)
                .saturating_add(i64::try_from(time.as_millis()).unwrap_or(i64::MAX));
            let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
            // Beyond all counting, it does not end.
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

/// Gives up the head of the line.
async fn finish(head: Guard, granted: Option<Vec<Guard>>) -> Result<Option<Vec<Guard>>> {
    match head.release().await {
        // Somebody deleted it: the leases are there nevertheless.
        Err(RecipeError::Lost { why: crate::Lost::NodeDeleted, .. }) | Ok(()) => Ok(granted),
        Err(error) => Err(error),
    }
}

/// Ends a watch that is not needed. A connection that breaks meanwhile ends it too: a watch that the
/// client has forgotten is not set again on the next one.
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

/// How long a lease lasts, and what it says about its owner. `None` if it does not end by itself, or has not
/// been granted yet.
pub(crate) fn split_lease_time(data: &[u8]) -> Option<(Duration, &[u8])> {
    let rest = data.strip_prefix(LEASE_TIME)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let millis = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((Duration::from_millis(millis), &rest[end + 1..]))
}

/// An exclusive lock with the layout of a semaphore of one lease, not re-entrant: Curator's
/// `InterProcessSemaphoreMutex`. See [`Semaphore`] for everything else, deadlocks and the watch events too: two
/// per hand-over, of which the [`Mutex`] needs one.
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
    /// A lock on `path`. Makes no request.
    pub fn new(client: &Client, path: impl Into<String>) -> SemaphoreMutex {
        SemaphoreMutex { semaphore: Semaphore::with_limit(client, path.into(), Limit::Fixed(1)) }
    }

    /// What the nodes say about their owner. See [`Semaphore::with_data`].
    pub fn with_data(mut self, data: impl Into<Bytes>) -> SemaphoreMutex {
        self.semaphore = self.semaphore.with_data(data);
        self
    }

    /// Lets the wait end when a deadlock is found and this waiter is chosen to give way. See
    /// [`Semaphore::heeding_deadlocks`].
    pub fn heeding_deadlocks(mut self) -> SemaphoreMutex {
        self.semaphore = self.semaphore.heeding_deadlocks();
        self
    }

    /// The path of the lock.
    pub fn path(&self) -> &str {
        self.semaphore.path()
    }

    /// What happens to this lock in this process from now on. See [`Semaphore::events`].
    pub fn events(&self) -> LockEvents {
        self.semaphore.events()
    }

    /// Waits for the lock.
    pub async fn lock(&self) -> Result<Guard> {
        self.semaphore.acquire().await
    }

    /// Takes the lock if it is free and nobody waits.
    pub async fn try_lock(&self) -> Result<Option<Guard>> {
        self.semaphore.try_acquire().await
    }

    /// Waits for the lock this long at most.
    #[doc(alias = "try_lock_for")]
    #[doc(alias = "acquire_timeout")]
    pub async fn lock_within(&self, patience: Duration) -> Result<Option<Guard>> {
        self.semaphore.acquire_within(patience).await
    }
}
