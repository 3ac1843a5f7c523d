//! Concurrent work with a bound, for chores that wait more than they compute.

use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

use anyhow::Result;

/// Work slots: a bound of concurrent work. Chores that run concurrently share one, so that the
/// machine is not overloaded.
#[derive(Debug)]
pub struct Slots {
    count: usize,
    free: Mutex<usize>,
    freed: Condvar,
}

impl Slots {
    /// Creates `count` slots, at least one.
    pub fn new(count: usize) -> Slots {
        let count = count.max(1);
        Slots { count, free: Mutex::new(count), freed: Condvar::new() }
    }

    /// Waits for a free slot and takes it until the returned value is dropped.
    fn enter(&self) -> Slot<'_> {
        let free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        let mut free =
            self.freed.wait_while(free, |free| *free == 0).unwrap_or_else(PoisonError::into_inner);
        *free -= 1;
        Slot(self)
    }

    /// Calls `work` with each item, in this order, as slots become free.
    pub fn run<T: Sync, R: Send>(
        &self,
        items: &[T],
        work: impl Fn(&T) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let waiting = Mutex::new(items.iter());
        let next = || waiting.lock().unwrap_or_else(PoisonError::into_inner).next();
        let worker = || {
            let mut done = Vec::new();
            loop {
                let _slot = self.enter();
                let Some(item) = next() else { return Ok(done) };
                done.push(work(item)?);
            }
        };
        thread::scope(|scope| {
            let workers: Vec<_> =
                (0..self.count.min(items.len())).map(|_| scope.spawn(worker)).collect();
            let mut done = Vec::new();
            for worker in workers {
                let of_worker: Result<Vec<R>> =
                    worker.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
                done.extend(of_worker?);
            }
            Ok(done)
        })
    }
}

struct Slot<'a>(&'a Slots);

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        *self.0.free.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use anyhow::ensure;

    use super::*;

    #[test]
    fn everything_is_done_once_and_an_error_is_told() {
        let slots = Slots::new(3);
        let mut done = slots.run(&[1, 2, 3, 4, 5], |item| Ok(item * 2)).unwrap();
        done.sort_unstable();
        assert_eq!(done, [2, 4, 6, 8, 10]);
        let failed = slots.run(&[1, 2], |item| {
            ensure!(*item < 2, "too much");
            Ok(())
        });
        assert!(failed.is_err());
    }

    #[test]
    fn chores_that_share_slots_share_their_bound() {
        let slots = Slots::new(2);
        let (busy, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = |_: &usize| {
            most.fetch_max(busy.fetch_add(1, Ordering::AcqRel) + 1, Ordering::AcqRel);
            thread::yield_now();
            busy.fetch_sub(1, Ordering::AcqRel);
            Ok(())
        };
        let items: Vec<usize> = (0..200).collect();
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| slots.run(&items, work).unwrap());
            }
        });
        assert!((1..=2).contains(&most.into_inner()));
    }
}
