//! A record with known fields, so that one of them can be corrupted.

use ironkeeper_peers::rng::Rng;
use ironkeeper_proto::Put;

/// Boundary values that programs often handle wrongly.
const NUMBERS: [i64; 12] = [
    -1,
    -2,
    0,
    1,
    i32::MIN as i64,
    i32::MAX as i64,
    0xf_ffff,
    0x10_0000,
    i64::MIN,
    i64::MAX,
    1 << 32,
    0x7fff_ffff_0000_0000,
];
/// Bytes that are invalid UTF-8, terminate a string in C, or have a meaning in a path.
const ODD_BYTES: [u8; 8] = [0, 0xff, 0xc0, 0xed, 0xf0, b'/', b'.', 0x7f];

#[derive(Debug, Clone, Copy)]
enum Kind {
    /// A number of four bytes: a value, a length or a count.
    Int,
    Long,
    Byte,
    /// The bytes of a string or a buffer, and their number.
    Bytes(usize),
}

/// Bytes, and the offsets of their fields.
#[derive(Debug, Default)]
pub struct Draft {
    pub bytes: Vec<u8>,
    fields: Vec<(usize, Kind)>,
}

impl Draft {
    /// Creates a draft of bytes without known fields.
    pub fn of(bytes: Vec<u8>) -> Draft {
        Draft { bytes, fields: Vec::new() }
    }

    fn field(&mut self, kind: Kind) {
        self.fields.push((self.bytes.len(), kind));
    }

    pub fn int(&mut self, value: i32) {
        self.field(Kind::Int);
        self.bytes.put_i32(value);
    }

    pub fn long(&mut self, value: i64) {
        self.field(Kind::Long);
        self.bytes.put_i64(value);
    }

    pub fn byte(&mut self, value: u8) {
        self.field(Kind::Byte);
        self.bytes.put_u8(value);
    }

    /// Adds a string or a buffer.
    pub fn buf(&mut self, value: &[u8]) {
        self.int(value.len() as i32);
        self.field(Kind::Bytes(value.len()));
        self.bytes.put_raw(value);
    }

    pub fn text(&mut self, value: &str) {
        self.buf(value.as_bytes());
    }

    /// Corrupts the record in one place.
    pub fn spoil(&mut self, rng: &mut Rng) {
        match rng.below(8) {
            0 => self.bytes.truncate(rng.below(self.bytes.len() + 1)),
            1 => {
                let len = rng.below(40);
                let more = rng.bytes(len);
                self.bytes.extend(more);
            }
            2 if !self.bytes.is_empty() => {
                let at = rng.below(self.bytes.len());
                self.bytes[at] ^= 1 << rng.below(8);
            }
            _ if !self.fields.is_empty() => {
                let (at, kind) = rng.pick(&self.fields);
                self.spoil_field(at, kind, rng);
            }
            _ => {}
        }
    }

    fn spoil_field(&mut self, at: usize, kind: Kind, rng: &mut Rng) {
        let number = if rng.percent(80) { rng.pick(&NUMBERS) } else { rng.next_u64() as i64 };
        match kind {
            Kind::Int => {
                // Lengths that are wrong by one are tested as well.
                let near =
                    rng.percent(25).then(|| self.int_at(at).wrapping_add(rng.pick(&[-1, 1])));
                let value = near.unwrap_or(number as i32);
                self.bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
            }
            Kind::Long => self.bytes[at..at + 8].copy_from_slice(&number.to_be_bytes()),
            Kind::Byte => self.bytes[at] = rng.next_u64() as u8,
            Kind::Bytes(0) => {}
            Kind::Bytes(len) => {
                for _ in 0..=rng.below(3) {
                    self.bytes[at + rng.below(len)] = rng.pick(&ODD_BYTES);
                }
            }
        }
    }

    fn int_at(&self, at: usize) -> i32 {
        let bytes = self.bytes[at..].first_chunk::<4>();
        bytes.map_or(0, |bytes| i32::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spoiled_record_differs_from_the_good_one_in_most_cases() {
        let mut rng = Rng::new(1);
        let mut changed = 0;
        for _ in 0..1_000 {
            let mut draft = Draft::default();
            draft.text("/path");
            draft.int(7);
            draft.long(8);
            draft.byte(1);
            let good = draft.bytes.clone();
            draft.spoil(&mut rng);
            changed += usize::from(draft.bytes != good);
        }
        assert!(changed > 800, "{changed} of 1000");
    }
}
