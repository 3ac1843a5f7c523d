//! Transactions over several nodes that read before they write: transactional memory.
//!
//! # On the tree
//! ```text
//! /bank                                        persistent: the root, and all below it is the memory
//!   anna                                       persistent: a cell
//!   berta                                      persistent: another one
//! /bank.receipts                               for commits whose reply was lost
//! /bank.turns                                  a [`Mutex`](crate::lock::Mutex), for those who lost often
//! ```
//!
//! # Steps
//! 1. Run the body. What it reads is read from the server once and remembered with its version; what it
//!    writes is remembered, too, and seen by its later reads.
//! 2. Commit all in one multi: a check of the version of everything that was read, and the writes. Where
//!    a cell is created or deleted, its parent is written as well, with the data that it has.
//! 3. If somebody else has written any of it meanwhile, the server refuses. Begin again at 1; after
//!    [`CONFLICTS_MAX`] times only when it is our turn among those whom that has happened to.
//!
//! # Guarantees
//! A transaction that was committed saw one state of the memory and changed it in one step: as if there
//! was nobody else (serializable). It is committed once, even if replies are lost. An error of the body is
//! returned only if the state that it saw was one; else the body runs again. Nobody holds anything: a
//! transaction that stops stops nobody else, and of those that are in each other's way one gets on.
//!
//! Transactions are in each other's way if one writes what another one has read, or creates or deletes a
//! sibling or child of it: that a cell is not there, and which children there are, is known by the
//! version of the parent. This holds among those who use this recipe. Others may write to cells and be
//! noticed, but should not create or delete any: the server compares versions, and a cell that is
//! deleted and created again has its old ones.
//!
//! No watches, so no watch events; others who watch a parent see a change of its data when a child
//! comes or goes.
//!
//! # When things break
//! - Disconnected: goes on after the reconnect.
//! - A reply lost: the receipt says whether the commit took place.
//! - Session over: an error. Nothing is left behind.
//! - The future dropped: the transaction took place once, or not.

mod attempt;
mod commit;
mod memory;

pub use attempt::Attempt;
pub use memory::{CONFLICTS_MAX, Memory};
