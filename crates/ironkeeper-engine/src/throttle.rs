//! The connection throttle: the rate at which sessions may be opened and resumed.
//!
//! A token bucket. A request for a session takes tokens, time returns them, and a request that
//! finds too few is rejected immediately. A bucket alone always rejects the last requests of every
//! round; with a freeze time set, requests are also dropped at random, with a probability that
//! rises while the bucket is empty and falls while it is full (the BLUE scheme), so that all
//! clients have the same probability.
//!
//! Pure: the clock is an argument and randomness comes from a seed.

/// The settings of the throttle, in tokens, milliseconds and probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ConnectionThrottleConfig {
    /// The capacity of the bucket.
    pub tokens_max: u32,
    pub fill_time_ms: u64,
    /// Tokens that are returned in every `fill_time_ms`.
    pub fill_tokens: u32,
    pub new_session_tokens: u32,
    pub renewed_session_tokens: u32,
    /// The minimum time between two changes of the drop probability; `None`: nothing is dropped at
    /// random.
    pub freeze_time_ms: Option<u64>,
    pub drop_increase: f64,
    pub drop_decrease: f64,
    /// The probability falls while at most this fraction of the bucket is missing.
    pub decrease_ratio: f64,
}

/// The token bucket; see the module documentation.
#[derive(Debug)]
pub struct ConnectionThrottle {
    config: ConnectionThrottleConfig,
    tokens: u32,
    filled_ms: u64,
    drop_probability: f64,
    changed_ms: u64,
    random: u64,
}

impl ConnectionThrottle {
    /// Starts with a full bucket.
    pub fn new(config: ConnectionThrottleConfig, seed: u64, now_ms: u64) -> ConnectionThrottle {
        ConnectionThrottle {
            tokens: config.tokens_max,
            config,
            filled_ms: now_ms,
            drop_probability: 0.0,
            changed_ms: now_ms,
            // The generator below must not start from zero.
            random: seed | 1,
        }
    }

    /// Returns whether a client may open a session or, if `renewal`, resume one.
    pub fn admits(&mut self, now_ms: u64, renewal: bool) -> bool {
        self.fill(now_ms);
        self.adapt(now_ms);
        if self.drop_probability > 0.0 && self.chance() < self.drop_probability {
            return false;
        }
        let cost = match renewal {
            true => self.config.renewed_session_tokens,
            false => self.config.new_session_tokens,
        };
        match self.tokens.checked_sub(cost) {
            Some(left) => self.tokens = left,
            None => return false,
        }
        true
    }

    /// Returns the number of tokens missing in the bucket.
    pub fn deficit(&self) -> u32 {
        self.config.tokens_max - self.tokens
    }

    /// Returns the probability that the next request is dropped although there are tokens.
    pub fn drop_probability(&self) -> f64 {
        self.drop_probability
    }

    fn fill(&mut self, now_ms: u64) {
        let passed_ms = now_ms.saturating_sub(self.filled_ms);
        let ConnectionThrottleConfig { tokens_max, fill_time_ms, fill_tokens, .. } = self.config;
        if passed_ms > fill_time_ms {
            let more = passed_ms.saturating_mul(u64::from(fill_tokens)) / fill_time_ms.max(1);
            let tokens = u64::from(self.tokens).saturating_add(more).min(u64::from(tokens_max));
            self.tokens = tokens as u32;
            self.filled_ms = now_ms;
        }
    }

    fn adapt(&mut self, now_ms: u64) {
        let Some(freeze_time_ms) = self.config.freeze_time_ms else { return };
        if now_ms.saturating_sub(self.changed_ms) <= freeze_time_ms {
            return;
        }
        self.changed_ms = now_ms;
        let spare = (f64::from(self.config.tokens_max) * self.config.decrease_ratio).round();
        if self.tokens == 0 {
            self.drop_probability = (self.drop_probability + self.config.drop_increase).min(1.0);
        } else if f64::from(self.deficit()) <= spare {
            self.drop_probability = (self.drop_probability - self.config.drop_decrease).max(0.0);
        }
    }

    /// Returns a number from 0 up to, but not including, 1.
    fn chance(&mut self) -> f64 {
        // Xorshift: the quality of the randomness does not matter.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: ConnectionThrottleConfig = ConnectionThrottleConfig {
        tokens_max: 4,
        fill_time_ms: 10,
        fill_tokens: 1,
        new_session_tokens: 1,
        renewed_session_tokens: 1,
        freeze_time_ms: None,
        drop_increase: 0.02,
        drop_decrease: 0.002,
        decrease_ratio: 0.0,
    };

