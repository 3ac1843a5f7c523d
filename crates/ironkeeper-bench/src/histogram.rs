//! A histogram of latencies. A bucket is at most 1/128 of its value wide.
//!
//! Values below 128 have one bucket each; above that, each power of two is divided into 128
//! buckets. Recording a value is a shift, an add and an increment, which is cheap enough for
//! millions of requests per second.

use serde::Serialize;

const SUB_BITS: u32 = 7;
const SUB: usize = 1 << SUB_BITS;
const BUCKETS: usize = (64 - SUB_BITS as usize + 1) * SUB;

/// A histogram of nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Histogram {
    counts: Box<[u64]>,
    count: u64,
    sum: u128,
    max: u64,
}

impl Histogram {
    pub(crate) fn new() -> Histogram {
        Histogram { counts: vec![0; BUCKETS].into_boxed_slice(), count: 0, sum: 0, max: 0 }
    }

    #[inline]
    pub(crate) fn record(&mut self, value: u64) {
        self.counts[bucket(value)] += 1;
        self.count += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    pub(crate) fn merge(&mut self, other: &Histogram) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.count += other.count;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    pub(crate) fn count(&self) -> u64 {
        self.count
    }

    /// Returns the value that `share` (0 to 1) of all values do not exceed, rounded up to the end
    /// of its bucket.
    pub(crate) fn quantile(&self, share: f64) -> u64 {
        let rank = ((share * self.count as f64).ceil() as u64).clamp(1, self.count.max(1));
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return bucket_end(index).min(self.max);
            }
        }
        self.max
    }

    pub(crate) fn summary(&self) -> Latency {
        let us = |nanos: u64| nanos as f64 / 1000.0;
        Latency {
            mean: if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 / 1000.0 },
            p50: us(self.quantile(0.5)),
            p90: us(self.quantile(0.9)),
            p99: us(self.quantile(0.99)),
            p999: us(self.quantile(0.999)),
            max: us(self.max),
        }
    }
}

/// The summary of a histogram, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub mean: f64,
    pub p50: f64,
    pub p90: f64,
    pub p99: f64,
    #[serde(rename = "p99.9")]
    pub p999: f64,
    pub max: f64,
}

#[inline]
fn bucket(value: u64) -> usize {
    if value < SUB as u64 {
        return value as usize;
    }
    let shift = 63 - value.leading_zeros() - SUB_BITS;
    ((shift as usize + 1) << SUB_BITS) + ((value >> shift) as usize - SUB)
}

/// Returns the largest value of a bucket.
fn bucket_end(index: usize) -> u64 {
    if index < SUB {
        return index as u64;
    }
    let shift = (index >> SUB_BITS) - 1;
    let first = ((SUB + (index & (SUB - 1))) as u64) << shift;
    first + ((1 << shift) - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket_and_buckets_are_narrow() {
        let mut last = 0;
        for exponent in 0..64 {
            for value in
                [(1u64 << exponent) - 1, 1 << exponent, (1 << exponent) + (1 << exponent) / 3]
            {
                let index = bucket(value);
                assert!(index >= last || value < 2, "buckets are in the order of values");
                last = index;
                let end = bucket_end(index);
                assert!(end >= value && end - value <= value / 128, "{value} ends at {end}");
                assert_eq!(bucket(end), index);
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert_eq!(bucket_end(BUCKETS - 1), u64::MAX);
    }

    #[test]
    fn quantiles_of_a_known_sequence() {
        let mut histogram = Histogram::new();
        for value in 1..=100_000 {
            histogram.record(value);
        }
        for (share, exact) in [(0.5, 50_000.0), (0.9, 90_000.0), (0.999, 99_900.0)] {
            let found = histogram.quantile(share) as f64;
            assert!(found >= exact && found <= exact * 1.01, "{share}: {found}");
        }
        assert_eq!(histogram.quantile(1.0), 100_000);
        assert_eq!(histogram.summary().max, 100.0);
        assert_eq!(histogram.summary().mean, 50.0005);
    }

    #[test]
    fn merged_histograms_count_as_one() {
        let (mut low, mut high) = (Histogram::new(), Histogram::new());
        (0..90).for_each(|_| low.record(10));
        (0..10).for_each(|_| high.record(1_000_000));
        low.merge(&high);
        assert_eq!((low.count(), low.quantile(0.9), low.quantile(0.91)), (100, 10, 1_000_000));
    }

    #[test]
    fn an_empty_histogram_has_zeros() {
        assert_eq!(Histogram::new().summary().p999, 0.0);
    }
}
