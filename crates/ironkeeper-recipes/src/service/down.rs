//! Instances that answer with errors are left alone for a while. Curator's `DownInstancePolicy`.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// When an instance counts as down: after so many errors within a time, until that time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DownInstancePolicy {
    /// How long errors count, from the first one on.
    pub window: Duration,
    /// How many errors make an instance down. 0 is as good as never.
    pub errors: u32,
}

impl Default for DownInstancePolicy {
    /// Two errors within 30 seconds, as Curator's.
    fn default() -> DownInstancePolicy {
        DownInstancePolicy { window: Duration::from_secs(30), errors: 2 }
    }
}

impl DownInstancePolicy {
    /// So many errors within a time.
    pub fn new(errors: u32, window: Duration) -> DownInstancePolicy {
        DownInstancePolicy { window, errors }
    }
}

/// The errors noted of each registration. Bounded by the instances that had errors within the window.
#[derive(Debug)]
pub(super) struct DownInstances {
    policy: DownInstancePolicy,
    noted: HashMap<Registered, Errors>,
}

/// Which instance, and which of its registrations: one that comes back begins anew.
type Registered = (String, i64);

#[derive(Debug)]
struct Errors {
    first: Instant,
    count: u32,
}

impl DownInstances {
    pub(super) fn new(policy: DownInstancePolicy) -> DownInstances {
        DownInstances { policy, noted: HashMap::new() }
    }

    pub(super) fn note(&mut self, now: Instant, instance: Registered) {
        let window = self.policy.window;
        self.noted.retain(|_, errors| now.duration_since(errors.first) < window);
        let errors = self.noted.entry(instance).or_insert(Errors { first: now, count: 0 });
        errors.count = errors.count.saturating_add(1);
    }

    pub(super) fn is_down(&self, now: Instant, instance: &Registered) -> bool {
        self.policy.errors > 0
            && self.noted.get(instance).is_some_and(|errors| {
                errors.count >= self.policy.errors
                    && now.duration_since(errors.first) < self.policy.window
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_is_down_after_enough_errors_and_up_again_after_the_window() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (one, again) = (("one".to_owned(), 1), ("one".to_owned(), 2));
        let mut down = DownInstances::new(DownInstancePolicy::default());
        down.note(at(0), one.clone());
        assert!(!down.is_down(at(0), &one));
        down.note(at(29), one.clone());
        assert!(down.is_down(at(29), &one));
        assert!(!down.is_down(at(29), &again), "another registration has errors of its own");
        assert!(!down.is_down(at(30), &one));
        // The window begins anew with the next error.
        down.note(at(31), one.clone());
        assert!(!down.is_down(at(31), &one));
        assert_eq!(down.noted.len(), 1);
    }

    #[test]
    fn without_a_number_nothing_is_ever_down() {
        let now = Instant::now();
        let mut down = DownInstances::new(DownInstancePolicy::new(0, Duration::from_secs(1)));
        down.note(now, ("one".to_owned(), 1));
        assert!(!down.is_down(now, &("one".to_owned(), 1)));
    }
}
