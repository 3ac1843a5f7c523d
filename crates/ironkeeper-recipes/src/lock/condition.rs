//! A condition variable: the holder of a lock releases it and waits until another holder sends a
//! notification. The `Condition` of menagerie and of java.util.concurrent.
//!
//! # On the tree
//! ```text
//! /locks/door                                  a mutex, see [`Mutex`]
//! /locks/door-opened                           container: the condition
//!   _c_<uuid>-waits-0000000003                 ephemeral: one that waits
//! ```
//!
//! # Steps
//! 1. [`Condition::wait`], with the lock held: create an ephemeral sequential node and watch it;
//!    then release the lock. No notification can come in between, because a notifier needs the
//!    lock.
//! 2. [`Condition::notify_one`], with the lock held: delete the node with the smallest number, in
//!    one transaction with a check that the lock is still held. [`Condition::notify_all`] deletes
//!    all.
//! 3. A waiter whose node was deleted acquires the lock again, and the caller evaluates its
//!    condition.
//!
//! # Guarantees
//! No waiter misses a notification that is sent after its wait began. Waiters are notified in the
//! order in which they began to wait. The server rejects the notification of a notifier that has
//! lost the lock. A notification costs one watch event per notified waiter, independent of the
//! number of waiters; the lock's own change of holders comes on top.
//!
//! As with all condition variables, a wait may end spuriously, so the caller must evaluate its
//! condition again, as [`Condition::wait_while`] does. Here that happens when another client
//! deletes the waiter's node, and when the reply to a notification is lost: the retry may then
//! notify one more waiter.
//!
//! # When things break
//! - Disconnected while waiting: the wait continues after the reconnect.
//! - Session ended: the wait returns an error. A notification that the waiter had received and not
//!   yet used is lost; where that matters, use [`Condition::notify_all`].
//! - The lock lost before the wait has begun: [`RecipeError::Lost`], without waiting.
//! - The future of a wait dropped: the waiter's node is deleted in the background. If the waiter
//!   had been notified, the notification is passed on to the next waiter.

use std::time::Duration;

use ironkeeper_client::{Client, CreateMode, ErrorKind, EventType, Version, Watch};

use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lock::mutex::Mutex;
use crate::lost::Lost;
use crate::place::{Place, join, patient};
use crate::queue_of_waiters::{Bases, line_up};
use crate::reads::children_or_none;

const BASES: Bases = &["waits-"];

/// The maximum number of waiters that one transaction notifies.
const BATCH: usize = 256;

/// A condition variable for holders of a [`Mutex`].
///
/// ```
/// use ironkeeper_client::{Client, CreateMode};
/// use ironkeeper_recipes::lock::{Condition, Mutex};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mutex = Mutex::new(&client, "/locks/door");
///     let opened = Condition::new(&mutex, "/locks/door-opened");
///
///     let waiting = tokio::spawn({
///         let (client, mutex, opened) = (client.clone(), mutex.clone(), opened.clone());
///         async move {
///             let guard = mutex.lock().await?;
///             let is_closed = || async { Ok(client.exists("/door-is-open").await?.is_none()) };
///             opened.wait_while(guard, is_closed).await?.release().await
///         }
///     });
///
///     let guard = mutex.lock().await?;
///     guard.transaction().create("/door-is-open", "", CreateMode::Persistent).commit().await?;
///     opened.notify_one(&guard).await?;
///     guard.release().await?;
///     waiting.await??;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Condition {
    mutex: Mutex,
    path: String,
}

impl Condition {
    /// Returns a condition on its own `path`, for holders of `mutex`. Makes no request.
    pub fn new(mutex: &Mutex, path: impl Into<String>) -> Condition {
        Condition { mutex: mutex.clone(), path: path.into() }
    }

    /// Returns the path of the condition.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the lock of the condition.
    pub fn mutex(&self) -> &Mutex {
        &self.mutex
    }

    /// Releases the lock, waits for a notification, and acquires the lock again. The new guard has
    /// a new fencing token. After an error the lock is not held.
    pub async fn wait(&self, guard: Guard) -> Result<Guard> {
        Ok(self.stand(guard, None).await?.0)
    }

    /// As [`Condition::wait`], but waits for a notification for at most `patience`, and also
    /// returns whether there was one. The wait for the lock afterwards has no limit.
    pub async fn wait_within(&self, guard: Guard, patience: Duration) -> Result<(Guard, bool)> {
        self.stand(guard, Some(patience)).await
    }

    /// Waits until `is_so` returns `false`. Calls `is_so` with the lock held, first immediately and
    /// then after every notification.
    pub async fn wait_while<F>(
        &self,
        mut guard: Guard,
        mut is_so: impl FnMut() -> F,
    ) -> Result<Guard>
    where
        F: Future<Output = Result<bool>>,
    {
        while is_so().await? {
            guard = self.wait(guard).await?;
        }
        Ok(guard)
    }

