//! Summaries and histograms of numbers, mostly of milliseconds.
//!
//! All accesses are relaxed: a summary orders nothing, and a reader sees numbers that may be a
//! moment apart.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Count, sum, minimum and maximum of some numbers, mostly milliseconds.
#[derive(Debug)]
pub struct Summary {
    count: AtomicU64,
    sum: AtomicU64,
    least: AtomicU64,
    most: AtomicU64,
}

impl Default for Summary {
    fn default() -> Summary {
        Summary {
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            least: AtomicU64::new(u64::MAX),
            most: AtomicU64::new(0),
        }
    }
}

impl Summary {
    #[inline]
    pub fn add(&self, value: u64) {
        self.count.fetch_add(1, Relaxed);
        // Most requests take less than a millisecond, and zero changes neither sum nor maximum.
        if value != 0 {
            self.sum.fetch_add(value, Relaxed);
            self.most.fetch_max(value, Relaxed);
        }
        if self.least.load(Relaxed) > value {
            self.least.fetch_min(value, Relaxed);
        }
    }

    pub fn reset(&self) {
        self.count.store(0, Relaxed);
        self.sum.store(0, Relaxed);
        self.least.store(u64::MAX, Relaxed);
        self.most.store(0, Relaxed);
    }

    pub fn totals(&self) -> Totals {
        Totals {
            count: self.count.load(Relaxed),
            sum: self.sum.load(Relaxed),
            least: match self.least.load(Relaxed) {
                u64::MAX => None,
                least => Some(least),
            },
            most: self.most.load(Relaxed),
        }
    }
}

/// A [`Summary`] at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub count: u64,
    pub sum: u64,
    least: Option<u64>,
    pub most: u64,
}

impl Totals {
    /// Returns the totals of both.
    pub fn with(self, other: Totals) -> Totals {
        Totals {
            count: self.count + other.count,
            sum: self.sum + other.sum,
            least: match (self.least, other.least) {
                (Some(one), Some(another)) => Some(one.min(another)),
                (one, another) => one.or(another),
            },
            most: self.most.max(other.most),
        }
    }

    /// Returns the minimum, or zero if there are no values.
    pub fn least(self) -> u64 {
        self.least.unwrap_or(0)
    }

    /// Returns the average, or zero if there are no values.
    pub fn average(self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum as f64 / self.count as f64 }
    }
}

/// A [`Summary`] with percentiles.
///
/// Values up to 15 are counted exactly, greater ones in eight buckets per power of two, so a
/// percentile is at most a sixteenth off. Zeros have no bucket: their number is the count minus all
/// buckets, so that the most frequent latency costs nothing more.
#[derive(Debug)]
pub struct Distribution {
    summary: Summary,
    buckets: Box<[AtomicU64]>,
}

/// Values below have a bucket each.
const EXACT: u64 = 16;
const EXACT_BITS: u32 = EXACT.ilog2();
/// The number of buckets per power of two above `EXACT`, as bits.
const STEP_BITS: u32 = 3;
/// Powers of two above `EXACT`; the last bucket contains all greater values, from about 49 days on.
const POWERS: u32 = 28;
const BUCKETS: usize = EXACT as usize + ((POWERS as usize) << STEP_BITS);

impl Default for Distribution {
    fn default() -> Distribution {
        let buckets = (0..BUCKETS).map(|_| AtomicU64::new(0)).collect();
        Distribution { summary: Summary::default(), buckets }
    }
}

impl Distribution {
    /// Adds the value zero `count` times.
    #[inline]
    pub fn add_zeros(&self, count: u64) {
        if count > 0 {
            self.summary.count.fetch_add(count, Relaxed);
            self.summary.least.store(0, Relaxed);
        }
    }

    #[inline]
    pub fn add(&self, value: u64) {
        self.summary.add(value);
        if value != 0 {
            self.buckets[bucket(value)].fetch_add(1, Relaxed);
        }
    }

    pub fn reset(&self) {
        self.summary.reset();
        self.buckets.iter().for_each(|bucket| bucket.store(0, Relaxed));
    }

    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    /// Returns the values so far.
    pub fn percentiles(&self) -> Percentiles {
        let counts = self.buckets.iter().map(|count| count.load(Relaxed)).collect();
        Percentiles { totals: self.summary.totals(), counts }
    }

    /// Returns the quantiles for the given fractions, see [`Percentiles::quantile`].
    pub fn quantiles<const N: usize>(&self, parts: [f64; N]) -> [u64; N] {
        let percentiles = self.percentiles();
        parts.map(|part| percentiles.quantile(part))
    }
}

/// A [`Distribution`] at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Percentiles {
    pub totals: Totals,
    /// The count of each bucket but the first, which is computed; empty if there are no values.
    counts: Box<[u64]>,
}

