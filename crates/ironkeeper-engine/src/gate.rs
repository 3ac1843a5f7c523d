//! The gate: many readers or the one writer.
//!
//! Readers are the I/O threads, which serve requests straight from memory, and the snapshot walk,
//! which takes short slices. The writer is the engine alone: opening the gate for writing takes the
//! [`CoreToken`], of which there is one.
//!
//! House rules: a thread never opens the gate twice (a writer waiting in between would stop it for
//! ever); nothing is awaited, logged or written to a socket or file inside; the gate comes before
//! any connection's lock.

use std::sync::PoisonError;

use crate::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Permission to write, made once together with the gate.
#[derive(Debug)]
pub struct CoreToken(());

/// A reader/writer lock whose waiting writer goes before new readers (as the standard library's
/// does here), around state that has one writer.
#[derive(Debug)]
pub struct Gate<T> {
    lock: RwLock<T>,
}

pub type Shared<'a, T> = RwLockReadGuard<'a, T>;
pub type Exclusive<'a, T> = RwLockWriteGuard<'a, T>;

impl<T> Gate<T> {
    pub fn new(value: T) -> (Gate<T>, CoreToken) {
        (Gate { lock: RwLock::new(value) }, CoreToken(()))
    }

    pub fn read(&self) -> Shared<'_, T> {
        self.lock.read().unwrap_or_else(cut_short)
    }

    pub fn write(&self, _token: &mut CoreToken) -> Exclusive<'_, T> {
        self.lock.write().unwrap_or_else(cut_short)
    }
}

/// Half a write in memory must never be served or built upon. What was acknowledged is in the log.
fn cut_short<G>(_: PoisonError<G>) -> G {
    panic!("a write to the tree was cut short by a panic; restart to recover from the log")
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_waiting_writer_goes_before_new_readers() {
        let (gate, mut token) = Gate::new(0);
        std::thread::scope(|scope| {
            let reading = gate.read();
            let writer = scope.spawn(|| *gate.write(&mut token) += 1);
            // Nobody says when the writer begins to wait, but from then on readers are turned away.
            let mut looks = 0..60_000;
            let turned_away = looks.any(|_| {
                std::thread::sleep(Duration::from_millis(1));
                gate.lock.try_read().is_err()
            });
            drop(reading);
            assert!(turned_away, "readers keep coming in before the writer");
            writer.join().expect("the writer got in");
        });
        assert_eq!(*gate.read(), 1);
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
