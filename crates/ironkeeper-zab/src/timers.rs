//! A table of deadlines.

/// The timers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Timer {
    /// Send the vote again.
    Poll,
    /// No better vote has arrived for long enough.
    Finalize,
    /// Dial the leader again.
    Dial,
    /// No packet from the leader for too long, or no progress in establishing one.
    Patience,
    /// The leader's half tick: pings, and every second time the count of its followers.
    HalfTick,
    /// An observer waits before it is LOOKING again, so that not all observers are at the same
    /// time.
    Delay,
}

const COUNT: usize = 6;

/// Deadlines in milliseconds of the monotonic clock; `u64::MAX` is never.
#[derive(Clone, Debug)]
pub(crate) struct Timers {
    at_ms: [u64; COUNT],
}

impl Default for Timers {
    fn default() -> Timers {
        Timers { at_ms: [u64::MAX; COUNT] }
    }
}

impl Timers {
    pub(crate) fn set(&mut self, timer: Timer, at_ms: u64) {
        self.at_ms[timer as usize] = at_ms;
    }

    pub(crate) fn clear(&mut self, timer: Timer) {
        self.set(timer, u64::MAX);
    }

    pub(crate) fn is_set(&self, timer: Timer) -> bool {
        self.at_ms[timer as usize] != u64::MAX
    }

    pub(crate) fn clear_all(&mut self) {
        *self = Timers::default();
    }

    /// Returns the earliest deadline.
    pub(crate) fn deadline_ms(&self) -> u64 {
        self.at_ms.into_iter().min().unwrap_or(u64::MAX)
    }

    /// Returns whether the timer is due; if so, clears it.
    pub(crate) fn take(&mut self, timer: Timer, now_ms: u64) -> bool {
        let due = self.at_ms[timer as usize] <= now_ms;
        if due {
            self.clear(timer);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_is_the_deadline_and_taking_clears() {
        let mut timers = Timers::default();
        timers.set(Timer::Poll, 20);
        timers.set(Timer::Dial, 10);
        assert_eq!(timers.deadline_ms(), 10);
        assert!(!timers.take(Timer::Poll, 19));
        assert!(timers.take(Timer::Dial, 19));
        assert_eq!(timers.deadline_ms(), 20);
        assert!(!timers.is_set(Timer::Dial));
    }
}
