//! The gate: many readers or the one writer.
//!
//! Readers are the I/O threads, which serve requests directly from memory, and the snapshot walk,
//! which takes short slices. The only writer is the engine: locking the gate for writing requires
//! the [`CoreToken`], of which there is one.
//!
//! Rules: a thread never locks the gate twice (it would deadlock with a writer that waits in
//! between); a holder does not await, log, or write to a socket or file; the gate is locked before
//! any connection's lock.

use std::sync::PoisonError;

use crate::sync::atomic::{AtomicBool, Ordering::Relaxed};
use crate::sync::{Mutex, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The permission to write, created once together with the gate.
#[derive(Debug)]
pub struct CoreToken(());

/// A reader/writer lock around state that has one writer. A waiting writer precedes new readers.
///
/// The lock of the standard library does not guarantee this: a reader that locks it again right
/// after unlocking repeatedly wins against a writer that has to be woken.
#[derive(Debug)]
pub struct Gate<T> {
    lock: RwLock<T>,
    /// Set while the writer waits for the present readers.
    writer_waits: AtomicBool,
    /// Locked by the writer meanwhile, so that new readers wait for it.
    turnstile: Mutex<()>,
}

pub type Shared<'a, T> = RwLockReadGuard<'a, T>;
pub type Exclusive<'a, T> = RwLockWriteGuard<'a, T>;

impl<T> Gate<T> {
    pub fn new(value: T) -> (Gate<T>, CoreToken) {
        let (lock, turnstile) = (RwLock::new(value), Mutex::new(()));
        (Gate { lock, writer_waits: AtomicBool::new(false), turnstile }, CoreToken(()))
    }

    pub fn read(&self) -> Shared<'_, T> {
        // Relaxed: the flag only orders readers and the writer; the lock orders the memory
        // accesses.
        if self.writer_waits.load(Relaxed) {
            drop(self.turnstile.lock().unwrap_or_else(PoisonError::into_inner));
        }
        self.lock.read().unwrap_or_else(cut_short)
    }

    pub fn write(&self, _token: &mut CoreToken) -> Exclusive<'_, T> {
        let _turn = self.turnstile.lock().unwrap_or_else(PoisonError::into_inner);
        self.writer_waits.store(true, Relaxed);
        let state = self.lock.write();
        self.writer_waits.store(false, Relaxed);
        state.unwrap_or_else(cut_short)
    }
}

/// Panics: a half-finished write in memory must never be served or extended. All acknowledged
/// transactions are in the log.
fn cut_short<G>(_: PoisonError<G>) -> G {
    panic!("a write to the tree was cut short by a panic; restart to recover from the log")
}

#[cfg(all(test, not(shuttle)))]
#[expect(clippy::disallowed_methods, reason = "the tests play the threads of the server")]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waiting_writer_goes_before_a_reader_that_comes_back_at_once() {
        let (gate, mut token) = Gate::new(0);
        let is_written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let first = gate.read();
            scope.spawn(|| {
                *gate.write(&mut token) += 1;
                is_written.store(true, Relaxed);
            });
            while !gate.writer_waits.load(Relaxed) {
                std::thread::yield_now();
            }
            let second = scope.spawn(|| *gate.read());
            // That the second reader waits can only be observed by waiting some time.
            std::thread::sleep(Duration::from_millis(20));
            drop(first);
            assert_eq!(second.join().expect("the reader got in"), 1, "it came before the writer");
        });
        assert!(is_written.into_inner());
    }

    #[test]
    fn readers_that_never_pause_do_not_keep_the_writer_out() {
        let (gate, mut token) = Gate::new(0);
        let is_written = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let overtaking = scope.spawn(|| {
                let mut overtaken = 0;
                while !is_written.load(Relaxed) {
                    let waits = gate.writer_waits.load(Relaxed);
                    let _state = gate.read();
                    // It is the same wait, because there is only one write.
                    overtaken += u32::from(waits && gate.writer_waits.load(Relaxed));
                    std::thread::sleep(Duration::from_micros(200));
                }
                overtaken
            });
            *gate.write(&mut token) += 1;
            is_written.store(true, Relaxed);
            assert_eq!(overtaking.join().expect("the reader ends"), 0);
        });
    }

    #[test]
    fn what_a_panic_left_half_written_is_never_shown() {
        let (gate, mut token) = Gate::new((0, 0));
        let written = catch_unwind(AssertUnwindSafe(|| {
            gate.write(&mut token).0 = 1;
            let _state = gate.write(&mut token);
            panic!("in the middle of a write");
        }));
        assert!(written.is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| *gate.read())).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| *gate.write(&mut token))).is_err());
    }
}
