//! The deadline of the timer thread.
//!
//! The engine sets it after every batch of work. A later deadline has no effect: the thread wakes
//! up too early once and computes the deadline again. An earlier deadline wakes the thread.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

/// The timer thread pauses at least this long, so that other threads can lock the engine.
const PAUSE_MIN: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct Alarm {
    /// In milliseconds of the server's clock.
    planned_ms: AtomicU64,
    sleeper: OnceLock<Thread>,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm { planned_ms: AtomicU64::new(u64::MAX), sleeper: OnceLock::new() }
    }
}

impl Alarm {
    /// Makes sure that the thread runs by `due_ms`.
    pub fn not_later_than(&self, due_ms: u64) {
        if due_ms < self.planned_ms.fetch_min(due_ms, Ordering::AcqRel)
            && let Some(sleeper) = self.sleeper.get()
            // The timer thread itself is running, and an unpark would end its next park.
            && sleeper.id() != std::thread::current().id()
        {
            sleeper.unpark();
        }
    }

    /// Clears the deadline: the caller is about to check everything.
    pub fn begin(&self) {
        self.sleeper.get_or_init(std::thread::current);
        self.planned_ms.store(u64::MAX, Ordering::Release);
    }

    /// Parks until `due_ms` or an earlier deadline set meanwhile, but no longer than `pause_max`.
    pub fn sleep(&self, due_ms: u64, now_ms: u64, pause_max: Duration) {
        let due_ms = self.planned_ms.fetch_min(due_ms, Ordering::AcqRel).min(due_ms);
        let left = Duration::from_millis(due_ms.saturating_sub(now_ms));
        std::thread::park_timeout(left.clamp(PAUSE_MIN, pause_max.max(PAUSE_MIN)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn an_earlier_deadline_ends_the_sleep() {
        let alarm = Arc::new(Alarm::default());
        let (begun, has_begun) = std::sync::mpsc::channel();
        let sleeper = std::thread::spawn({
            let alarm = Arc::clone(&alarm);
            move || {
                alarm.begin();
                begun.send(()).expect("the test waits for it");
                let began = Instant::now();
                alarm.sleep(1_000_000, 0, LONG);
                began.elapsed()
            }
        });
        has_begun.recv().expect("the thread begins");
        alarm.not_later_than(2_000_000);
        alarm.not_later_than(5);
        assert!(sleeper.join().expect("nothing to fail at") < Duration::from_secs(900));
    }

    #[test]
    fn a_deadline_set_by_the_timer_thread_itself_does_not_end_its_sleep() {
        let alarm = Alarm::default();
        alarm.begin();
        alarm.not_later_than(100);
        let began = Instant::now();
        alarm.sleep(100, 0, LONG);
        assert!(began.elapsed() >= Duration::from_millis(100));
    }

    #[test]
    fn a_deadline_set_before_the_sleep_is_kept() {
        let alarm = Alarm::default();
        alarm.begin();
        alarm.not_later_than(7);
        alarm.sleep(1_000_000, 7, LONG);
    }
}
