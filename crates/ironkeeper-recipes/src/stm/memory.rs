//! A transactional memory, and the execution of transactions on it.

use std::future::Future;
use std::sync::Arc;

use ironkeeper_client::{Client, CreateMode, CreateOptions, ErrorKind};

use crate::error::{RecipeError, Result};
use crate::lock::Mutex;
use crate::place::{join, patient};
use crate::receipt::{Receipts, refusal};
use crate::stm::attempt::Attempt;
use crate::stm::commit::{Operation, add, operations};

/// The number of conflicts after which a transaction runs under a mutex, one at a time with the
/// other transactions that had as many.
pub const CONFLICTS_MAX: usize = 8;

/// A part of the tree that is changed by transactions.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::RecipeError;
/// use ironkeeper_recipes::stm::Memory;
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let bank = Memory::open(&client, "/bank").await?;
///     bank.atomically(|now| async move { now.put_as("/bank/anna", &100).await }).await?;
///
///     let left: u32 = bank
///         .atomically(|now| async move {
///             let anna: u32 = now.get_as("/bank/anna").await?.unwrap_or(0);
///             let berta: u32 = now.get_as("/bank/berta").await?.unwrap_or(0);
///             let poor = || RecipeError::Misuse("not enough money".to_owned());
///             let anna = anna.checked_sub(30).ok_or_else(poor)?;
///             now.put_as("/bank/anna", &anna).await?;
///             now.put_as("/bank/berta", &(berta + 30)).await?;
///             Ok(anna)
///         })
///         .await?;
///     assert_eq!(left, 70);
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "STM")]
#[doc(alias = "software transactional memory")]
pub struct Memory {
    client: Client,
    root: Arc<str>,
    receipts: Arc<Receipts>,
    turns: Mutex,
}

impl Memory {
    /// Opens the memory at and below `root`, which is created if it does not exist.
    pub async fn open(client: &Client, root: &str) -> Result<Memory> {
        if root == "/" {
            let why = "a memory cannot be at the root: what belongs to it stands beside it";
            return Err(RecipeError::Misuse(why.to_owned()));
        }
        let persistent = CreateOptions::new(CreateMode::Persistent);
        let below = join(root, "any");
        client.retry(&patient(), || client.create_parents_with(&below, &persistent)).await?;
        Ok(Memory {
            client: client.clone(),
            root: root.into(),
            receipts: Arc::new(Receipts::new(format!("{root}.receipts"))),
            turns: Mutex::new(client, format!("{root}.turns")),
        })
    }

    /// Returns the path of the memory.
    pub fn root(&self) -> &str {
        &self.root
    }

    /// Runs a transaction until it is committed. The body may run several times. Its error is
    /// returned if its reads were consistent, and then nothing is written.
    pub async fn atomically<T, F>(&self, body: impl Fn(Attempt) -> F) -> Result<T>
    where
        F: Future<Output = Result<T>>,
    {
        for _ in 0..CONFLICTS_MAX {
            if let Some(done) = self.attempt(&body).await? {
                return done;
            }
        }
        // Only transactions with many conflicts acquire the mutex. It serves fairness, not
        // correctness, so it does not matter if the lock is lost meanwhile.
        let turn = self.turns.lock().await?;
        let done = loop {
            if let Some(done) = self.attempt(&body).await? {
                break done;
            }
        };
        match turn.release().await {
            Ok(()) | Err(RecipeError::Lost { .. }) => done,
            Err(error) => done.and(Err(error)),
        }
    }

    /// Runs the body once, and commits. Returns `None` after a conflict.
    async fn attempt<T, F>(&self, body: &impl Fn(Attempt) -> F) -> Result<Option<Result<T>>>
    where
        F: Future<Output = Result<T>>,
    {
        let attempt = Attempt::new(&self.client, &self.root);
        let done = body(attempt.clone()).await;
        if done.as_ref().is_err_and(RecipeError::is_session_over) {
            return done.map(|_| None);
        }
        let mut footprint = attempt.finish();
        if done.is_err() {
            // Its reads are still checked.
            footprint.writes.clear();
        }
        let operations = operations(&footprint);
        Ok(self.commit(&operations).await?.then_some(done))
    }

    async fn commit(&self, operations: &[Operation]) -> Result<bool> {
        let writes = |operation: &Operation| !matches!(operation, Operation::Check { .. });
        let committed = if operations.is_empty() {
            Ok(())
        } else if operations.iter().any(writes) {
            self.receipts.commit(&self.client, |once| add(operations, once)).await
        } else {
            // Checks can be repeated without a receipt.
            let check = || add(operations, self.client.transaction()).commit();
            match self.client.retry(&patient(), check).await {
                Ok(_) => Ok(()),
                Err(error) if is_conflict(error.kind()) => return Ok(false),
                Err(error) => Err(error.into()),
            }
        };
        match committed {
            Ok(()) => Ok(true),
            Err(error) if refusal(&error).is_some_and(is_conflict) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

fn is_conflict(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::BadVersion | ErrorKind::NoNode | ErrorKind::NodeExists)
}
