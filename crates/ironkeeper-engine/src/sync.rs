//! The locks and atomics for synchronization between threads: those of the standard library.
//!
//! With `--cfg shuttle` they are shuttle's instead, with which a test tries many interleavings of
//! the code that runs in the server (`tests/permutations`). Everything that decides the
//! interleaving of threads is imported from here; mere statistics are not, because every use is a
//! switching point and makes the search longer.

#[cfg(not(shuttle))]
pub(crate) use std::sync::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};

#[cfg(shuttle)]
pub(crate) use shuttle::sync::{
    Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic,
};