impl Percentiles {
    /// Returns the quantile for a fraction, interpolated linearly between neighbours; zero if there
    /// are no values.
    pub fn quantile(&self, part: f64) -> u64 {
        let above_zero: u64 = self.counts.iter().skip(1).sum();
        let zeros = self.totals.count.saturating_sub(above_zero);
        let count = zeros + above_zero;
        if count == 0 {
            return 0;
        }
        let place = (part * (count + 1) as f64).clamp(1.0, count as f64);
        let at = |rank| self.at_rank(rank, zeros);
        let (lower, upper) = (at(place as u64), at((place as u64 + 1).min(count)));
        let between = upper.saturating_sub(lower) as f64 * place.fract();
        lower + (between + 0.5) as u64
    }

    /// Returns the value at a rank, from 1, in ascending order.
    fn at_rank(&self, rank: u64, zeros: u64) -> u64 {
        let Totals { most, .. } = self.totals;
        let least = self.totals.least();
        let mut left = rank;
        let counts = std::iter::once(zeros).chain(self.counts.iter().skip(1).copied());
        let found = counts.enumerate().find(|(_, count)| {
            let here = left <= *count;
            left = left.saturating_sub(*count);
            here
        });
        found.map_or(most, |(bucket, _)| middle(bucket)).clamp(least, most.max(least))
    }
}

fn bucket(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let power = value.ilog2();
    let step = (value >> (power - STEP_BITS)) & ((1 << STEP_BITS) - 1);
    let above = (((power - EXACT_BITS) as usize) << STEP_BITS) + step as usize;
    (EXACT as usize + above).min(BUCKETS - 1)
}

/// Returns the value that represents a bucket.
fn middle(bucket: usize) -> u64 {
    let Some(above) = bucket.checked_sub(EXACT as usize) else {
        return bucket as u64;
    };
    let power = EXACT_BITS + (above >> STEP_BITS) as u32;
    let step = (above & ((1 << STEP_BITS) - 1)) as u64;
    let width = 1 << (power - STEP_BITS);
    (1 << power) + step * width + width / 2
}

/// Rounds a positive number to four decimals as Apache rounds averages: a half is rounded up.
pub fn four_decimals(value: f64) -> f64 {
    // The exact decimal digits decide, so the text is compared instead of computing: a double such
    // as 0.03125 is exactly between two results.
    let digits = format!("{value:.64}");
    let point = digits.len() - 64;
    let (kept, dropped) = digits.split_at(point + 4);
    let ten_thousandths = kept.replace('.', "").parse().unwrap_or(u64::MAX);
    let up = u64::from(dropped.as_bytes()[0] >= b'5');
    (ten_thousandths + up) as f64 / 10_000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTS: [f64; 4] = [0.5, 0.95, 0.99, 0.999];

    #[track_caller]
    fn check(values: &[u64], quantiles: [u64; 4]) {
        let distribution = Distribution::default();
        values.iter().for_each(|value| distribution.add(*value));
        assert_eq!(distribution.quantiles(PARTS), quantiles);
    }

    #[test]
    fn quantiles_of_few_values_are_those_apache_prints() {
        check(&[], [0; 4]);
        check(&[27], [27; 4]);
        check(&[3, 27, 64], [27, 64, 64, 64]);
        // As observed: two values in the middle give their mean, rounded up.
        check(&[3, 5, 27, 64], [16, 64, 64, 64]);
        check(&[0, 0, 0, 1], [0, 1, 1, 1]);
        check(&[0, 1], [1, 1, 1, 1]);
    }

    #[test]
    fn a_bucket_is_at_most_a_sixteenth_off() {
        for value in (0..5000).chain((13..32).map(|power| (1_u64 << power) + 12_345)) {
            let off = middle(bucket(value)).abs_diff(value);
            assert!(off * 16 <= value, "{value} is taken for {}", middle(bucket(value)));
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
        assert!((1..BUCKETS).all(|index| bucket(middle(index)) == index));
    }

    #[test]
    fn many_zeroes_cost_no_bucket_and_still_count() {
        let distribution = Distribution::default();
        (0..999).for_each(|_| distribution.add(0));
        distribution.add(7);
        assert_eq!(distribution.quantiles([0.5, 0.998, 1.0]), [0, 0, 7]);
        assert_eq!(distribution.summary().totals().average(), 0.007);
    }

    #[test]
    fn totals_of_nothing_are_zero_and_do_not_disturb_others() {
        let some = Summary::default();
        some.add(4);
        some.add(9);
        let both = Totals::default().with(some.totals());
        assert_eq!((both.count, both.sum, both.least(), both.most), (2, 13, 4, 9));
        some.reset();
        assert_eq!((some.totals().least(), some.totals().average()), (0, 0.0));
    }

    #[test]
    fn averages_have_four_decimals_and_a_half_is_rounded_up() {
        for (value, rounded) in [
            (0.0, 0.0),
            (94.0 / 3.0, 31.3333),
            (2.0 / 3.0, 0.6667),
            (1.0 / 32.0, 0.0313),
            (3.0 / 32.0, 0.0938),
            (0.000_12, 0.0001),
            (0.000_04, 0.0),
            (9_999_999.999_99, 1e7),
        ] {
            assert_eq!(four_decimals(value), rounded, "{value}");
        }
    }
}
