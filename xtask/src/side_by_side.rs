//! Several pieces of work at a time, for chores that wait more than they compute.

use std::sync::Mutex;
use std::thread;

use anyhow::Result;

/// Does something with each, so many at a time, in this order.
pub fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    at_once: usize,
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let waiting = Mutex::new(items.iter());
    let next = || waiting.lock().expect("nobody panics with it").next();
    let lane = || {
        let mut done = Vec::new();
        while let Some(item) = next() {
            done.push(work(item)?);
        }
        Ok(done)
    };
    thread::scope(|scope| {
        let lanes: Vec<_> = (0..at_once.max(1)).map(|_| scope.spawn(lane)).collect();
        let mut done = Vec::new();
        for lane in lanes {
            let of_lane: Result<Vec<R>> =
                lane.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            done.extend(of_lane?);
        }
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    #[test]
    fn everything_is_done_once_and_an_error_is_told() {
        let mut done = side_by_side(&[1, 2, 3, 4, 5], 3, |item| Ok(item * 2)).unwrap();
        done.sort_unstable();
        assert_eq!(done, [2, 4, 6, 8, 10]);
        let failed = side_by_side(&[1, 2], 2, |item| {
            ensure!(*item < 2, "too much");
            Ok(())
        });
        assert!(failed.is_err());
    }
}
