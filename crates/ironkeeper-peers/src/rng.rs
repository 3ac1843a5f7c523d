//! The only source of randomness: a seed gives the same script on every machine and in every
//! release.

/// SplitMix64. It is small, and its sequence is fixed by its definition, not by a library version.
#[derive(Debug, Clone)]
pub struct Rng {
    state: u64,
}

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`; `bound` must not be zero.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next_u64() % bound as u64) as usize
    }

    pub fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Picks an entry of a table by weight.
    pub fn weighted<T: Copy>(&mut self, table: &[(usize, T)]) -> T {
        let total = table.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(total);
        for (weight, value) in table {
            if at < *weight {
                return *value;
            }
            at -= weight;
        }
        unreachable!("the weights add up to the total")
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next_u64() as u8).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_sequence() {
        let mut rng = Rng::new(7);
        assert_eq!(rng.next_u64(), 0x63cb_e1e4_5932_0dd7);
        assert_eq!(rng.next_u64(), 0x044c_3cd7_f43c_661c);
    }
}
