//! The rate at which a leader begins a new epoch for a voter whose acceptedEpoch is larger.
//!
//! Such a voter can follow only in a still larger epoch, so its leader begins one. The
//! acceptedEpoch is the voter's own claim, and a non-member can send one too. So the time between
//! two renewals has a lower bound, which doubles with each of them.

/// The maximum number of times that the bound doubles.
const DOUBLINGS_MAX: u32 = 4;

#[derive(Debug, Default)]
pub(crate) struct Renewals {
    last_ms: Option<u64>,
    doublings: u32,
}

impl Renewals {
    /// Returns whether a renewal is allowed now; `pause_ms` is the time between the first two.
    pub(crate) fn is_due(&self, now_ms: u64, pause_ms: u64) -> bool {
        self.last_ms.is_none_or(|last_ms| {
            now_ms.saturating_sub(last_ms) >= pause_ms.saturating_mul(1 << self.doublings)
        })
    }

    pub(crate) fn note(&mut self, now_ms: u64, pause_ms: u64) {
        if let Some(last_ms) = self.last_ms {
            let long_ms = pause_ms.saturating_mul(2 << DOUBLINGS_MAX);
            let is_recent = now_ms.saturating_sub(last_ms) < long_ms;
            self.doublings = if is_recent { DOUBLINGS_MAX.min(self.doublings + 1) } else { 0 };
        }
        self.last_ms = Some(now_ms);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pause_doubles_up_to_a_bound_and_is_short_again_after_a_long_one() {
        let mut renewals = Renewals::default();
        let (mut now_ms, mut pauses) = (7, Vec::new());
        for _ in 0..7 {
            let began_ms = now_ms;
            while !renewals.is_due(now_ms, 10) {
                now_ms += 10;
            }
            renewals.note(now_ms, 10);
            pauses.push(now_ms - began_ms);
        }
        assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 160]);
        now_ms += 320;
        renewals.note(now_ms, 10);
        assert!(!renewals.is_due(now_ms + 9, 10));
        assert!(renewals.is_due(now_ms + 10, 10));
    }
}
