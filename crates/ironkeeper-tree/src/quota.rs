//! Quotas: limits that clients set on subtrees, and the usage that is compared with them.
//!
//! A quota on `/a` is a pair of ordinary nodes:
//!
//! ```text
//! /zookeeper/quota/a/zookeeper_limits    count=100,bytes=-1=;byteHardLimit=-1;countHardLimit=200
//! /zookeeper/quota/a/zookeeper_stats     count=7,bytes=450
//! ```
//! Creating the limits node registers the quota, deleting it ends the quota. Creating the
//! statistics node counts the subtree; from then on every create, delete and setData below the
//! quota (and below no deeper quota) rewrites its data in place and leaves its stat unchanged. The
//! text of the statistics node *is* the usage: there is no second copy that could differ. Each
//! server keeps its own statistics, which is why the digest excludes all nodes below `/zookeeper`.
//!
//! A quota on `/` has no effect, nor has one on `/zookeeper` or below.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;

use crate::arena::Slot;
use crate::path_hash::PathHasher;
use crate::tree::Tree;

const QUOTA_ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";
/// The longest text of a quota that is read. Every write below the quota reads it, and a client
/// other than the writer of the text pays for that.
const TEXT_BYTES_MAX: usize = 1024;

/// A quota and its usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quota {
    /// The node the quota is on.
    pub path: String,
    /// The limits.
    pub limits: QuotaLimits,
    /// The usage that is compared with them.
    pub usage: QuotaUsage,
}

/// Limits; -1 means no limit. Exceeding a soft limit causes a warning, a hard limit an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuotaLimits {
    /// The soft limit of nodes.
    pub count: i64,
    /// The soft limit of bytes of data.
    pub bytes: i64,
    /// The hard limit of nodes.
    pub count_hard: i64,
    /// The hard limit of bytes of data.
    pub bytes_hard: i64,
}

/// The number of nodes of the subtree, including its top, and the bytes of their data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaUsage {
    /// The number of nodes.
    pub count: i64,
    /// The bytes of their data.
    pub bytes: i64,
}

#[derive(Debug)]
pub(crate) struct Quotas {
    by_path: BTreeMap<String, Pair>,
    /// The number of these paths for each path hash.
    hashes: BTreeMap<u64, usize>,
    hasher: PathHasher,
}

/// The two nodes of a quota.
#[derive(Clone, Copy, Debug)]
struct Pair {
    limits: Slot,
    /// `NONE` if the node does not exist; usage is not kept then.
    stats: Slot,
}

impl Quotas {
    pub(crate) fn new(seed: u64) -> Quotas {
        Quotas {
            by_path: BTreeMap::new(),
            hashes: BTreeMap::new(),
            hasher: PathHasher::with_seed(seed),
        }
    }

    fn insert(&mut self, target: &str, pair: Pair) {
        if self.by_path.insert(target.to_owned(), pair).is_none() {
            *self.hashes.entry(self.hasher.hash(target)).or_default() += 1;
        }
    }

    fn remove(&mut self, target: &str) {
        if self.by_path.remove(target).is_some()
            && let Entry::Occupied(mut count) = self.hashes.entry(self.hasher.hash(target))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Returns the deepest quota on a node or on an ancestor.
    fn over(&self, path: &str) -> Option<(&str, Pair)> {
        if self.by_path.is_empty() || is_internal(path) {
            return None;
        }
        let with_hash = |(at, hash)| self.hashes.contains_key(&hash).then_some(at);
        let candidates: Vec<&str> = self.hasher.prefixes(path).filter_map(with_hash).collect();
        let found = candidates.into_iter().rev().find_map(|at| self.by_path.get_key_value(at));
        found.map(|(path, pair)| (path.as_str(), *pair))
    }
}

impl Tree {
    /// Returns the quota that governs a path, whether or not the node exists. Also returns `None`
    /// if the quota has no statistics node, because then there is no usage to compare with the
    /// limits.
    pub fn quota_of(&self, path: &str) -> Option<Quota> {
        let (path, pair) = self.quotas.over(path)?;
        let limits = Text::parse(self.arena[pair.limits].block().data());
        let usage = Text::parse(self.arena[pair.stats.some()?].block().data());
        Some(Quota {
            path: path.to_owned(),
            limits: QuotaLimits {
                count: limits.count,
                bytes: limits.bytes,
                count_hard: limits.other("countHardLimit"),
                bytes_hard: limits.other("byteHardLimit"),
            },
            usage: QuotaUsage { count: usage.count, bytes: usage.bytes },
        })
    }

