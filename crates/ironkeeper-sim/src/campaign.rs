//! Runs of many seeds, on all cores.

use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::outcome::{Failure, Layer, Report};
use crate::run_seed;

/// The seeds to run, and the limits.
#[derive(Clone, Copy, Debug)]
pub struct Campaign {
    pub layer: Layer,
    pub from: u64,
    pub seeds: u64,
    /// Run for this long, with as many seeds as fit.
    pub limit: Option<Duration>,
    /// Stop after this number of failures.
    pub failures_max: usize,
}

/// The result of a campaign.
#[derive(Debug, Default)]
pub struct Outcome {
    pub seeds: u64,
    pub took: Duration,
    pub total: Report,
    pub failures: usize,
}

impl Campaign {
    /// Runs the seeds and passes each failure to `tell` at once.
    pub fn run(&self, tell: impl Fn(&Failure) + Sync) -> Outcome {
        let began = Instant::now();
        let (next, failures) = (AtomicU64::new(0), AtomicUsize::new(0));
        let outcome = Mutex::new(Outcome::default());
        let work = || {
            loop {
                let over = match self.limit {
                    Some(limit) => began.elapsed() >= limit,
                    None => next.load(Ordering::Relaxed) >= self.seeds,
                };
                if over || failures.load(Ordering::Relaxed) >= self.failures_max {
                    return;
                }
                let number = next.fetch_add(1, Ordering::Relaxed);
                if self.limit.is_none() && number >= self.seeds {
                    return;
                }
                let seed = self.from + number;
                let ran = caught(self.layer, seed, || run_seed(self.layer, seed, false));
                let mut outcome = outcome.lock().unwrap_or_else(PoisonError::into_inner);
                outcome.seeds += 1;
                match ran {
                    Ok(report) => outcome.total += &report,
                    Err(failure) => {
                        failures.fetch_add(1, Ordering::Relaxed);
                        outcome.failures += 1;
                        tell(&failure);
                    }
                }
            }
        };
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(work);
            }
        });
        let outcome = outcome.into_inner().unwrap_or_else(PoisonError::into_inner);
        Outcome { took: began.elapsed(), ..outcome }
    }
}

/// Runs a seed. A failed assertion of the product counts as a failure.
pub(crate) fn caught(
    layer: Layer,
    seed: u64,
    run: impl FnOnce() -> Result<Report, Failure>,
) -> Result<Report, Failure> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        let what = "assertion: one of the product's own does not hold".to_owned();
        Err(Failure { layer, seed, at_us: 0, what })
    })
}
