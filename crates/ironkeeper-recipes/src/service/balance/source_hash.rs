//! A rule that chooses the same instance for the same source.

use std::sync::Arc;

use super::Balance;
use super::dice::mix;
use crate::fnv::fnv;
use crate::service::instance::ServiceInstance;

/// A rule that chooses the same instance for the same source, in every process and after every
/// restart. When an instance is removed, only its own sources move; an instance that is added takes
/// an equal share from all others.
///
/// Each pair of source and instance has a hash, and the instance with the largest one is chosen
/// (rendezvous hashing), so that the rule needs no state and no agreement between processes.
///
/// ```
/// use std::sync::Arc;
///
/// use ironkeeper_recipes::service::ServiceInstance;
/// use ironkeeper_recipes::service::balance::{Balance, SourceHash};
///
/// let web = |id: &str| Arc::new(ServiceInstance::new("web").with_id(id));
/// let among = [web("a"), web("b"), web("c")];
/// let first = SourceHash.choose(&among, "user 7").unwrap();
/// assert_eq!(SourceHash.choose(&among, "user 7").unwrap().id, first.id);
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct SourceHash;

impl Balance for SourceHash {
    fn choose(&self, among: &[Arc<ServiceInstance>], source: &str) -> Option<Arc<ServiceInstance>> {
        let rank = |instance: &&Arc<ServiceInstance>| (rank(source, &instance.id), instance.key());
        among.iter().max_by_key(rank).cloned()
    }
}

/// Returns the hash of a pair. It must never change: processes of different builds have to choose
/// alike.
fn rank(source: &str, id: &str) -> u64 {
    // The upper bits of an FNV hash are weak; `mix` spreads the others over them.
    mix(fnv(source.as_bytes()) ^ mix(fnv(id.as_bytes())))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::plain::tests::instances;
    use super::*;

    fn places(ids: &[&str]) -> Vec<String> {
        let all = instances(ids);
        let one = |source: usize| SourceHash.choose(&all, &format!("user {source}")).unwrap();
        (0..4000).map(|source| one(source).id.clone()).collect()
    }

    #[test]
    fn only_the_sources_of_an_instance_that_goes_move() {
        let (before, after) = (places(&["a", "b", "c", "d"]), places(&["d", "b", "a"]));
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (before, after) in before.iter().zip(&after) {
            *counts.entry(before).or_default() += 1;
            assert!(before == after || before == "c", "{before} {after}");
        }
        assert!(counts.values().all(|count| (900..1100).contains(count)), "{counts:?}");
    }

    #[test]
    fn the_choice_is_the_same_in_every_build() {
        assert_eq!(rank("user 7", "web-1"), 0x0643_1536_c5cc_9d14);
        assert_eq!(places(&["a", "b", "c"])[..6].join(" "), "b a a b c b");
    }
}
