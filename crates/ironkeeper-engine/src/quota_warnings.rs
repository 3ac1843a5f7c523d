//! Warnings about exceeded quotas, rate-limited for each quota.
//!
//! A soft limit has no other effect, and a client that exceeds a hard limit does so repeatedly.

use std::collections::BTreeMap;

use crate::io::Warning;

/// The minimum time between two warnings about the same quota.
const PAUSE_MS: u64 = 15_000;

/// The warnings; see the module documentation.
#[derive(Debug, Default)]
pub(crate) struct QuotaWarnings {
    /// The time of the last warning for each quota. Bounded by the quotas that ever existed.
    told_ms: BTreeMap<String, i64>,
    due: Vec<Warning>,
}

impl QuotaWarnings {
    /// Adds a warning about the quota on `path`, unless there was one recently.
    pub fn note(&mut self, wall_ms: i64, path: &str, warning: impl FnOnce() -> Warning) {
        let told_ms = self.told_ms.get(path);
        // Correct even if the clock was set forward or back.
        if told_ms.is_none_or(|told_ms| told_ms.abs_diff(wall_ms) >= PAUSE_MS) {
            self.told_ms.insert(path.to_owned(), wall_ms);
            self.due.push(warning());
        }
    }

    pub fn drain(&mut self) -> impl Iterator<Item = Warning> {
        self.due.drain(..)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::QuotaResource;

    #[test]
    fn each_quota_is_warned_of_not_too_often() {
        let mut warnings = QuotaWarnings::default();
        let warning = |path: &str, used| Warning::QuotaExceeded {
            path: path.to_owned(),
            resource: QuotaResource::Nodes,
            used,
            limit: 0,
            is_hard: false,
        };
        // The last one after the clock was set back.
        for (wall_ms, path) in
            [(0, "/a"), (1, "/a"), (2, "/b"), (14_999, "/a"), (15_000, "/a"), (-500_000, "/b")]
        {
            warnings.note(wall_ms, path, || warning(path, wall_ms));
        }
        let drained: Vec<Warning> = warnings.drain().collect();
        let expected = [("/a", 0), ("/b", 2), ("/a", 15_000), ("/b", -500_000)];
        assert_eq!(drained, expected.map(|(path, wall_ms)| warning(path, wall_ms)));
    }
}
