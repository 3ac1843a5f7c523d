//! Several mutexes held together, all or none: Curator's `InterProcessMultiLock`, without its
//! deadlocks.
//!
//! # On the tree
//! One [`Mutex`] per path.
//!
//! # Steps
//! The paths are sorted, and the mutexes are acquired one after the other in that order, which is
//! the same for all clients: two requests with overlapping sets cannot deadlock. If a mutex cannot
//! be acquired, those acquired before are released. The release is in the opposite order.
//!
//! # Guarantees, and when things break
//! As for the [`Mutex`]. The guard is valid only if the guards of all mutexes are, and lost when
//! one of them is lost. A change of holders costs one watch event per mutex.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use ironkeeper_client::{Client, Transaction, Zxid};

use crate::error::{RecipeError, Result};
use crate::guard::Guard;
use crate::lock::Mutex;
use crate::lock::request::within;
use crate::lost::Lost;

/// Several mutexes that are acquired together.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::lock::MultiLock;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let transfer = MultiLock::new(&client, ["/accounts/b", "/accounts/a"])?;
///     let guard = transfer.lock().await?;
///     assert!(guard.is_valid());
///     guard.release().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "InterProcessMultiLock")]
pub struct MultiLock {
    mutexes: Vec<Mutex>,
}

impl MultiLock {
    /// Returns a lock on all of these paths. Rejects duplicate paths, whose holder would wait for
    /// itself, and an empty list. Makes no request.
    pub fn new<P: Into<String>>(
        client: &Client,
        paths: impl IntoIterator<Item = P>,
    ) -> Result<MultiLock> {
        let mut paths: Vec<String> = paths.into_iter().map(Into::into).collect();
        paths.sort();
        if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(RecipeError::Misuse(format!("{} is named twice", twice[0])));
        }
        if paths.is_empty() {
            return Err(RecipeError::Misuse("a lock of no paths locks nothing".to_owned()));
        }
        Ok(MultiLock { mutexes: paths.iter().map(|path| Mutex::new(client, path)).collect() })
    }

    /// Uses node names that kazoo's `Lock` understands. All users of the paths must do so.
    pub fn with_kazoo_names(mut self) -> MultiLock {
        self.mutexes = self.mutexes.into_iter().map(Mutex::with_kazoo_names).collect();
        self
    }

    /// Waits for all mutexes.
    pub async fn lock(&self) -> Result<MultiGuard> {
        let mut guards = Vec::with_capacity(self.mutexes.len());
        for mutex in &self.mutexes {
            guards.push(mutex.lock().await?);
        }
        Ok(MultiGuard { guards })
    }

    /// Acquires all mutexes if that is possible without waiting.
    pub async fn try_lock(&self) -> Result<Option<MultiGuard>> {
        let mut guards = Vec::with_capacity(self.mutexes.len());
        for mutex in &self.mutexes {
            match mutex.try_lock().await? {
                Some(guard) => guards.push(guard),
                None => {
                    MultiGuard { guards }.release().await?;
                    return Ok(None);
                }
            }
        }
        Ok(Some(MultiGuard { guards }))
    }

    /// Waits for all mutexes, for at most `patience` in total.
    #[doc(alias = "try_lock_for")]
    #[doc(alias = "acquire_timeout")]
    pub async fn lock_within(&self, patience: Duration) -> Result<Option<MultiGuard>> {
        within(patience, self.lock()).await
    }
}

/// Several mutexes held together.
#[derive(Debug)]
#[must_use = "a guard that is dropped gives back what it holds"]
pub struct MultiGuard {
    guards: Vec<Guard>,
}

impl MultiGuard {
    /// Returns the guards of the single mutexes, sorted by path.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Returns whether all guards are valid. See [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// Returns the token of each guard, sorted by path. Tokens of different paths are not
    /// comparable.
    pub fn fencing_tokens(&self) -> Vec<Zxid> {
        self.guards.iter().map(Guard::fencing_token).collect()
    }

    /// Adds checks to a transaction, so that the server applies it only if all guards are still
    /// held.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        self.guards.iter().fold(transaction, |transaction, guard| guard.fence(transaction))
    }

    /// Waits until the first guard is lost.
    pub async fn lost(&self) -> Lost {
        let mut all: Vec<Pin<Box<dyn Future<Output = Lost> + Send + '_>>> = Vec::new();
        for guard in &self.guards {
            all.push(Box::pin(guard.lost()));
        }
        poll_fn(|cx| {
            for one in &mut all {
                if let Poll::Ready(lost) = one.as_mut().poll(cx) {
                    return Poll::Ready(lost);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Releases all guards, the last one first. Tries all of them, and returns the first error.
    pub async fn release(self) -> Result<()> {
        let mut result = Ok(());
        for guard in self.guards.into_iter().rev() {
            let released = guard.release().await;
            result = result.and(released);
        }
        result
    }
}
