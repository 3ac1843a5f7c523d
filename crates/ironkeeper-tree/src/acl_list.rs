//! One access control list, and the permissions that it grants to a set of ids.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use foldhash::quality::FixedState;
use hashbrown::HashTable;
use ironkeeper_proto::IpRange;
use ironkeeper_proto::acl::{self, Acl, AclVec, Perms};
use ironkeeper_proto::jute::Reader;

/// The scheme whose ids are ranges of addresses.
const IP: &str = "ip";
/// Up to this many pairs of entry and id are compared one by one; above it the list is indexed.
const PAIRS_MAX: usize = 64;

/// An access control list, decoded and encoded.
#[derive(Debug)]
pub struct AclList {
    entries: Vec<Acl>,
    /// The encoded list, including its count, as it was received.
    encoded: Box<[u8]>,
    /// The permissions of `world:anyone`; all permissions if the list is empty.
    anyone: Perms,
    /// Built on first use.
    index: OnceLock<Box<AclIndex>>,
}

impl AclList {
    /// Decodes a list and keeps its encoding.
    pub fn new(list: AclVec<'_>) -> AclList {
        let mut encoded = Vec::with_capacity(4 + list.raw().len());
        list.encode(&mut encoded);
        AclList::with_encoded(list.to_vec(), encoded)
    }

    /// Encodes entries.
    pub fn of_entries(entries: Vec<Acl>) -> AclList {
        let mut encoded = Vec::new();
        acl::encode_list(&entries, &mut encoded);
        AclList::with_encoded(entries, encoded)
    }

    fn with_encoded(entries: Vec<Acl>, encoded: Vec<u8>) -> AclList {
        let anyone = if entries.is_empty() {
            Perms(-1)
        } else {
            entries
                .iter()
                .filter(|entry| entry.scheme == "world" && entry.id == "anyone")
                .fold(Perms(0), |perms, entry| perms.or(entry.perms))
        };
        let encoded = encoded.into_boxed_slice();
        AclList { entries, encoded, anyone, index: OnceLock::new() }
    }

    /// Returns the entries.
    pub fn entries(&self) -> &[Acl] {
        &self.entries
    }

    /// Returns the encoded list.
    pub fn as_vec(&self) -> AclVec<'_> {
        AclVec::decode(&mut Reader::new(&self.encoded))
            .ok()
            .flatten()
            .expect("encoded from a list that had been decoded")
    }

    /// Returns whether every client, authenticated or not, has one of the wanted permissions. An
    /// empty list allows everything.
    #[inline]
    pub fn allows_anyone(&self, wanted: Perms) -> bool {
        self.anyone.allows(wanted)
    }

    /// Returns the permissions of a client with these pairs of scheme and id. The cost depends on
    /// the number of ids, not on the length of the list. `seed` keeps clients from choosing ids
    /// that collide.
    pub fn granted<'i>(
        &self,
        ids: impl ExactSizeIterator<Item = (&'i str, &'i str)> + Clone,
        seed: u64,
    ) -> Perms {
        let mut granted = Perms(0);
        if self.entries.len() * ids.len() <= PAIRS_MAX {
            for entry in &self.entries {
                if ids.clone().any(|(scheme, id)| names(entry, scheme, id)) {
                    granted = granted.or(entry.perms);
                }
            }
            return granted;
        }
        let index = self.index.get_or_init(|| Box::new(AclIndex::new(&self.entries, seed)));
        for (scheme, id) in ids {
            granted = granted.or(index.find(&self.entries, scheme, id));
        }
        granted
    }

    /// Returns the encoded elements without the count; two lists are equal if these bytes are.
    pub(crate) fn raw(&self) -> &[u8] {
        &self.encoded[4..]
    }
}

fn names(entry: &Acl, scheme: &str, id: &str) -> bool {
    entry.scheme == scheme
        && match scheme {
            IP => match (IpRange::parse(&entry.id), IpRange::parse(id)) {
                (Some(range), Some(address)) => range.contains(&address),
                _ => false,
            },
            _ => entry.id == id,
        }
}

/// The entries of a list, indexed by id.
#[derive(Debug)]
struct AclIndex {
    hasher: FixedState,
    /// The first entry of each id, with the permissions of all entries of that id.
    by_id: HashTable<(u32, Perms)>,
    /// Permissions by the shape and the prefix of an address range. A `BTreeMap`, because a client
    /// can choose numbers whose hashes collide for every seed.
    by_range: BTreeMap<(u8, u128), Perms>,
    /// The shapes that occur: at most one for each prefix length.
    shapes: Vec<u8>,
}

impl AclIndex {
    fn new(entries: &[Acl], seed: u64) -> AclIndex {
        let hasher = FixedState::with_seed(seed);
        let mut by_id: HashTable<(u32, Perms)> = HashTable::new();
        let mut by_range: BTreeMap<(u8, u128), Perms> = BTreeMap::new();
        let mut has_shape = [false; 33 + 129];
        for (at, entry) in (0u32..).zip(entries) {
            if entry.scheme == IP {
                if let Some(range) = IpRange::parse(&entry.id)
                    && let Some(prefix) = range.prefix_for(range.shape())
                {
                    has_shape[usize::from(range.shape())] = true;
                    let perms = by_range.entry((range.shape(), prefix)).or_default();
                    *perms = perms.or(entry.perms);
                }
                continue;
            }
            let hash = hash(&hasher, &entry.scheme, &entry.id);
            let of = |at: u32| &entries[at as usize];
            let same = |&(other, _): &(u32, Perms)| {
                of(other).scheme == entry.scheme && of(other).id == entry.id
            };
            match by_id.find_mut(hash, same) {
                Some((_, perms)) => *perms = perms.or(entry.perms),
                None => {
                    by_id.insert_unique(hash, (at, entry.perms), |&(other, _)| {
                        self::hash(&hasher, &of(other).scheme, &of(other).id)
                    });
                }
            }
        }
        let shapes = (0u8..).zip(has_shape).filter(|(_, has)| *has).map(|(shape, _)| shape);
        AclIndex { hasher, by_id, by_range, shapes: shapes.collect() }
    }

