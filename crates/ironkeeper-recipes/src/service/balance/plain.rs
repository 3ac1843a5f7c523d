//! Round robin and random choice.

use std::sync::{Arc, Mutex, PoisonError};

use super::Balance;
use super::dice::Dice;
use crate::service::instance::ServiceInstance;

/// Round robin in the order of the ids. The rule stores the id of the last instance and not an
/// index, so that added and removed instances do not change the order of the others.
///
/// ```
/// use std::sync::Arc;
///
/// use ironkeeper_recipes::service::ServiceInstance;
/// use ironkeeper_recipes::service::balance::{Balance, RoundRobin};
///
/// let web = |id: &str| Arc::new(ServiceInstance::new("web").with_id(id));
/// let among = [web("a"), web("b"), web("c")];
/// let rule = RoundRobin::new();
/// let chosen: Vec<String> =
///     (0..4).map(|_| rule.choose(&among, "").unwrap().id.clone()).collect();
/// assert_eq!(chosen, ["a", "b", "c", "a"]);
/// ```
#[derive(Debug, Default)]
#[doc(alias = "RoundRobinStrategy")]
pub struct RoundRobin {
    last: Mutex<Option<(String, i64)>>,
}

impl RoundRobin {
    /// Creates a rule that begins with the first instance.
    pub fn new() -> RoundRobin {
        RoundRobin::default()
    }
}

impl Balance for RoundRobin {
    fn choose(&self, among: &[Arc<ServiceInstance>], _: &str) -> Option<Arc<ServiceInstance>> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let first = || among.iter().min_by_key(|instance| instance.key());
        let next = match &*last {
            Some(last) => among
                .iter()
                .filter(|instance| instance.key() > *last)
                .min_by_key(|instance| instance.key())
                .or_else(first),
            None => first(),
        };
        *last = next.map(|instance| instance.key());
        next.cloned()
    }
}

/// A random choice; in the long run all instances are chosen equally often.
///
/// ```
/// use std::sync::Arc;
///
/// use ironkeeper_recipes::service::ServiceInstance;
/// use ironkeeper_recipes::service::balance::{Balance, Random};
///
/// let web = |id: &str| Arc::new(ServiceInstance::new("web").with_id(id));
/// let among = [web("a"), web("b"), web("c")];
/// let rule = Random::new();
/// assert!(among.contains(&rule.choose(&among, "").unwrap()));
/// assert!(rule.choose(&[], "").is_none());
/// ```
#[derive(Debug, Default)]
#[doc(alias = "RandomStrategy")]
pub struct Random {
    dice: Dice,
}

impl Random {
    /// Creates a rule with a seed from the operating system.
    pub fn new() -> Random {
        Random::default()
    }

    /// Creates a rule with this seed: the same choices each time.
    pub fn with_seed(seed: u64) -> Random {
        Random { dice: Dice::seeded(seed) }
    }
}

impl Balance for Random {
    fn choose(&self, among: &[Arc<ServiceInstance>], _: &str) -> Option<Arc<ServiceInstance>> {
        if among.is_empty() {
            return None;
        }
        let at = self.dice.below(among.len() as u64);
        among.get(usize::try_from(at).ok()?).cloned()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    /// Creates instances from "id" or "id:weight".
    pub(in super::super) fn instances(texts: &[&str]) -> Vec<Arc<ServiceInstance>> {
        let one = |text: &&str| {
            let (id, weight) = text.split_once(':').unwrap_or((text, "1"));
            let weight: u32 = weight.parse().unwrap();
            let instance = ServiceInstance::new("web").with_id(id).registered_at(1);
            Arc::new(instance.with_payload(json!({ "weight": weight })))
        };
        texts.iter().map(one).collect()
    }

    /// Returns the ids of successive choices.
    pub(in super::super) fn chosen(
        rule: &dyn Balance,
        among: &[Arc<ServiceInstance>],
        count: usize,
    ) -> Vec<String> {
        (0..count).map(|_| rule.choose(among, "").unwrap().id.clone()).collect()
    }

    /// Returns how often each id is chosen.
    pub(in super::super) fn counts(
        rule: &dyn Balance,
        among: &[Arc<ServiceInstance>],
        count: usize,
    ) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for id in chosen(rule, among, count) {
            *counts.entry(id).or_default() += 1;
        }
        counts
    }

    #[test]
    fn turns_go_round_and_go_on_when_somebody_leaves() {
        let rule = RoundRobin::new();
        let all = instances(&["a", "b", "c"]);
        assert_eq!(chosen(&rule, &all, 4), ["a", "b", "c", "a"]);
        assert_eq!(chosen(&rule, &instances(&["a", "c", "d"]), 3), ["c", "d", "a"]);
        assert_eq!(chosen(&rule, &instances(&["b"]), 2), ["b", "b"]);
        assert!(rule.choose(&[], "").is_none());
        assert_eq!(chosen(&rule, &all, 1), ["a"]);
    }

    #[test]
    fn chance_is_fair() {
        let all = instances(&["a", "b", "c", "d"]);
        let counts = counts(&Random::with_seed(7), &all, 4000);
        assert!(
            counts.len() == 4 && counts.values().all(|count| (900..1100).contains(count)),
            "{counts:?}"
        );
        assert!(Random::new().choose(&[], "").is_none());
    }
}
