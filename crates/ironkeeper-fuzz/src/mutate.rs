//! Seeded mutations of inputs, for runs without coverage.

/// Numbers at the edges of lengths, counts and versions.
const EDGES: [i32; 12] = [0, 1, -1, -2, 2, 16, 255, 4096, 0xfffff, 0x0010_0000, i32::MAX, i32::MIN];
/// Mutated inputs are not longer than this.
const LEN_MAX: usize = 16 << 10;

/// A generator of inputs: small changes to the inputs of a corpus. The same seed and the same
/// corpus produce the same inputs.
#[derive(Debug)]
pub struct Mutator {
    state: u64,
}

impl Mutator {
    /// Creates a generator.
    pub fn new(seed: u64) -> Mutator {
        Mutator { state: seed }
    }

    /// Returns a changed copy of one of the inputs.
    ///
    /// # Panics
    /// If `corpus` is empty.
    pub fn next(&mut self, corpus: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = corpus[self.below(corpus.len())].clone();
        for _ in 0..=self.below(4) {
            self.change(&mut bytes, corpus);
        }
        bytes.truncate(LEN_MAX);
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>, corpus: &[Vec<u8>]) {
        let at = self.below(bytes.len() + 1);
        let len = self.below(bytes.len() - at + 1);
        match self.below(9) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(at..at + len.min(64))),
            2 => {
                let copy = bytes[at..at + len].to_vec();
                let to = self.below(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            3 => {
                let other = &corpus[self.below(corpus.len())];
                let from = self.below(other.len() + 1);
                bytes.splice(at.., other[from..].iter().copied());
            }
            4 => {
                let random = self.random() as u8;
                bytes.insert(at, random);
            }
            // Lengths, counts, codes and versions are numbers of four bytes, in most formats at any
            // offset.
            5 | 6 => {
                if let Some(number) = bytes[at..].first_chunk_mut() {
                    let edge = EDGES[self.below(EDGES.len())];
                    *number = edge.to_be_bytes();
                }
            }
            7 => {
                if let Some(number) = bytes[at..].first_chunk_mut() {
                    let step = self.below(9) as i32 - 4;
                    *number = i32::from_be_bytes(*number).wrapping_add(step).to_be_bytes();
                }
            }
            _ => {
                let bit = self.below(8);
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << bit;
                }
            }
        }
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.random() % limit as u64) as usize
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
