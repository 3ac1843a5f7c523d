//! A condition variable: the holder of a lock waits, without the lock, until another holder tells it to
//! look again. The `Condition` of menagerie and of java.util.concurrent.
//!
//! # On the tree
//! ```text
//! /locks/door                                  a mutex, see [`Mutex`]
//! /locks/door-opened                           container: the condition
//!   _c_<uuid>-waits-0000000003                 ephemeral: one that waits
//! ```
//!
//! # Steps
//! 1. [`Condition::wait`], with the lock held: create an ephemeral sequential node and watch it; then
//!    release the lock. Nobody can notify in between, since that takes the lock.
//! 2. [`Condition::notify_one`], with the lock held: delete the node with the smallest number, in one
//!    transaction with a check that the lock is still held. [`Condition::notify_all`] deletes all.
//! 3. Whose node is gone asks for the lock again, and looks at what it waited for.
//!
//! # Guarantees
//! Nobody who has begun to wait misses a notification. Those who wait are notified in the order of their
//! coming. A notifier that has lost the lock notifies nobody, by a check that the server makes. One
//! watch event per notified waiter, whoever else waits; the lock's own hand-over comes on top.
//!
//! As with all condition variables, a wait may end without a reason, so that what is waited for has to
//! be looked at again: [`Condition::wait_while`] does so. Here that happens when somebody deletes the node,
//! and when the reply to a notification is lost, which then may notify one more.
//!
//! # When things break
//! - Disconnected while waiting: the wait goes on after the reconnect.
//! - Session over: the wait ends with an error. A notification that it had got and not yet used goes
//!   with it; where that matters, notify all.
//! - The lock lost before the wait has begun: [`RecipeError::Lost`], and nobody waits.
//! - The future of a wait dropped: it withdraws. If it had been notified, the notification is passed on
//!   to the next one, in the background.

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

/// How many are notified by one transaction.
const BATCH: usize = 256;

/// A condition that holders of a [`Mutex`] wait for.
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
    /// A condition on a path of its own, for holders of `mutex`. Makes no request.
    pub fn new(mutex: &Mutex, path: impl Into<String>) -> Condition {
        Condition { mutex: mutex.clone(), path: path.into() }
    }

    /// The path of the condition.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The lock that it belongs to.
    pub fn mutex(&self) -> &Mutex {
        &self.mutex
    }

    /// Gives the lock back, waits until it is notified, and takes the lock again: the new guard has a
    /// new fencing token. With an error the lock is not held any more.
    pub async fn wait(&self, guard: Guard) -> Result<Guard> {
        Ok(self.stand(guard, None).await?.0)
    }

    /// As [`Condition::wait`], waiting for a notification this long at most, and says whether there was
    /// one. The wait for the lock afterwards is not limited.
    pub async fn wait_within(&self, guard: Guard, patience: Duration) -> Result<(Guard, bool)> {
        self.stand(guard, Some(patience)).await
    }

    /// Waits as long as something is so. It is asked with the lock held, at once and after every
    /// notification.
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

    /// Lets the one that has waited longest go on, once the lock is free. Says whether there was one.
    pub async fn notify_one(&self, guard: &Guard) -> Result<bool> {
        self.refuse_other_guards(guard)?;
        for waiter in self.line().await? {
            if self.wake(guard, &[waiter]).await? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Lets all go on who wait now, one after another as the lock gets free. Says how many there were.
    pub async fn notify_all(&self, guard: &Guard) -> Result<usize> {
        self.refuse_other_guards(guard)?;
        let mut woken = 0;
        for batch in self.line().await?.chunks(BATCH) {
            if self.wake(guard, batch).await? {
                woken += batch.len();
                continue;
            }
            // One of them is gone: the others are told one by one.
            for waiter in batch {
                woken += usize::from(self.wake(guard, std::slice::from_ref(waiter)).await?);
            }
        }
        Ok(woken)
    }

    /// How many wait.
    pub async fn waiting(&self) -> Result<usize> {
        Ok(self.line().await?.len())
    }

    async fn line(&self) -> Result<Vec<String>> {
        line(self.mutex.client(), &self.path).await
    }

    /// Deletes the nodes of waiters, all or none. `false` if one of them is not there.
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

/// The nodes of all who wait, in order.
async fn line(client: &Client, path: &str) -> Result<Vec<String>> {
    let names = children_or_none(client, path).await?;
    Ok(line_up(&names, BASES, None).iter().map(|waiter| join(path, waiter.name)).collect())
}

/// One that waits, or that was notified and has not got the lock yet. Dropping it withdraws, and passes on
/// a notification that was not used.
struct Waiter {
    condition: String,
    place: Option<Place>,
}

impl Waiter {
    fn place(&self) -> &Place {
        self.place.as_ref().expect("it is taken at the end only")
    }

    /// A watch on our node; `None` if it is gone, which is a notification.
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

/// Gives up waiting, by deleting the waiter's node, unless it is too late. One that is not there any more was notified; or it went by an earlier try
/// whose reply was lost, and then a notification too many does less harm than one too few.
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
                    tracing::warn!(condition, %error, "a notification may be lost");
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
