//! The encoding of an id: a time, the number of a worker, and a sequence number. Pure.

use std::fmt;

/// The bits of an id, without the sign.
const BITS: u32 = 63;

/// The sizes of the fields, and the epoch of the time. All clients of a path use the same layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnowflakeLayout {
    /// The epoch, in milliseconds since 1970.
    pub epoch_ms: i64,
    /// The bits of the worker number: 10 bits are 1024 workers.
    pub worker_bits: u32,
    /// The bits of the sequence number: 12 bits are 4096 ids per worker and millisecond.
    pub sequence_bits: u32,
}

/// The epoch is the beginning of 2020, with 41 bits of time (until the year 2089), 10 of the worker
/// number and 12 of the sequence number.
impl Default for SnowflakeLayout {
    fn default() -> SnowflakeLayout {
        SnowflakeLayout { epoch_ms: 1_577_836_800_000, worker_bits: 10, sequence_bits: 12 }
    }
}

impl fmt::Display for SnowflakeLayout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.epoch_ms, self.worker_bits, self.sequence_bits)
    }
}

/// The fields of an id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnowflakeParts {
    /// The time of creation, in milliseconds since 1970.
    pub time_ms: i64,
    /// The number of the worker.
    pub worker: u32,
    /// The sequence number within this worker and millisecond.
    pub sequence: u32,
}

impl SnowflakeLayout {
    /// Returns the reason if the layout is invalid.
    pub(super) fn problem(&self) -> Option<&'static str> {
        let bits = self.worker_bits.checked_add(self.sequence_bits);
        // Worker and sequence number have to fit into a UUID, and the time has to last.
        if self.worker_bits > 20 || self.sequence_bits > 20 || bits.is_none_or(|bits| bits > 31) {
            return Some("worker and count have 20 bits each and 31 together at most");
        }
        if self.epoch_ms < 0 {
            return Some("time is counted from 1970 on, or later");
        }
        None
    }

    /// Parses the text of a layout; `None` if it is malformed.
    pub(super) fn parse(text: &str) -> Option<SnowflakeLayout> {
        let mut words = text.split(' ');
        let layout = SnowflakeLayout {
            epoch_ms: words.next()?.parse().ok()?,
            worker_bits: words.next()?.parse().ok()?,
            sequence_bits: words.next()?.parse().ok()?,
        };
        layout.problem().is_none().then_some(layout)
    }

    /// Returns the maximum number of workers.
    pub fn workers(&self) -> u32 {
        1 << self.worker_bits
    }

    pub(super) fn sequence_max(&self) -> u32 {
        (1 << self.sequence_bits) - 1
    }

    /// Encodes an id; `None` if the time does not fit.
    pub(super) fn encode(&self, parts: SnowflakeParts) -> Option<i64> {
        let time = parts.time_ms.checked_sub(self.epoch_ms).filter(|time| *time >= 0)?;
        let shift = self.worker_bits + self.sequence_bits;
        if time >> (BITS - shift) != 0 {
            return None;
        }
        let low = (i64::from(parts.worker) << self.sequence_bits) | i64::from(parts.sequence);
        Some((time << shift) | low)
    }

    /// Decodes an id.
    ///
    /// ```
    /// use ironkeeper_recipes::naming::SnowflakeLayout;
    ///
    /// let parts = SnowflakeLayout::default().decode((5000 << 22) | (3 << 12) | 7);
    /// assert_eq!((parts.time_ms, parts.worker, parts.sequence), (1_577_836_805_000, 3, 7));
    /// ```
    pub fn decode(&self, id: i64) -> SnowflakeParts {
        let low = |bits: u32| (1_i64 << bits) - 1;
        SnowflakeParts {
            time_ms: (id >> (self.worker_bits + self.sequence_bits)).saturating_add(self.epoch_ms),
            worker: ((id >> self.sequence_bits) & low(self.worker_bits)) as u32,
            sequence: (id & low(self.sequence_bits)) as u32,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_time_that_does_not_fit_is_none() {
        let layout = SnowflakeLayout::default();
        let at = |time_ms| layout.encode(SnowflakeParts { time_ms, worker: 0, sequence: 0 });
        assert_eq!(at(layout.epoch_ms), Some(0));
        assert_eq!(at(layout.epoch_ms - 1), None);
        assert!(at(layout.epoch_ms + (1 << 41) - 1).is_some_and(|id| id > 0));
        assert_eq!(at(layout.epoch_ms + (1 << 41)), None);
        assert_eq!(at(i64::MIN), None);
    }

    proptest! {
        #[test]
        fn what_goes_in_comes_out_and_ids_sort_by_time(
            worker_bits in 0_u32..=20,
            sequence_bits in 0_u32..=11,
            after_ms in 0_i64..1 << 31,
            numbers: (u32, u32),
        ) {
            let layout = SnowflakeLayout { epoch_ms: 1_000, worker_bits, sequence_bits };
            prop_assert_eq!(layout.problem(), None);
            prop_assert_eq!(SnowflakeLayout::parse(&layout.to_string()), Some(layout));
            let parts = SnowflakeParts {
                time_ms: 1_000 + after_ms,
                worker: numbers.0 % layout.workers(),
                sequence: numbers.1 & layout.sequence_max(),
            };
            let id = layout.encode(parts).unwrap();
            prop_assert_eq!(layout.decode(id), parts);
            let later = SnowflakeParts { time_ms: parts.time_ms + 1, worker: 0, sequence: 0 };
            prop_assert!(layout.encode(later).unwrap() > id);
        }
    }
}
