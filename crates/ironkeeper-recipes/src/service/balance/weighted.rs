//! Rules that choose in proportion to weights.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Balance;
use super::dice::Dice;
use crate::service::instance::ServiceInstance;

/// Round robin in proportion to the [`weight`](ServiceInstance::weight), interleaved: weights 5, 1
/// and 1 give `a a b a c a a`, not five in a row.
///
/// At each choice every instance gains its weight; the instance with the largest gain is chosen,
/// and the sum of all weights is subtracted from its gain. Among as many choices as the sum of the
/// weights, each instance is chosen exactly as often as its weight.
///
/// ```
/// use std::sync::Arc;
///
/// use ironkeeper_recipes::service::ServiceInstance;
/// use ironkeeper_recipes::service::balance::{Balance, WeightedRoundRobin};
///
/// let web = |id: &str, weight: u32| {
///     Arc::new(ServiceInstance::new("web").with_id(id).with_weight(weight))
/// };
/// let rule = WeightedRoundRobin::new();
/// let among = [web("a", 5), web("b", 1), web("c", 1)];
/// let chosen: String = (0..7).map(|_| rule.choose(&among, "").unwrap().id.clone()).collect();
/// assert_eq!(chosen, "aabacaa");
/// ```
#[derive(Debug, Default)]
pub struct WeightedRoundRobin {
    /// The gains. Bounded by the instances of the last choice.
    gained: Mutex<HashMap<(String, i64), i64>>,
}

impl WeightedRoundRobin {
    /// Creates a rule whose gains are all 0.
    pub fn new() -> WeightedRoundRobin {
        WeightedRoundRobin::default()
    }
}

impl Balance for WeightedRoundRobin {
    fn choose(&self, among: &[Arc<ServiceInstance>], _: &str) -> Option<Arc<ServiceInstance>> {
        let mut gained = self.gained.lock().unwrap_or_else(PoisonError::into_inner);
        let mut present = HashMap::with_capacity(among.len());
        let mut best: Option<(i64, &Arc<ServiceInstance>)> = None;
        let mut sum = 0_i64;
        for instance in among.iter().filter(|instance| instance.weight() > 0) {
            let weight = i64::from(instance.weight());
            sum += weight;
            let gain = gained.get(&instance.key()).copied().unwrap_or(0) + weight;
            present.insert(instance.key(), gain);
            if best.is_none_or(|(most, _)| gain > most) {
                best = Some((gain, instance));
            }
        }
        if let Some((gain, instance)) = best {
            present.insert(instance.key(), gain - sum);
        }
        *gained = present;
        best.map(|(_, instance)| instance.clone())
    }
}

/// A random choice in proportion to the [`weight`](ServiceInstance::weight).
///
/// ```
/// use std::sync::Arc;
///
/// use ironkeeper_recipes::service::ServiceInstance;
/// use ironkeeper_recipes::service::balance::{Balance, WeightedRandom};
///
/// let web = |id: &str, weight: u32| {
///     Arc::new(ServiceInstance::new("web").with_id(id).with_weight(weight))
/// };
/// let rule = WeightedRandom::new();
/// let among = [web("never", 0), web("always", 1)];
/// assert_eq!(rule.choose(&among, "").unwrap().id, "always");
/// ```
#[derive(Debug, Default)]
pub struct WeightedRandom {
    dice: Dice,
}

impl WeightedRandom {
    /// Creates a rule with a seed from the operating system.
    pub fn new() -> WeightedRandom {
        WeightedRandom::default()
    }

    /// Creates a rule with this seed: the same choices each time.
    pub fn with_seed(seed: u64) -> WeightedRandom {
        WeightedRandom { dice: Dice::seeded(seed) }
    }
}

impl Balance for WeightedRandom {
    fn choose(&self, among: &[Arc<ServiceInstance>], _: &str) -> Option<Arc<ServiceInstance>> {
        let sum: u64 = among.iter().map(|instance| u64::from(instance.weight())).sum();
        if sum == 0 {
            return None;
        }
        let mut at = self.dice.below(sum);
        let is_there = |instance: &&Arc<ServiceInstance>| {
            let weight = u64::from(instance.weight());
            let is_there = at < weight;
            at = at.saturating_sub(weight);
            is_there
        };
        among.iter().find(is_there).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::super::plain::tests::{chosen, counts, instances};
    use super::*;

    #[test]
    fn turns_are_as_many_as_the_weight_and_evenly_mixed() {
        let rule = WeightedRoundRobin::new();
        let all = instances(&["a:5", "b", "c", "drained:0"]);
        assert_eq!(chosen(&rule, &all, 7).join(" "), "a a b a c a a");
        assert_eq!(chosen(&rule, &all, 7).join(" "), "a a b a c a a");
        // An instance that returns starts with a gain of 0.
        assert_eq!(chosen(&rule, &instances(&["a:5"]), 3).join(" "), "a a a");
        assert_eq!(chosen(&rule, &all, 7).join(" "), "a a b a c a a");
    }

    #[test]
    fn chance_heeds_the_weights() {
        let all = instances(&["a:6", "b:3", "drained:0", "c:1"]);
        let counts = counts(&WeightedRandom::with_seed(3), &all, 10_000);
        assert_eq!(counts.len(), 3);
        for (id, expected) in [("a", 6000), ("b", 3000), ("c", 1000)] {
            assert!(counts[id].abs_diff(expected) < 300, "{counts:?}");
        }
    }

    #[test]
    fn nothing_is_chosen_if_all_are_drained() {
        for among in [&[][..], &instances(&["a:0", "b:0"])] {
            assert!(WeightedRoundRobin::new().choose(among, "").is_none());
            assert!(WeightedRandom::new().choose(among, "").is_none());
        }
    }

    proptest::proptest! {
        #[test]
        fn among_as_many_choices_as_the_sum_each_has_its_weight(
            weights in proptest::collection::vec(0..9_usize, 1..8),
        ) {
            let texts: Vec<String> =
                weights.iter().enumerate().map(|(at, weight)| format!("{at}:{weight}")).collect();
            let all = instances(&texts.iter().map(|text| &**text).collect::<Vec<_>>());
            let sum: usize = weights.iter().sum();
            let counts = counts(&WeightedRoundRobin::new(), &all, sum);
            for (at, weight) in weights.iter().enumerate() {
                assert_eq!(counts.get(&at.to_string()).copied().unwrap_or(0), *weight);
            }
        }
    }
}
