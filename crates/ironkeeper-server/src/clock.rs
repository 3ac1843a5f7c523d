//! The two clocks of this machine, in the form that the engine needs.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ironkeeper_engine::Now;

/// A reader of both clocks.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// The origin of the monotonic milliseconds. It has the value `start_ms`, not zero, so that
    /// "long ago" is different from "never".
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
