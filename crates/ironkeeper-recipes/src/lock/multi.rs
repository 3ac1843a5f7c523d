//! Several mutexes held together, all or none: Curator's `InterProcessMultiLock`, without its
//! deadlocks.
//!
//! # On the tree
//! One [`Mutex`] per path.
//!
//! # Steps
//! The paths are sorted, and the mutexes taken one after the other in that order, which is the same for
//! everybody: no two who ask for overlapping sets wait for each other. What cannot be completed is
//! given back. They are released in the opposite order.
//!
//! # Guarantees, and when things break
//! As the [`Mutex`]; the guard is valid only if all are, and lost when one is. One watch event per
//! mutex and hand-over.

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

/// Several mutexes, taken together.
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
    /// Locks on all of these paths. No path may be named twice: its holder would wait for itself.
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

    /// Names that kazoo's `Lock` understands. All users of the paths have to do so.
    pub fn with_kazoo_names(mut self) -> MultiLock {
        self.mutexes = self.mutexes.into_iter().map(Mutex::with_kazoo_names).collect();
        self
    }

    /// Waits for all of them.
    pub async fn lock(&self) -> Result<MultiGuard> {
        let mut guards = Vec::with_capacity(self.mutexes.len());
        for mutex in &self.mutexes {
            guards.push(mutex.lock().await?);
        }
        Ok(MultiGuard { guards })
    }

    /// Takes all of them if that is possible at once.
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

    /// Waits for all of them this long at most, taken together.
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
    /// The guards of the single mutexes, sorted by path.
    pub fn guards(&self) -> &[Guard] {
        &self.guards
    }

    /// Whether all are valid. See [`Guard::is_valid`].
    pub fn is_valid(&self) -> bool {
        self.guards.iter().all(Guard::is_valid)
    }

    /// The token of each, sorted by path. There is no order between the tokens of different paths.
    pub fn fencing_tokens(&self) -> Vec<Zxid> {
        self.guards.iter().map(Guard::fencing_token).collect()
    }

    /// Lets a transaction take place only if all are still held.
    pub fn fence(&self, transaction: Transaction) -> Transaction {
        self.guards.iter().fold(transaction, |transaction, guard| guard.fence(transaction))
    }

    /// Resolves when the first of them is lost.
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

    /// Gives all of them back, the last one first. Tells the first error, after all have been tried.
    pub async fn release(self) -> Result<()> {
        let mut result = Ok(());
        for guard in self.guards.into_iter().rev() {
            let released = guard.release().await;
            result = result.and(released);
        }
        result
    }
}
