//! Transactions that are applied once, even if their reply is lost.
//!
//! A receipt is an ephemeral node of this session. Every transaction also writes to it, conditional
//! on its known version. When a reply is lost, the same transaction is sent again; if the receipt's
//! version has changed, the first one was applied. A receipt serves one transaction at a time, and
//! a free receipt is kept for a later transaction, so the number of receipts is the largest number
//! of concurrent writes so far.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ironkeeper_client::{Client, CreateMode, ErrorKind, Happened, Node, OpResult, Transaction};
use tokio::sync::watch;

use crate::error::{RecipeError, Result};
use crate::place::{Place, create_containers, patient};

/// The data that a transaction writes into its receipt.
const DONE: &[u8] = b"done";
/// The data that prevents a transaction in flight from being applied later.
const FENCE: &[u8] = b"fence";

#[derive(Debug)]
pub(crate) struct Receipts {
    path: String,
    free: Mutex<Vec<Receipt>>,
    /// The number of removals that are being rolled back.
    taken_back: watch::Sender<usize>,
}

#[derive(Debug)]
pub(crate) struct Receipt {
    place: Place,
    version: i32,
}

impl Receipts {
    /// Creates an empty pool of receipts below `path`. Makes no request.
    pub(crate) fn new(path: String) -> Receipts {
        Receipts { path, free: Mutex::default(), taken_back: watch::Sender::new(0) }
    }

    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Applies a transaction once. `build` adds the operations, and is called for every attempt.
    pub(crate) async fn commit(
        &self,
        client: &Client,
        build: impl Fn(Transaction) -> Transaction,
    ) -> Result<()> {
        let mut receipt = self.take(client).await?;
        let done = receipt.commit(client, build).await;
        if done.as_ref().map_or_else(|error| refusal(error).is_some(), |()| true) {
            self.give(receipt);
        }
        done
    }

    async fn take(&self, client: &Client) -> Result<Receipt> {
        if let Some(receipt) = self.free().pop() {
            return Ok(receipt);
        }
        let mode = CreateMode::Ephemeral;
        let place = Place::take(client, &self.path, "receipt", b"", mode).await?;
        Ok(Receipt { place, version: 0 })
    }

    fn give(&self, receipt: Receipt) {
        self.free().push(receipt);
    }

    fn free(&self) -> MutexGuard<'_, Vec<Receipt>> {
        // Nothing under the lock can panic.
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes a node once. Returns `false` if another client has deleted or changed it first. If
    /// the future is dropped, the node stays or is created again.
    pub(crate) async fn remove(&self, client: &Client, path: &str, node: &Node) -> Result<bool> {
        let receipt = self.take(client).await?;
        let taken_back = &self.taken_back;
        let mut removal = Removal { client, path, node, receipt: Some(receipt), taken_back };
        let receipt = removal.receipt.as_mut().expect("it was put there");
        let version = node.stat.version;
        let removed = receipt.commit(client, |once| once.delete(path, version)).await;
        let receipt = removal.receipt.take().expect("it was put there");
        let done = match removed {
            Ok(()) => true,
            Err(error) => match refusal(&error) {
                Some(ErrorKind::NoNode | ErrorKind::BadVersion) => false,
                _ => return Err(error),
            },
        };
        self.give(receipt);
        Ok(done)
    }

    /// Waits until all removals whose future was dropped are rolled back.
    pub(crate) async fn settled(&self) {
        // `self` owns the sender, so the wait cannot fail.
        let _ = self.taken_back.subscribe().wait_for(|count| *count == 0).await;
    }
}

/// Returns the error code of the server if one of the operations that `build` added has failed:
/// then nothing was applied, and the receipt is unchanged.
pub(crate) fn refusal(error: &RecipeError) -> Option<ErrorKind> {
    let error = error.client_error()?;
    error.failed_operation().filter(|at| *at > 0).map(|_| error.kind())
}

