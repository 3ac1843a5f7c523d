//! Master, workers and tasks: the active master assigns tasks, workers execute them, and after a
//! failure another master or worker continues.
//!
//! # On the tree
//! ```text
//! /jobs                                      persistent, like all nodes without another mode here
//!   master                                   a [`LeaderLatch`](crate::election::LeaderLatch)
//!     _c_<uuid>-latch-0000000001             ephemeral: the active master
//!     _c_<uuid>-latch-0000000002             ephemeral: a backup
//!   workers                                  container
//!     _c_<uuid>-worker-0000000004            ephemeral: a worker; data: "<capacity> <id>"
//!   tasks
//!     _c_<uuid>-task-0000000007              an unfinished task; data: the work
//!   assign
//!     _c_<uuid>-worker-0000000004            container: the assignments of this worker
//!       _c_<uuid>-task-0000000007            data: the attempt
//!   status
//!     _c_<uuid>-task-0000000007              "assigned 1 _c_<uuid>-worker-0000000004", a line
//!                                            break, and the payload: progress, result or reason
//! ```
//!
//! # Steps
//! 1. [`Tasks::submit`] creates the task.
//! 2. The active [`Master`] watches tasks, workers and statuses. In one transaction it creates the
//!    assignment and writes the status, provided that it is still the master, the worker exists and
//!    the version of the status is unchanged.
//! 3. A [`Worker`] watches its assignments. [`Assignment::done`] deletes the assignment and the
//!    task and writes the result into the status, in one transaction.
//! 4. When a worker's node is deleted, the master moves each of its assignments to another worker,
//!    in one transaction per task.
//! 5. [`Task::outcome`] waits until the status is final; [`Task::forget`] deletes the status.
//!
//! # Guarantees
//! Every task is executed at least once as long as there are a master and a worker, and finished
//! exactly once: one worker only writes the final status of a task, and [`Assignment::done_with`]
//! adds other writes to the same transaction. A worker whose session expired cannot finish, report
//! or write by [`Assignment::transaction`] to a task that was assigned to another worker: the
//! server rejects the transaction, because the worker's node or its assignment does not exist any
//! more. The same holds for a master that was replaced. Tasks are assigned in the order of
//! submission, to the worker with the fewest assignments.
//!
//! A task costs the active master four watch events (task created, status created, status changed,
//! task deleted), its worker two (assignment created and deleted), a client that awaits its outcome
//! at most two, and backups and other workers none.
//!
//! # When things break
//! - The master fails: the next one continues; all state is in the tree.
//! - A worker fails: its tasks are assigned to other workers when its session has expired.
//!   [`Master::with_attempts`] limits the number of attempts, so that a task that kills its workers
//!   ends as failed.
//! - The connection is lost: all parts continue after the reconnect.
//! - An assignment is dropped: the task is returned and assigned again.
//! - A task is cancelled: [`Assignment::lost`] resolves at the worker.
//! - A reply is lost: the status shows whether the transaction was applied.

mod assignment;
mod layout;
mod master;
mod plan;
mod status;
mod tasks;
mod worker;

pub use assignment::Assignment;
pub use master::{Master, MasterState};
pub use status::{Outcome, Status};
pub use tasks::{Task, Tasks};
pub use worker::Worker;
