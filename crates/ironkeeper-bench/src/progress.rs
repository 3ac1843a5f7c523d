//! A progress line, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// A line of standard error that is rewritten; erased on drop.
#[derive(Debug)]
pub(crate) struct Progress {
    shown: bool,
    terminal: bool,
    next: Instant,
    last: (Instant, u64),
}

impl Progress {
    pub(crate) fn new() -> Progress {
        let now = Instant::now();
        Progress {
            shown: false,
            terminal: stderr().is_terminal(),
            next: now + EVERY,
            last: (now, 0),
        }
    }

    /// Shows the count and the rate since the last update, at most once per `EVERY`.
    pub(crate) fn show(&mut self, count: u64, of: &str) {
        let now = Instant::now();
        if !self.terminal || now < self.next {
            return;
        }
        let (then, before) = self.last;
        let rate = count.saturating_sub(before) as f64 / (now - then).as_secs_f64();
        self.last = (now, count);
        self.next = now + EVERY;
        self.shown = true;
        // Losing the terminal must not fail the measurement.
        let _ = write!(stderr(), "\r\x1b[K  {count} {of}, {rate:.0} /s");
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
