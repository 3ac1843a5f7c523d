//! A rule that keeps its choice as long as possible. Curator's `StickyStrategy`.

use std::sync::{Arc, Mutex, PoisonError};

use super::Balance;
use crate::service::instance::ServiceInstance;

/// A rule that keeps the instance that another rule has chosen, until the instance is removed, down
/// or filtered out; then the other rule chooses again. For a choice per user see
/// [`SourceHash`](super::SourceHash).
///
/// ```
/// use std::sync::Arc;
///
/// use ironkeeper_recipes::service::ServiceInstance;
/// use ironkeeper_recipes::service::balance::{Balance, Random, Sticky};
///
/// let web = |id: &str| Arc::new(ServiceInstance::new("web").with_id(id));
/// let among = [web("a"), web("b"), web("c")];
/// let rule = Sticky::new(Random::new());
/// let first = rule.choose(&among, "").unwrap();
/// assert_eq!(rule.choose(&among, "").unwrap().id, first.id);
/// assert_eq!(rule.number(), 1);
/// ```
#[derive(Debug)]
#[doc(alias = "StickyStrategy")]
pub struct Sticky<R> {
    rule: R,
    ours: Mutex<Ours>,
}

#[derive(Debug, Default)]
struct Ours {
    key: Option<(String, i64)>,
    number: u64,
}

impl<R: Balance> Sticky<R> {
    /// Creates a rule that calls `rule` when it has no instance to keep.
    pub fn new(rule: R) -> Sticky<R> {
        Sticky { rule, ours: Mutex::default() }
    }

    /// Returns the number of choices of the other rule: 1 after the first. A caller that keeps
    /// state for the instance resets it when this number changes.
    pub fn number(&self) -> u64 {
        self.ours.lock().unwrap_or_else(PoisonError::into_inner).number
    }
}

impl<R: Balance> Balance for Sticky<R> {
    fn choose(&self, among: &[Arc<ServiceInstance>], source: &str) -> Option<Arc<ServiceInstance>> {
        let mut ours = self.ours.lock().unwrap_or_else(PoisonError::into_inner);
        let is_ours = |instance: &&Arc<ServiceInstance>| ours.key == Some(instance.key());
        if let Some(instance) = among.iter().find(is_ours) {
            return Some(instance.clone());
        }
        let chosen = self.rule.choose(among, source)?;
        *ours = Ours { key: Some(chosen.key()), number: ours.number + 1 };
        Some(chosen)
    }
}

#[cfg(test)]
mod tests {
    use super::super::RoundRobin;
    use super::super::plain::tests::{chosen, instances};
    use super::*;

    #[test]
    fn another_one_is_chosen_only_when_the_first_is_gone() {
        let rule = Sticky::new(RoundRobin::new());
        assert_eq!(chosen(&rule, &instances(&["a", "b"]), 3), ["a", "a", "a"]);
        assert_eq!(rule.number(), 1);
        assert_eq!(chosen(&rule, &instances(&["b", "c"]), 2), ["b", "b"]);
        assert_eq!(chosen(&rule, &instances(&["a", "b"]), 2), ["b", "b"]);
        assert_eq!(rule.number(), 2);
        assert!(rule.choose(&[], "").is_none());
    }
}
