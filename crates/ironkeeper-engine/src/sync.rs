//! The locks and counters through which threads meet: the standard library's.
//!
//! Built with `--cfg shuttle` they are shuttle's instead, which let a test try many interleavings of
//! the very code that runs in the server (`tests/permutations`). Whatever decides how threads take
//! turns is taken from here; mere statistics are not, because every use is a place to switch and
//! makes the search longer.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
};
