//! Instances with recent errors are not chosen. Curator's `DownInstancePolicy`.

use std::collections::HashMap;
use std::time::Duration;

use tokio::time::Instant;

/// The condition under which an instance is down: after `errors` errors within `window`, until
/// `window` has passed since the first of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DownInstancePolicy {
    /// How long errors count, starting with the first one.
    pub window: Duration,
    /// The number of errors after which an instance is down. With 0, no instance is ever down.
    pub errors: u32,
}

impl Default for DownInstancePolicy {
    /// Returns Curator's policy: two errors within 30 seconds.
    fn default() -> DownInstancePolicy {
        DownInstancePolicy { window: Duration::from_secs(30), errors: 2 }
    }
}

impl DownInstancePolicy {
    /// Creates a policy: an instance is down after `errors` errors within `window`.
    pub fn new(errors: u32, window: Duration) -> DownInstancePolicy {
        DownInstancePolicy { window, errors }
    }
}

/// The errors of each registration. Bounded by the instances with errors within the window.
#[derive(Debug)]
pub(super) struct DownInstances {
    policy: DownInstancePolicy,
    noted: HashMap<Registered, Errors>,
}

/// The id of an instance and the time of its registration: the errors of an earlier registration do
/// not count.
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
        // The next error starts a new window.
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