impl Receipt {
    /// Applies a transaction once. See [`refusal`] about errors.
    async fn commit(
        &mut self,
        client: &Client,
        build: impl Fn(Transaction) -> Transaction,
    ) -> Result<()> {
        let unsure = AtomicBool::new(false);
        client
            .retry(&patient(), || {
                let once = client.transaction().set(self.place.path(), DONE, self.version);
                let committing = build(once).commit();
                let unsure = &unsure;
                async move {
                    match committing.await {
                        Ok(results) => {
                            debug_assert!(matches!(results.first(), Some(OpResult::Set(_))));
                            Ok(())
                        }
                        Err(error)
                            if error.kind() == ErrorKind::BadVersion
                                && error.failed_operation() == Some(0)
                                && unsure.load(Ordering::Relaxed) =>
                        {
                            Ok(())
                        }
                        Err(error) => {
                            unsure.fetch_or(error.happened() == Happened::Maybe, Ordering::Relaxed);
                            Err(error)
                        }
                    }
                }
            })
            .await?;
        self.version = self.version.wrapping_add(1);
        Ok(())
    }

    /// Prevents the transaction in flight from being applied later. Returns whether it was applied
    /// already; only then can the receipt be used again.
    async fn fence(&mut self, client: &Client) -> Result<bool> {
        let path = self.place.path();
        match client.retry(&patient(), || client.set(path, FENCE, self.version)).await {
            Ok(_) => Ok(false),
            Err(error) if error.kind() == ErrorKind::BadVersion => {
                // Changed by the transaction, or by an earlier attempt of the fence.
                let node = client.retry(&patient(), || client.get(path)).await?;
                self.version = node.stat.version;
                Ok(node.data == DONE)
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// A removal in flight. Dropping it rolls it back.
struct Removal<'a> {
    client: &'a Client,
    path: &'a str,
    node: &'a Node,
    receipt: Option<Receipt>,
    taken_back: &'a watch::Sender<usize>,
}

impl Drop for Removal<'_> {
    fn drop(&mut self) {
        let Some(mut receipt) = self.receipt.take() else { return };
        let (client, path, node) = (self.client.clone(), self.path.to_owned(), self.node.clone());
        let taken_back = self.taken_back.clone();
        taken_back.send_modify(|count| *count += 1);
        self.client.runtime().spawn(async move {
            let put_back = async {
                if receipt.fence(&client).await? {
                    put_back(&client, &mut receipt, &path, &node).await?;
                }
                Ok::<_, RecipeError>(())
            };
            if let Err(error) = put_back.await {
                tracing::error!(path, %error, "queue item may be lost");
            }
            taken_back.send_modify(|count| *count -= 1);
        });
    }
}

/// Creates the node again under its old name, or, if the queue was deleted and created again
/// meanwhile, at the end of the queue: the sequence numbers have started over, and the old number
/// belongs to another node, or will.
async fn put_back(client: &Client, receipt: &mut Receipt, path: &str, node: &Node) -> Result<()> {
    let parent = path.rsplit_once('/').map_or("/", |(parent, _)| parent);
    // The sequence number has ten digits.
    let base = path.len().checked_sub(10).and_then(|end| path.get(..end)).unwrap_or(path);
    let found = client.retry(&patient(), || client.exists(parent)).await?;
    let mut is_free = found.is_some_and(|stat| stat.czxid < node.stat.czxid);
    loop {
        let (path, mode) = match is_free {
            true => (path, CreateMode::Persistent),
            false => (base, CreateMode::PersistentSequential),
        };
        match receipt.commit(client, |once| once.create(path, &node.data, mode)).await {
            Ok(()) => return Ok(()),
            Err(error) => match refusal(&error) {
                Some(ErrorKind::NodeExists) if is_free => is_free = false,
                Some(ErrorKind::NoNode) => {
                    is_free = false;
                    create_containers(client, path).await?;
                }
                _ => return Err(error),
            },
        }
    }
}
