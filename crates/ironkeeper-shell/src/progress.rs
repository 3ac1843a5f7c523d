//! The progress of a long command: one line on standard error that is redrawn, on a terminal only.

use std::io::{Write, stderr};
use std::time::{Duration, Instant};

/// The delay before the first line, so that a short command shows no progress.
const FIRST_AFTER: Duration = Duration::from_millis(500);
const REDRAWN_AFTER: Duration = Duration::from_millis(100);

/// A counter of completed items. The line is erased on drop.
#[derive(Debug)]
pub struct Progress {
    what: &'static str,
    shown: bool,
    done: u64,
    start: Instant,
    next: Instant,
    drawn: bool,
}

impl Progress {
    /// Creates a counter. `what` describes the items: `nodes deleted`. Draws nothing unless
    /// `shown`.
    pub fn new(what: &'static str, shown: bool) -> Progress {
        let start = Instant::now();
        Progress { what, shown, done: 0, start, next: start + FIRST_AFTER, drawn: false }
    }

    pub fn add(&mut self, count: u64) {
        self.done += count;
        if !self.shown {
            return;
        }
        let now = Instant::now();
        if now < self.next {
            return;
        }
        self.next = now + REDRAWN_AFTER;
        self.drawn = true;
        let rate = self.done as f64 / (now - self.start).as_secs_f64();
        let _ = write!(stderr(), "\r\x1b[K{} {}, {rate:.0}/s", self.done, self.what);
        let _ = stderr().flush();
    }

    pub fn done(&self) -> u64 {
        self.done
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.drawn {
            let _ = write!(stderr(), "\r\x1b[K");
            let _ = stderr().flush();
        }
    }
}
