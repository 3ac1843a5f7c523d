//! A mutex that its holder may acquire again: Curator's re-entrant `InterProcessMutex`.
//!
//! # On the tree
//! As for [`Mutex`]: one node per handle, independent of how often it is acquired.
//!
//! # Steps
//! The first acquire locks the mutex; further ones ask the server whether it is still held, and
//! increase a counter. The last release unlocks the mutex. The owner is the handle, not the thread:
//! a task may move between threads, and a handle may be lent to a function that acquires the lock
//! again.
//!
//! # Guarantees, and when things break
//! As for [`Mutex`]. An acquire on a handle whose lock was lost meanwhile fails with
//! [`RecipeError::Lost`], and so do the releases until the count is zero: the callers in the middle
//! of their work must not continue. One watch event per change of holders.

use std::time::Duration;

use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lock::Mutex;
use crate::lost::Lost;

/// A handle that can acquire a [`Mutex`] several times.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::{Mutex, Reentrant};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mut lock = Reentrant::new(Mutex::new(&client, "/locks/report"));
///     lock.acquire().await?;
///     lock.acquire().await?;
///     assert_eq!(lock.count(), 2);
///     lock.release().await?;
///     lock.release().await?;
///     assert!(lock.release().await.is_err()); // not held any more
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[doc(alias = "InterProcessMutex")]
#[doc(alias = "ReentrantLock")]
#[doc(alias = "RLock")]
pub struct Reentrant {
    mutex: Mutex,
    held: Option<Guard>,
    count: usize,
}

impl Reentrant {
    /// Returns a handle on a mutex. Makes no request.
    pub fn new(mutex: Mutex) -> Reentrant {
        Reentrant { mutex, held: None, count: 0 }
    }

    /// Waits for the lock, or increases the count if the handle holds it.
    pub async fn acquire(&mut self) -> Result<()> {
        if self.enter_again().await? {
            return Ok(());
        }
        self.held = Some(self.mutex.lock().await?);
        self.count = 1;
        Ok(())
    }

    /// Acquires the lock if that is possible without waiting. Returns whether it was.
    pub async fn try_acquire(&mut self) -> Result<bool> {
        if self.enter_again().await? {
            return Ok(true);
        }
        self.held = self.mutex.try_lock().await?;
        self.count = usize::from(self.held.is_some());
        Ok(self.held.is_some())
    }

    /// Waits for the lock for at most `patience`. Returns whether it was granted.
    #[doc(alias = "acquire_timeout")]
    pub async fn acquire_within(&mut self, patience: Duration) -> Result<bool> {
        if self.enter_again().await? {
            return Ok(true);
        }
        self.held = self.mutex.lock_within(patience).await?;
        self.count = usize::from(self.held.is_some());
        Ok(self.held.is_some())
    }

    async fn enter_again(&mut self) -> Result<bool> {
        let Some(held) = &self.held else { return Ok(false) };
        if held.client().state().is_final() {
            return Err(lost(held, Lost::SessionEnded));
        }
        // There may be no task that awaits `Guard::lost`, so ask the server.
        match held.check().await {
            Ok(true) if !held.is_known_lost() => {}
            Ok(_) => return Err(lost(held, Lost::NodeDeleted)),
            Err(error) if error.is_session_over() => return Err(lost(held, Lost::SessionEnded)),
            Err(error) => return Err(error),
        }
        self.count += 1;
        Ok(true)
    }

    /// Reverts one acquire; the last call releases the lock.
    pub async fn release(&mut self) -> Result<()> {
        match self.count {
            0 => Err(RecipeError::NotHeld { path: self.mutex.path().to_owned() }),
            1 => {
                self.count = 0;
                match self.held.take() {
                    Some(held) => held.release().await,
                    None => Ok(()),
                }
            }
            _ => {
                self.count -= 1;
                match &self.held {
                    Some(held) if held.client().state().is_final() => {
                        Err(lost(held, Lost::SessionEnded))
                    }
                    Some(held) if held.is_known_lost() => Err(lost(held, Lost::NodeDeleted)),
                    _ => Ok(()),
                }
            }
        }
    }

    /// Returns how many times the lock is acquired.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Returns the guard of the lock, if it is held: for its token, and for [`Guard::lost`].
    pub fn guard(&self) -> Option<&Guard> {
        self.held.as_ref()
    }
}

fn lost(held: &Guard, why: Lost) -> RecipeError {
    RecipeError::Lost { path: held.path().to_owned(), why }
}
