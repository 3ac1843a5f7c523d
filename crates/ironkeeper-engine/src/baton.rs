//! A combining lock: mutual exclusion with a work queue, without a thread of its own.
//!
//! A thread that has work enqueues it, then tries the lock. If the lock is free, the thread drains
//! the queue; if it is taken, the thread returns, because the holder checks the queue again after
//! it has unlocked. This last check is what makes returning safe: the work was enqueued before the
//! thread tried the lock.
//!
//! The threads that enqueue bound the queue: each connection stops reading while it has too many
//! requests in flight.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// The combining lock. `W` is the state that at most one thread at a time may access, `I` is an
/// item of work for it.
#[derive(Debug)]
pub struct Baton<W, I> {
    inbox: Mutex<Vec<I>>,
    owner: Mutex<W>,
}

impl<W, I> Baton<W, I> {
    pub fn new(owned: W) -> Baton<W, I> {
        Baton { inbox: Mutex::new(Vec::new()), owner: Mutex::new(owned) }
    }

    fn inbox(&self) -> MutexGuard<'_, Vec<I>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Enqueues work without running it: call [`Baton::run`] afterwards on some thread.
    pub fn enqueue(&self, work: impl IntoIterator<Item = I>) {
        self.inbox().extend(work);
    }

    /// Dequeues all work, for the thread that holds the lock. `into` must be empty; its capacity is
    /// reused for the queue.
    pub fn fetch(&self, into: &mut Vec<I>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut *self.inbox(), into);
    }

    /// Runs `work` unless another thread holds the lock or an earlier `work` panicked: state that a
    /// panic left half changed is never used again. `work` must call [`Baton::fetch`] until it
    /// returns no items.
    pub fn run(&self, mut work: impl FnMut(&mut W)) {
        loop {
            let Ok(mut owned) = self.owner.try_lock() else { return };
            work(&mut owned);
            drop(owned);
            // This thread also does the work that was enqueued while it held the lock.
            if self.inbox().is_empty() {
                return;
            }
        }
    }

    /// Waits for the lock and calls `look` with the state. Call [`Baton::run`] afterwards: threads
    /// that found the lock taken meanwhile may have enqueued work.
    ///
    /// # Panics
    /// If an earlier holder of the lock panicked.
    pub fn hold<T>(&self, look: impl FnOnce(&mut W) -> T) -> T {
        look(&mut self.owner.lock().expect("no earlier panic has cut the engine's work short"))
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    #[test]
    fn what_a_panic_has_cut_short_is_never_built_upon() {
        let baton: Baton<u32, ()> = Baton::new(0);
        let cut = AssertUnwindSafe(|| {
            baton.run(|half_done| {
                *half_done = 1;
                panic!("in the middle of the work");
            });
        });
        assert!(catch_unwind(cut).is_err());
        baton.enqueue([()]);
        baton.run(|half_done| unreachable!("work goes on with {half_done}"));
        assert!(catch_unwind(AssertUnwindSafe(|| baton.hold(|half_done| *half_done))).is_err());
    }
}
