//! Quorums: by majority, or by weight in groups.
//!
//! While a reconfig is in progress, a set of servers must contain a quorum of the old and one of
//! the new membership: [`Joint`].

use std::collections::BTreeMap;

use ironkeeper_proto::{Membership, ServerId};

/// Cannot overflow: weights are at most 2^32 and there are far fewer than 2^30 members.
type Weight = i64;

/// The quorums of one membership.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Quorum {
    Majority {
        voters: Vec<ServerId>,
    },
    /// The voters of each group with their weights; groups of weight zero are left out.
    Hierarchical {
        groups: BTreeMap<i64, Vec<(ServerId, Weight)>>,
    },
}

impl Quorum {
    pub fn of(membership: &Membership) -> Quorum {
        if membership.groups.is_empty() {
            return Quorum::Majority { voters: membership.voters().collect() };
        }
        let mut groups: BTreeMap<i64, Vec<(ServerId, Weight)>> = BTreeMap::new();
        for id in membership.voters() {
            if let Some(group) = membership.groups.get(&id) {
                groups.entry(*group).or_default().push((id, membership.weight(id)));
            }
        }
        groups.retain(|_, members| members.iter().any(|(_, weight)| *weight > 0));
        Quorum::Hierarchical { groups }
    }

    /// Returns whether the servers for which `has` is true form a quorum.
    pub fn holds(&self, has: impl Fn(ServerId) -> bool) -> bool {
        match self {
            Quorum::Majority { voters } => {
                voters.iter().filter(|id| has(**id)).count() > voters.len() / 2
            }
            Quorum::Hierarchical { groups } => {
                let won = groups.values().filter(|members| {
                    let total: Weight = members.iter().map(|(_, weight)| weight).sum();
                    let has: Weight =
                        members.iter().filter(|(id, _)| has(*id)).map(|(_, weight)| weight).sum();
                    has > total / 2
                });
                won.count() > groups.len() / 2
            }
        }
    }

    /// Returns the largest value that a quorum has reached. `None` if `values` contains no quorum.
    pub fn reached<T: Copy + Ord>(&self, values: &[(ServerId, T)]) -> Option<T> {
        // A standalone server, with each flush.
        if let [(only, value)] = values {
            return self.holds(|id| id == *only).then_some(*value);
        }
        let value = |id| values.iter().find(|(of, _)| *of == id).map(|(_, value)| *value);
        values
            .iter()
            .map(|(_, candidate)| *candidate)
            .filter(|candidate| self.holds(|id| value(id).is_some_and(|value| value >= *candidate)))
            .max()
    }
}

/// The quorum of the committed membership and, during a reconfig, of the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joint {
    pub committed: Quorum,
    pub next: Option<Quorum>,
}

impl Joint {
    pub fn holds(&self, has: impl Fn(ServerId) -> bool) -> bool {
        self.committed.holds(&has) && self.next.as_ref().is_none_or(|next| next.holds(&has))
    }

    pub fn reached<T: Copy + Ord>(&self, values: &[(ServerId, T)]) -> Option<T> {
        let committed = self.committed.reached(values)?;
        match &self.next {
            None => Some(committed),
            Some(next) => Some(committed.min(next.reached(values)?)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn membership(text: &str) -> Membership {
        Membership::parse(text).unwrap()
    }

    #[track_caller]
    fn check(quorum: &Quorum, has: &[i64], expected: bool) {
        assert_eq!(quorum.holds(|id| has.contains(&id.0)), expected, "{has:?}");
    }

    #[test]
    fn a_majority_is_more_than_half_and_observers_do_not_count() {
        let four = Quorum::of(&membership(
            "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2\nserver.5=e:1:2:observer",
        ));
        check(&four, &[1, 2], false);
        check(&four, &[1, 2, 3], true);
        check(&four, &[1, 2, 5], false);
        check(&four, &[1, 2, 9], false);
    }

    #[test]
    fn groups_need_a_majority_of_groups_with_a_majority_of_weight_each() {
        let nine = Quorum::of(&membership(
            "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2\nserver.4=d:1:2\nserver.5=e:1:2\n\
             server.6=f:1:2\nserver.7=g:1:2\ngroup.1=1:2:3\ngroup.2=4:5:6\ngroup.3=7\n\
             weight.7=0\nweight.4=3",
        ));
        // The third group has weight zero, so both others are needed.
        check(&nine, &[1, 2], false);
        check(&nine, &[1, 2, 4], true);
        check(&nine, &[1, 2, 5, 6], false);
        check(&nine, &[1, 4, 5, 6, 7], false);
    }

    #[test]
    fn what_enough_servers_have_reached() {
        let three = Quorum::Majority { voters: [1, 2, 3].map(ServerId).to_vec() };
        let id = ServerId;
        assert_eq!(three.reached(&[(id(1), 7), (id(2), 5), (id(3), 1)]), Some(5));
        assert_eq!(three.reached(&[(id(1), 7), (id(9), 9)]), None);
        assert_eq!(three.reached(&[(id(1), 7)]), None);
        let one = Quorum::Majority { voters: vec![id(1)] };
        assert_eq!(one.reached(&[(id(1), 7)]), Some(7));
        assert_eq!(one.reached(&[(id(2), 7)]), None);
        let joint = Joint {
            committed: three,
            next: Some(Quorum::Majority { voters: [3, 4, 5].map(ServerId).to_vec() }),
        };
        let values = [(id(1), 7), (id(2), 7), (id(3), 1), (id(4), 3), (id(5), 2)];
        assert_eq!(joint.reached(&values), Some(2));
        assert!(!joint.holds(|id| id.0 < 4));
    }
}
