//! Clocks that differ in offset and rate.

use crate::random::Random;

/// A clock with an offset that runs too fast or too slow.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    offset_us: u64,
    rate_per_mille: u64,
}

impl Clock {
    pub fn new(random: &mut Random) -> Clock {
        Clock { offset_us: random.below(10_000_000), rate_per_mille: random.between(850, 1150) }
    }

    pub fn local_ms(&self, now_us: u64) -> u64 {
        (self.offset_us + now_us * self.rate_per_mille / 1000) / 1000
    }

    /// Returns the first global time at which the clock shows at least `local_ms`.
    pub fn global_us(&self, local_ms: u64) -> u64 {
        let local_us = local_ms.saturating_mul(1000).saturating_sub(self.offset_us);
        local_us.saturating_mul(1000).div_ceil(self.rate_per_mille)
    }
}