    /// Returns every quota with a statistics node, by path.
    pub fn quotas(&self) -> impl Iterator<Item = Quota> {
        self.quotas.by_path.keys().filter_map(|path| self.quota_of(path))
    }

    /// Registers a quota node. Must be called after every create.
    #[inline]
    pub(crate) fn quota_node_created(&mut self, path: &str, slot: Slot) {
        match target(path) {
            None => {}
            Some((target, Role::Limits)) => {
                let stats = self.slot_of(&stats_path(target)).unwrap_or(Slot::NONE);
                self.quotas.insert(target, Pair { limits: slot, stats });
            }
            Some((target, Role::Stats)) => {
                if let Some(pair) = self.quotas.by_path.get_mut(target) {
                    pair.stats = slot;
                }
                self.recount(target, slot);
            }
        }
    }

    /// Unregisters a quota node. Must be called before every delete.
    #[inline]
    pub(crate) fn quota_node_deleted(&mut self, path: &str) {
        match target(path) {
            None => {}
            Some((target, Role::Limits)) => {
                self.quotas.remove(target);
            }
            Some((target, Role::Stats)) => {
                if let Some(pair) = self.quotas.by_path.get_mut(target) {
                    pair.stats = Slot::NONE;
                }
            }
        }
    }

    /// Adds to the usage of the quota that governs a node, if there is one.
    #[inline]
    pub(crate) fn count_for_quota(&mut self, path: &str, count: i64, bytes: i64) {
        let Some((target, pair)) = self.quotas.over(path) else { return };
        let Some(stats) = pair.stats.some() else { return };
        let stats_path = stats_path(target);
        let mut text = Text::parse(self.arena[stats].block().data());
        text.count = text.count.wrapping_add(count);
        text.bytes = text.bytes.wrapping_add(bytes);
        self.write_stats(stats, &stats_path, &text);
    }

    /// Counts the subtree again. A quota is never on the root.
    fn recount(&mut self, target: &str, stats: Slot) {
        let mut text = Text { count: 0, bytes: 0, others: BTreeMap::new() };
        if let Some(top) = self.slot_of(target) {
            let below = self.below(top);
            text.count = 1 + below.nodes as i64;
            text.bytes = (self.arena[top].block().data_len() + below.bytes) as i64;
        }
        self.write_stats(stats, &stats_path(target), &text);
    }

    fn write_stats(&mut self, stats: Slot, path: &str, text: &Text) {
        self.replace_data(stats, path, Some(text.to_string().as_bytes()), |_| {});
    }

    /// Registers the quotas of a loaded tree and counts their subtrees.
    pub(crate) fn find_quotas(&mut self) {
        let Some(top) = self.slot_of(QUOTA_ROOT) else { return };
        let limits: Vec<(Slot, String)> = self
            .subtree(top)
            .filter(|&slot| self.arena[slot].name() == LIMITS)
            .map(|slot| (slot, self.path_of(slot)))
            .collect();
        for (slot, path) in limits {
            self.quota_node_created(&path, slot);
            let Some((target, _)) = target(&path) else { continue };
            if let Some(stats) = self.slot_of(&stats_path(target)) {
                self.recount(target, stats);
            }
        }
    }
}

enum Role {
    Limits,
    Stats,
}

/// Returns the node that a quota node refers to.
#[inline]
fn target(path: &str) -> Option<(&str, Role)> {
    let (target, name) = path.strip_prefix(QUOTA_ROOT)?.rsplit_once('/')?;
    let role = match name {
        LIMITS => Role::Limits,
        STATS => Role::Stats,
        _ => return None,
    };
    // The target of a quota on the root is empty.
    (target.starts_with('/') && !is_internal(target)).then_some((target, role))
}

fn stats_path(target: &str) -> String {
    [QUOTA_ROOT, target, "/", STATS].concat()
}

fn is_internal(path: &str) -> bool {
    path.strip_prefix("/zookeeper").is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The content of a limits or statistics node. Clients write it, so it can be malformed: a value
/// that cannot be parsed counts as not given.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Text {
    count: i64,
    bytes: i64,
    others: BTreeMap<String, i64>,
}

impl Text {
    fn parse(data: Option<&[u8]>) -> Text {
        let data = data.filter(|data| data.len() <= TEXT_BYTES_MAX);
        let text = String::from_utf8_lossy(data.unwrap_or_default());
        let mut parsed = Text { count: -1, bytes: -1, others: BTreeMap::new() };
        for pair in text.split([',', ';']) {
            let mut parts = pair.split('=');
            let (Some(key), Some(value)) = (parts.next(), parts.next()) else { continue };
            let Ok(value) = value.parse() else { continue };
            match key {
                "count" => parsed.count = value,
                "bytes" => parsed.bytes = value,
                other => {
                    parsed.others.insert(other.to_owned(), value);
                }
            }
        }
        parsed
    }

