//! One line that says how far a run is, on a terminal only.

use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(500);

/// Rewrites a line of standard error; erases it when dropped.
#[derive(Debug)]
pub struct Progress {
    shown: bool,
    terminal: bool,
    next: Instant,
    last: (Instant, u64),
}

impl Progress {
    pub fn new() -> Progress {
        let now = Instant::now();
        Progress {
            shown: false,
            terminal: stderr().is_terminal(),
            next: now + EVERY,
            last: (now, 0),
        }
    }

    /// Shows the count and its rate since the line before, if it is time.
    pub fn show(&mut self, count: u64, of: &str) {
        let now = Instant::now();
        if !self.terminal || now < self.next {
            return;
        }
        let (then, before) = self.last;
        let rate = count.saturating_sub(before) as f64 / (now - then).as_secs_f64();
        self.last = (now, count);
        self.next = now + EVERY;
        self.shown = true;
        // A terminal that went away takes nothing from the measurement.
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
