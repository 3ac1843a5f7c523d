//! One owner at a time without a thread of its own, and no work left lying.
//!
//! Whoever brings work leaves it in the inbox and then takes the baton if it is free: who has it
//! works off everything that has arrived. Who finds it taken goes away, because whoever holds it
//! looks into the inbox once more after letting go. That last look is what makes going away safe:
//! the work was in the inbox before the baton was tried.
//!
//! The inbox is bounded by those who bring work: each connection stops reading when it has too much
//! of it under way.

use std::sync::PoisonError;

use crate::sync::{Mutex, MutexGuard};

/// See the head of this file. `W` is what only one thread at a time may have, `I` is work for it.
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

    /// Leaves work for whoever comes next: follow with [`Baton::run`] on some thread.
    pub fn leave(&self, work: impl IntoIterator<Item = I>) {
        self.inbox().extend(work);
    }

    /// Fetches everything that was left, for the one who has the baton. `into` must be empty; its
    /// room is used for what comes next.
    pub fn fetch(&self, into: &mut Vec<I>) {
        debug_assert!(into.is_empty());
        std::mem::swap(&mut *self.inbox(), into);
    }

    /// Has `work` done unless another thread is at it, or a panic has cut work short: what that
    /// left is never built upon. It must [`Baton::fetch`] until nothing comes.
    pub fn run(&self, mut work: impl FnMut(&mut W)) {
        loop {
            let Ok(mut owned) = self.owner.try_lock() else { return };
            work(&mut owned);
            drop(owned);
            // What was left here while we still had the baton is ours to do.
            if self.inbox().is_empty() {
                return;
            }
        }
    }

    /// Waits for the baton and does something else with it. Follow with [`Baton::run`]: work may
    /// have been left meanwhile by those who found the baton taken.
    ///
    /// # Panics
    /// If an earlier panic has cut work short.
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
        baton.leave([()]);
        baton.run(|half_done| unreachable!("work goes on with {half_done}"));
        assert!(catch_unwind(AssertUnwindSafe(|| baton.hold(|half_done| *half_done))).is_err());
    }
}