    fn other(&self, key: &str) -> i64 {
        self.others.get(key).copied().unwrap_or(-1)
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.count, self.bytes)?;
        if !self.others.is_empty() {
            // Old servers stop parsing here.
            f.write_str("=")?;
        }
        for (key, value) in &self.others {
            write!(f, ";{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, printed: &str) {
        assert_eq!(Text::parse(Some(text.as_bytes())).to_string(), printed);
    }

    #[test]
    fn texts_are_read_and_written_as_apache_does() {
        let full = "count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=7";
        check(full, full);
        check("count=5,bytes=10", "count=5,bytes=10");
        check("bytes=1;;,count=2", "count=2,bytes=1");
        check("count=1,bytes=2=;z=1;a=2", "count=1,bytes=2=;a=2;z=1");
        let limits = Text::parse(Some(full.as_bytes()));
        assert_eq!((limits.other("countHardLimit"), limits.other("byteHardLimit")), (7, -1));
    }

    #[test]
    fn garbage_reads_as_nothing() {
        for garbage in ["", "=", ",;=", "count", "count=", "count=x,bytes=9e9", "\u{fffd}=="] {
            check(garbage, "count=-1,bytes=-1");
        }
        check("count=99999999999999999999,bytes=3", "count=-1,bytes=3");
        assert_eq!(Text::parse(None).to_string(), "count=-1,bytes=-1");
        check(&format!("count=1,bytes=2{}", ";".repeat(2000)), "count=-1,bytes=-1");
        assert_eq!(Text::parse(Some(&[0xff, 0xfe])).to_string(), "count=-1,bytes=-1");
    }

    #[test]
    fn quota_nodes_name_their_target() {
        let of = |path| target(path).map(|(target, _)| target);
        assert_eq!(of("/zookeeper/quota/a/b/zookeeper_limits"), Some("/a/b"));
        assert_eq!(of("/zookeeper/quota/a/zookeeper_stats"), Some("/a"));
        assert_eq!(of("/zookeeper/quota/zookeeper_limits"), None, "the root");
        assert_eq!(of("/zookeeper/quota/a/other"), None);
        assert_eq!(of("/zookeeper/quotas/zookeeper_limits"), None);
        assert_eq!(of("/zookeeper/quota/zookeeper/config/zookeeper_limits"), None);
        assert_eq!(of("/a/zookeeper_limits"), None);
    }

    #[test]
    fn the_quota_over_a_deep_node_is_found_in_one_pass_over_its_path() {
        let mut quotas = Quotas::new(7);
        let pair = Pair { limits: Slot(1), stats: Slot::NONE };
        let deep = "/a".repeat(100_000);
        let of = |quotas: &Quotas, path: &str| quotas.over(path).map(|(path, _)| path.len());
        quotas.insert("/b", pair);
        // Hashing the text of each ancestor separately would read ten thousand million bytes.
        assert_eq!(of(&quotas, &deep), None);
        for len in [2, 100, 50] {
            quotas.insert(&deep[..len], pair);
        }
        assert_eq!(of(&quotas, &deep), Some(100), "the deepest");
        assert_eq!((of(&quotas, &deep[..98]), of(&quotas, "/ab")), (Some(50), None));
        quotas.remove(&deep[..100]);
        assert_eq!(of(&quotas, &deep), Some(50));
        quotas.remove(&deep[..50]);
        quotas.remove("/a");
        quotas.remove("/b");
        assert!(quotas.by_path.is_empty() && quotas.hashes.is_empty());
    }
}