    fn find(&self, entries: &[Acl], scheme: &str, id: &str) -> Perms {
        if scheme == IP {
            let Some(address) = IpRange::parse(id) else { return Perms(0) };
            let ranges = self.shapes.iter().filter_map(|shape| {
                self.by_range.get(&(*shape, address.prefix_for(*shape)?)).copied()
            });
            return ranges.fold(Perms(0), Perms::or);
        }
        let found = self.by_id.find(hash(&self.hasher, scheme, id), |&(at, _)| {
            let entry = &entries[at as usize];
            entry.scheme == scheme && entry.id == id
        });
        found.map_or(Perms(0), |(_, perms)| *perms)
    }
}

fn hash(hasher: &FixedState, scheme: &str, id: &str) -> u64 {
    hasher.hash_one((scheme, id))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEED: u64 = 7;

    #[test]
    fn what_anyone_may_do_is_known_without_a_walk() {
        let list = AclList::of_entries(vec![
            Acl::new(Perms::ALL, "digest", "u:h"),
            Acl::new(Perms::READ, "world", "anyone"),
        ]);
        assert!(list.allows_anyone(Perms::READ));
        assert!(list.allows_anyone(Perms::READ.or(Perms::WRITE)), "any wanted bit is enough");
        assert!(!list.allows_anyone(Perms::WRITE));
        assert!(AclList::new(AclVec::EMPTY).allows_anyone(Perms::ADMIN));
        assert!(AclList::new(AclVec::OPEN).allows_anyone(Perms::ADMIN));
        assert_eq!(list.as_vec().to_vec(), list.entries());
    }

    /// Compares a list that is long enough to be indexed with single-entry lists, which are not.
    #[track_caller]
    fn check_granted(entries: &[Acl], ids: &[(&str, &str)]) {
        let mut long = entries.to_vec();
        long.extend((0..1000).map(|n| Acl::new(Perms::ALL, "digest", &format!("other{n}:h"))));
        let long = AclList::of_entries(long).granted(ids.iter().copied(), SEED);
        let short = entries.iter().fold(Perms(0), |perms, entry| {
            let one = AclList::of_entries(vec![entry.clone()]);
            let granted = ids.iter().map(|id| one.granted([*id].into_iter(), SEED));
            granted.fold(perms, Perms::or)
        });
        assert_eq!(long, short, "{entries:?} to {ids:?}");
    }

    #[test]
    fn a_long_list_grants_what_its_entries_grant() {
        let entries = [
            Acl::new(Perms::READ, "digest", "u:h"),
            Acl::new(Perms::WRITE, "digest", "u:h"),
            Acl::new(Perms::CREATE, "ip", "10.0.0.0/8"),
            Acl::new(Perms::DELETE, "ip", "10.1.0.0/16"),
            Acl::new(Perms::ADMIN, "ip", "fe80::/10"),
            Acl::new(Perms::ADMIN, "ip", "no address"),
            Acl::new(Perms(64), "digest", "10.1.2.3"),
        ];
        for ids in [
            &[("digest", "u:h")][..],
            &[("ip", "10.1.2.3")],
            &[("ip", "10.2.2.3"), ("digest", "u:h")],
            &[("ip", "fe80:0:0:0:0:0:0:1")],
            &[("sasl", "u:h"), ("ip", "text")],
            &[],
        ] {
            check_granted(&entries, ids);
        }
        let all = AclList::of_entries(entries.iter().cycle().take(350).cloned().collect());
        let granted = all.granted([("digest", "u:h"), ("ip", "10.1.2.3")].into_iter(), SEED);
        assert_eq!(granted, Perms(1 | 2 | 4 | 8));
    }

    #[test]
    fn addresses_whose_hashes_would_collide_cost_no_more_than_others() {
        // The high half is a public constant of the hash function: with a hash table these
        // addresses took one comparison for each pair.
        let entries = (0..100_000).map(|n: u32| {
            let (high, low) = (n >> 16, n & 0xffff);
            Acl::new(Perms::READ, "ip", &format!("c0ac:29b7:c97c:50dd::{high:x}:{low:x}"))
        });
        let list = AclList::of_entries(entries.collect());
        let granted = list.granted([("ip", "c0ac:29b7:c97c:50dd:0:0:1:1")].into_iter(), SEED);
        assert_eq!(granted, Perms::READ);
    }

    #[test]
    fn long_lists_and_many_ids_are_not_compared_in_pairs() {
        let entries = |scheme: &str, id: &dyn Fn(u32) -> String| -> Vec<Acl> {
            (0..40_000).map(|n| Acl::new(Perms::READ, scheme, &id(n))).collect()
        };
        let mut list = entries("digest", &|n| format!("u{n}:h"));
        list.extend(entries("ip", &|n| format!("10.{}.{}.0/24", n >> 8, n & 255)));
        let list = AclList::of_entries(list);
        let ids: Vec<String> = (0..1000).map(|n| format!("stranger{n}:h")).collect();
        let ids = ids.iter().map(|id| ("digest", id.as_str()));
        let ids: Vec<(&str, &str)> = ids.chain([("ip", "11.0.0.1")]).collect();
        // Compared in pairs, this would take 16 thousand million comparisons.
        for _ in 0..200 {
            assert_eq!(list.granted(ids.iter().copied(), SEED), Perms(0));
        }
    }
}
