//! Random numbers for load balancing, which need not be unpredictable.

use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

/// SplitMix64, shared by all threads: its state is an atomic counter.
#[derive(Debug)]
pub(super) struct Dice(AtomicU64);

/// The increment of the counter: an odd number without a bit pattern.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Default for Dice {
    fn default() -> Dice {
        Dice::seeded(RandomState::new().hash_one(STEP))
    }
}

impl Dice {
    pub(super) fn seeded(seed: u64) -> Dice {
        Dice(AtomicU64::new(seed))
    }

    /// Returns a number smaller than `end`, which must not be 0. The bias is below one in four
    /// billion if `end` fits into 32 bits.
    pub(super) fn below(&self, end: u64) -> u64 {
        let number = mix(self.0.fetch_add(STEP, Ordering::Relaxed));
        ((u128::from(number) * u128::from(end)) >> 64) as u64
    }
}

/// Mixes the bits, so that each input bit affects all output bits.
pub(super) fn mix(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}
