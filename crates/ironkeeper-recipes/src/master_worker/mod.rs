//! Masters, workers and tasks: one master hands out tasks, workers do them, and whoever dies is stood in
//! for.
//!
//! # On the tree
//! ```text
//! /jobs                                        persistent, as everything that is not said to be else
//!   master                                     a [`LeaderLatch`](crate::election::LeaderLatch)
//!     _c_<uuid>-latch-0000000001               ephemeral: the active master
//!     _c_<uuid>-latch-0000000002               ephemeral: a backup
//!   workers                                    container
//!     _c_<uuid>-worker-0000000004              ephemeral: a worker; data: "<capacity> <id>"
//!   tasks
//!     _c_<uuid>-task-0000000007                a task that is not finished; data: the work
//!   assign
//!     _c_<uuid>-worker-0000000004              container: what this worker has to do
//!       _c_<uuid>-task-0000000007              data: the attempt
//!   status
//!     _c_<uuid>-task-0000000007                "assigned 1 _c_<uuid>-worker-0000000004", and behind a
//!                                              line break what the worker says
//! ```
//!
//! # Steps
//! 1. [`Tasks::submit`] creates the task.
//! 2. The active [`Master`] follows tasks, workers and statuses. In one transaction it creates the
//!    assignment and writes the status, if it still is the master, the worker is there, and nobody else
//!    has written the status.
//! 3. A [`Worker`] follows its assignments. [`Assignment::done`] deletes assignment and task, and writes
//!    the result into the status, in one transaction.
//! 4. If a worker is gone, the master takes its assignments away and hands them to others, each in one
//!    transaction.
//! 5. [`Task::outcome`] waits for the status to be final; [`Task::forget`] deletes it.
//!
//! # Guarantees
//! Every task is done at least once as long as there are a master and a worker, and finished exactly
//! once: the status of a task is written as final by one worker only, and [`Assignment::done_with`] makes
//! other writes a part of that. A worker that was taken for dead cannot finish, report or write by
//! [`Assignment::transaction`] what somebody else does by now: the server refuses, since its node or its
//! assignment is gone. The same goes for a master that was replaced. Tasks are handed out in the
//! order of submission, to the worker that has least to do.
//!
//! A task costs the active master four watch events (task and status come, status changes, task goes),
//! its worker two (the assignment comes and goes), whoever awaits its outcome at most two, and
//! backups and other workers none.
//!
//! # When things break
//! - Master dies: the next one takes over; everything it has to know is on the tree.
//! - Worker dies: its tasks go to others when its session is over. [`Master::with_attempts`] limits how
//!   often, so that a task that kills its workers ends as failed.
//! - Disconnected: everything goes on after the reconnect.
//! - An assignment dropped: it is given back, and handed out anew.
//! - A task cancelled: [`Assignment::lost`] tells the worker.
//! - A lost reply: the status says what happened.

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