    /// Notifies the waiter that has waited longest; it continues once the lock is free. Returns
    /// whether there was one.
    pub async fn notify_one(&self, guard: &Guard) -> Result<bool> {
        self.refuse_other_guards(guard)?;
        for waiter in self.line().await? {
            if self.wake(guard, &[waiter]).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Notifies all present waiters; they continue one after another as each gets the lock. Returns
    /// how many there were.
    pub async fn notify_all(&self, guard: &Guard) -> Result<usize> {
        self.refuse_other_guards(guard)?;
        let mut woken = 0;
        for batch in self.line().await?.chunks(BATCH) {
            if self.wake(guard, batch).await? {
                woken += batch.len();
                continue;
            }
            // A waiter of the batch has withdrawn: notify the others one by one.
            for waiter in batch {
                woken += usize::from(self.wake(guard, std::slice::from_ref(waiter)).await?);
            }
        }
        Ok(woken)
    }

    /// Returns the number of waiters.
    pub async fn waiting(&self) -> Result<usize> {
        Ok(self.line().await?.len())
    }

    async fn line(&self) -> Result<Vec<String>> {
        line(self.mutex.client(), &self.path).await
    }

    /// Deletes the nodes of waiters, all or none. Returns `false` if one of them does not exist.
    async fn wake(&self, guard: &Guard, waiters: &[String]) -> Result<bool> {
        let client = self.mutex.client();
        let delete_all = || {
            let all = guard.fence(client.transaction());
            waiters.iter().fold(all, |all, waiter| all.delete(waiter, Version::Any)).commit()
        };
        match client.retry(&patient(), delete_all).await {
            Ok(_) => Ok(true),
            Err(error) if error.kind() != ErrorKind::NoNode => Err(error.into()),
            Err(error) if error.failed_operation() == Some(0) => {
                let (path, why) = (guard.path().to_owned(), Lost::NodeDeleted);
                Err(RecipeError::Lost { path, why })
            }
            Err(_) => Ok(false),
        }
    }

    fn refuse_other_guards(&self, guard: &Guard) -> Result<()> {
        let is_ours = guard.place().parent() == self.mutex.path()
            && guard.session_id() == self.mutex.client().session_id();
        if is_ours {
            return Ok(());
        }
        Err(RecipeError::Misuse(format!(
            "{}: the guard {} is not of the lock {} of this session",
            self.path,
            guard.path(),
            self.mutex.path()
        )))
    }

    async fn stand(&self, guard: Guard, patience: Option<Duration>) -> Result<(Guard, bool)> {
        self.refuse_other_guards(&guard)?;
        let client = self.mutex.client();
        let mode = CreateMode::EphemeralSequential;
        let place = Place::take(client, &self.path, BASES[0], b"", mode).await?;
        let mut waiter = Waiter { condition: self.path.clone(), place: Some(place) };
        let mut watch = waiter.watch().await?;
        guard.release().await?;
        let told = async {
            while let Some(watching) = watch {
                if watching.await?.kind == EventType::NodeDeleted {
                    break;
                }
                watch = waiter.watch().await?;
            }
            Ok::<_, RecipeError>(())
        };
        let is_notified = match patience {
            None => told.await.map(|()| true)?,
            Some(patience) => match tokio::time::timeout(patience, told).await {
                Ok(told) => told.map(|()| true)?,
                Err(_) => was_notified(waiter.place()).await?,
            },
        };
        if !is_notified {
            waiter.forget();
        }
        let guard = self.mutex.lock().await?;
        waiter.forget();
        Ok((guard, is_notified))
    }
}

/// Returns the nodes of all waiters, in order.
async fn line(client: &Client, path: &str) -> Result<Vec<String>> {
    let names = children_or_none(client, path).await?;
    Ok(line_up(&names, BASES, None).iter().map(|waiter| join(path, waiter.name)).collect())
}

/// A waiter that was not notified yet, or was notified and does not hold the lock yet. Dropping it
/// deletes its node and passes an unused notification on.
struct Waiter {
    condition: String,
    place: Option<Place>,
}

impl Waiter {
    fn place(&self) -> &Place {
        self.place.as_ref().expect("it is taken at the end only")
    }

    /// Returns a watch on the waiter's node, or `None` if the node was deleted, which is a
    /// notification.
    async fn watch(&self) -> Result<Option<Watch>> {
        let (client, path) = (self.place().client(), self.place().path());
        match client.retry(&patient(), || client.get_and_watch(path)).await {
            Ok((_, watch)) => Ok(Some(watch)),
            Err(error) if error.kind() == ErrorKind::NoNode => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn forget(&mut self) {
        if let Some(place) = self.place.take() {
            place.forget();
        }
    }
}

/// Deletes the waiter's node to end the wait. Returns `true` if the node did not exist: the waiter
/// was notified, or an earlier try whose reply was lost deleted the node. In the second case
/// the result is a spurious notification, which does less harm than a lost one.
async fn was_notified(place: &Place) -> Result<bool> {
    let (client, path) = (place.client(), place.path());
    match client.retry(&patient(), || client.delete(path, Version::Any)).await {
        Ok(()) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NoNode => Ok(true),
        Err(error) => Err(error.into()),
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else { return };
        if place.client().state().is_final() {
            return;
        }
        let condition = std::mem::take(&mut self.condition);
        let runtime = place.client().runtime().clone();
        runtime.spawn(async move {
            match pass_on(place, &condition).await {
                Err(error) if !error.is_session_over() => {
                    tracing::warn!(path = condition, %error, "notification may be lost");
                }
                _ => {}
            }
        });
    }
}

async fn pass_on(place: Place, condition: &str) -> Result<()> {
    let is_notified = was_notified(&place).await?;
    let client = place.client().clone();
    place.forget();
    if !is_notified {
        return Ok(());
    }
    for waiter in line(&client, condition).await? {
        match client.retry(&patient(), || client.delete(&waiter, Version::Any)).await {
            Ok(()) => break,
            Err(error) if error.kind() == ErrorKind::NoNode => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
