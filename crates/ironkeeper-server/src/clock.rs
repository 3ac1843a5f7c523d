//! The two clocks of this machine, as the engine wants them.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ironkeeper_engine::Now;

/// Reads both clocks at once.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The moment that the monotonic milliseconds count from, itself some way from zero, so that
    /// "long ago" can be told from "never".
    start: Instant,
    start_ms: u64,
}

impl Clock {
    pub fn start() -> Clock {
        Clock { start: Instant::now(), start_ms: 1_000_000 }
    }

    pub fn now(&self) -> Now {
        let mono_ms = self.start_ms + self.start.elapsed().as_millis() as u64;
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now { mono_ms, wall_ms: wall.as_millis() as i64 }
    }

    pub fn uptime_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}
