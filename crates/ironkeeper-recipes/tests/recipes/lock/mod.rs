//! Locks, each against a real server, with and without faults.

mod bugs_of_others;
mod condition;
mod deadlock;
mod heirs;
mod herd;
mod mutex;
mod next_in_line;
mod other_locks;
mod read_write;
mod semaphore;
mod semaphore_deadlock;
mod under_faults;
