//! Randomness for shuffles, jitter and unique names. Nothing here is a secret.

use std::hash::{BuildHasher, RandomState};

/// A small generator (splitmix64) whose sequence is fixed by its seed.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn from_seed(seed: u64) -> Random {
        Random(seed)
    }

    /// Takes the seed from the operating system, through the hash keys of the standard library.
    pub(crate) fn from_os() -> Random {
        Random(RandomState::new().hash_one(0))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number in `0..bound`; 0 if `bound` is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at as u64 + 1) as usize);
        }
    }
}

/// Returns a random (version 4) UUID in its usual text form.
pub(crate) fn uuid() -> String {
    // Two independent keys: with one 64-bit state, collisions would be possible.
    uuid_of(Random::from_os().next(), Random::from_os().next())
}

/// Returns the UUID with these bits, except for the fixed bits of version and variant.
pub(crate) fn uuid_of(high: u64, low: u64) -> String {
    let bits = (u128::from(high) << 64) | u128::from(low);
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let mut text = String::with_capacity(36);
    for (at, byte) in bits.to_be_bytes().into_iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        for digit in [byte >> 4, byte & 0xf] {
            text.push(char::from(b"0123456789abcdef"[usize::from(digit)]));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uuids_have_their_form_and_differ() {
        let (one, two) = (uuid(), uuid());
        assert_ne!(one, two);
        assert_eq!(one.len(), 36);
        assert_eq!(one.as_bytes()[14], b'4');
        assert!(matches!(one.as_bytes()[19], b'8' | b'9' | b'a' | b'b'));
    }

    #[test]
    fn numbers_stay_below_their_bound() {
        let mut random = Random::from_seed(1);
        assert!((0..1000).all(|_| random.below(7) < 7));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn shuffles_bring_everything_to_the_front_at_some_time() {
        let mut random = Random::from_seed(1);
        let mut fronts = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let mut items = [1, 2, 3];
            random.shuffle(&mut items);
            fronts.insert(items[0]);
            items.sort_unstable();
            assert_eq!(items, [1, 2, 3]);
        }
        assert_eq!(fronts.len(), 3);
    }
}
