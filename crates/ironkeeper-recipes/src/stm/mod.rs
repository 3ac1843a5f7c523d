//! Software transactional memory: transactions over several nodes that read before they write.
//!
//! # On the tree
//! ```text
//! /bank                                        persistent: the root; all nodes below it are cells
//!   anna                                       persistent: a cell
//!   berta                                      persistent: another cell
//! /bank.receipts                               for commits whose reply was lost
//! /bank.turns                                  a mutex, for transactions with many conflicts
//! ```
//!
//! # Steps
//! 1. Run the body. Each cell is read from the server once, and kept with its version; writes are
//!    kept as well, and later reads of the body return them.
//! 2. Commit in one multi: a check of the version of every cell that was read, and the writes.
//!    Where a cell is created or deleted, its parent is written as well, with unchanged data.
//! 3. If another client has written one of these cells meanwhile, the server rejects the multi.
//!    Start over; after [`CONFLICTS_MAX`] conflicts, acquire the mutex first.
//!
//! # Guarantees
//! Transactions are serializable: a committed transaction saw one state of the memory and changed
//! it in one step. It is committed once, even if replies are lost. An error of the body is returned
//! only if the reads were consistent; else the body runs again. Cells are not locked: a transaction
//! that stops does not block others (except those that wait for the mutex, if it holds it), and of
//! several conflicting transactions one is committed.
//!
//! Two transactions conflict if one writes a cell that the other one has read, or creates or
//! deletes a sibling or child of it: the version of the parent covers the absence of a cell and the
//! list of children. This holds among clients that use this recipe. Other clients may write to
//! cells, which is detected, but should not create or delete any: the server compares versions, and
//! a cell that is deleted and created again starts with its old versions.
//!
//! No watches, so no watch events; clients that watch a parent receive a change of its data when a
//! child is created or deleted.
//!
//! # When things break
//! - Disconnected: the transaction continues after the reconnect.
//! - A reply is lost: the receipt shows whether the commit was applied.
//! - Session ended: an error. No receipt and no lock remains.
//! - The future is dropped: the transaction is applied once, or not at all.

mod attempt;
mod commit;
mod memory;

pub use attempt::Attempt;
pub use memory::{CONFLICTS_MAX, Memory};