    fn admitted(throttle: &mut ConnectionThrottle, now_ms: u64, tries: usize) -> usize {
        (0..tries).filter(|_| throttle.admits(now_ms, false)).count()
    }

    #[test]
    fn a_burst_empties_the_bucket_and_time_fills_it() {
        let mut throttle = ConnectionThrottle::new(PLAIN, 7, 1000);
        assert_eq!(admitted(&mut throttle, 1000, 9), 4);
        assert_eq!(throttle.deficit(), 4);
        // Tokens are returned only after more than a whole `fill_time_ms`.
        assert_eq!(admitted(&mut throttle, 1010, 9), 0);
        assert_eq!(admitted(&mut throttle, 1029, 9), 2);
        assert_eq!(admitted(&mut throttle, 1_000_000, 9), 4, "never more than a bucket");
    }

    #[test]
    fn a_clock_that_stands_or_steps_back_brings_nothing() {
        let mut throttle = ConnectionThrottle::new(PLAIN, 7, 1000);
        assert_eq!(admitted(&mut throttle, 0, 9), 4);
        assert_eq!(admitted(&mut throttle, 1000, 9), 0);
    }

    #[test]
    fn sessions_cost_what_they_weigh() {
        let config =
            ConnectionThrottleConfig { new_session_tokens: 3, renewed_session_tokens: 2, ..PLAIN };
        let mut throttle = ConnectionThrottle::new(config, 7, 0);
        assert!(throttle.admits(0, false));
        assert!(!throttle.admits(0, true) && !throttle.admits(0, false), "one token is left");
        let mut throttle = ConnectionThrottle::new(config, 7, 0);
        assert!(throttle.admits(0, true) && throttle.admits(0, true) && !throttle.admits(0, true));
    }

    #[test]
    fn the_drop_probability_rises_while_the_bucket_is_empty_and_falls_while_it_is_full() {
        let config = ConnectionThrottleConfig {
            freeze_time_ms: Some(100),
            drop_increase: 0.4,
            drop_decrease: 0.3,
            fill_time_ms: 1_000_000,
            ..PLAIN
        };
        let mut throttle = ConnectionThrottle::new(config, 7, 0);
        let mut seen = Vec::new();
        admitted(&mut throttle, 0, 4);
        for now_ms in [100, 101, 102, 202, 303, 404] {
            throttle.admits(now_ms, false);
            seen.push((now_ms, (throttle.drop_probability() * 10.0).round()));
        }
        assert_eq!(
            seen,
            [(100, 0.0), (101, 4.0), (102, 4.0), (202, 8.0), (303, 10.0), (404, 10.0)]
        );
        assert_eq!(admitted(&mut throttle, 404, 100), 0, "certainty");
        // The bucket is full again, and stays full as long as all requests are dropped.
        let full_ms = 4_000_000;
        throttle.admits(full_ms, false);
        assert_eq!((throttle.drop_probability() * 10.0).round(), 7.0);
    }

    #[test]
    fn with_a_ratio_the_probability_falls_before_the_bucket_is_full() {
        let config = ConnectionThrottleConfig {
            freeze_time_ms: Some(0),
            drop_increase: 1.0,
            drop_decrease: 1.0,
            decrease_ratio: 0.5,
            ..PLAIN
        };
        let mut throttle = ConnectionThrottle::new(config, 7, 0);
        assert_eq!(admitted(&mut throttle, 0, 4), 4);
        assert!(!throttle.admits(1, false) && throttle.drop_probability() == 1.0);
        // One of four tokens is there: too few. Two are half of the bucket.
        assert!(!throttle.admits(12, false) && throttle.drop_probability() == 1.0);
        assert!(throttle.admits(23, false) && throttle.drop_probability() == 0.0);
    }

    #[test]
    fn about_the_probable_part_is_dropped() {
        let config = ConnectionThrottleConfig {
            tokens_max: 1_000_000,
            freeze_time_ms: Some(u64::MAX),
            ..PLAIN
        };
        let mut throttle = ConnectionThrottle::new(config, 7, 0);
        throttle.drop_probability = 0.25;
        let admitted = admitted(&mut throttle, 0, 10_000);
        assert!((7300..7700).contains(&admitted), "{admitted} of 10000");
    }
}
