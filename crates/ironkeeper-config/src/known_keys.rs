//! The table of all configuration keys.
//!
//! A row contains the places where a key may be written, its default, its meaning, and the handling
//! of a value: it is applied, or it belongs to a feature that does not exist yet, or Ironkeeper
//! does not need it. Recognition, the user's manual and the tests all use the table, so a key
//! cannot be missing in one of them.

mod table;

use crate::draft::Draft;
use crate::notice::Feature;
use crate::problem::ValueError;
use crate::setting::Setting;
pub(crate) use table::NO_JVM;
use table::TABLE;

/// One key, or a family of keys: a name that ends in `.N` or `.*` means every key with that prefix.
#[derive(Clone, Copy)]
pub struct KnownKey {
    /// As written in `zoo.cfg`.
    pub name: &'static str,
    /// Where the key may be written.
    pub place: Place,
    /// The value if the key is not set; in parentheses if it is not a value but a rule.
    pub default: &'static str,
    /// A value that differs from the default.
    pub example: &'static str,
    /// One line for the manual.
    pub meaning: &'static str,
    pub(crate) handler: Handler,
}

impl KnownKey {
    /// Returns what Ironkeeper does with the key.
    pub fn support(&self) -> Support {
        match self.handler {
            Handler::Apply(_) | Handler::Member(_) => Support::Applied,
            Handler::NotYet { feature, .. } | Handler::Restricted { feature, .. } => {
                Support::NotYet { feature }
            }
            Handler::NotNeeded { why, .. } => Support::NotNeeded { why },
        }
    }

    fn is_family_of(&self, key: &str) -> bool {
        self.family().is_some_and(|prefix| key.len() > prefix.len() && key.starts_with(prefix))
    }

    /// Returns the common prefix of a family, with its dot.
    fn family(&self) -> Option<&'static str> {
        self.name.strip_suffix(['N', '*']).filter(|prefix| prefix.ends_with('.'))
    }
}

impl std::fmt::Debug for KnownKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("KnownKey")
            .field("name", &self.name)
            .field("place", &self.place)
            .field("default", &self.default)
            .field("support", &self.support())
            .field("meaning", &self.meaning)
            .finish_non_exhaustive()
    }
}

/// Where a key may be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// In `zoo.cfg` only.
    ZooCfg,
    /// In `zoo.cfg`, or as the flag `-Dzookeeper.<key>`.
    Property,
    /// Like `Property`, and also as the flag `-D<key>`.
    PropertyEitherName,
    /// As the flag `-D<key>`, and for Ironkeeper in `zoo.cfg` as well.
    JvmProperty,
}

impl Place {
    /// Returns whether the system property has the prefix `zookeeper.`.
    pub(crate) fn has_prefix(self) -> bool {
        matches!(self, Place::Property | Place::PropertyEitherName)
    }
}

/// The effect of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It is applied.
    Applied,
    /// It belongs to a feature that does not exist yet.
    NotYet { feature: Feature },
    /// It tunes something that does not exist in Ironkeeper.
    NotNeeded { why: &'static str },
}

#[derive(Clone, Copy)]
pub(crate) enum Handler {
    /// Writes the value to the draft.
    Apply(fn(&mut Draft, &Setting) -> Result<(), ValueError>),
    /// Does the same for members of an ensemble. On a standalone server the setting is reported.
    Member(fn(&mut Draft, &Setting) -> Result<(), ValueError>),
    /// Reports the setting. A switch with its default value is not reported, because the default is
    /// in effect.
    NotYet { feature: Feature, is_switch: bool, check: fn(&Setting) -> Result<(), ValueError> },
    /// Belongs to a feature that does not exist yet, but not every value can be ignored.
    Restricted { feature: Feature, check: fn(&mut Draft, &Setting) -> Result<(), ValueError> },
    /// Reports the setting.
    NotNeeded { why: &'static str, check: fn(&Setting) -> Result<(), ValueError> },
}

/// Returns every key, in groups.
pub fn known_keys() -> &'static [KnownKey] {
    TABLE
}

/// Returns the row for a key without prefixes.
pub(crate) fn find(key: &str) -> Option<&'static KnownKey> {
    let exact = TABLE.iter().find(|row| row.name == key);
    exact.or_else(|| TABLE.iter().find(|row| row.is_family_of(key)))
}

/// Returns the known key that is most similar to an unknown one.
pub(crate) fn nearest(key: &str) -> Option<&'static str> {
    if let Some((_, name)) =
        NICKNAMES.iter().find(|(nickname, _)| nickname.eq_ignore_ascii_case(key))
    {
        return Some(name);
    }
    let key = key.to_ascii_lowercase();
    let tolerated = (key.chars().count() / 3).min(3);
    TABLE
        .iter()
        .map(|row| (distance(&key, &row.name.to_ascii_lowercase()), row.name))
        .filter(|(distance, _)| *distance <= tolerated)
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, name)| name)
        .or_else(|| {
            TABLE.iter().find(|row| row.name.eq_ignore_ascii_case(&key)).map(|row| row.name)
        })
}

/// Returns the number of insertions, deletions, replacements and swaps of neighbours between two
/// words.
fn distance(a: &str, b: &str) -> usize {
    let a: Vec<char> = a.chars().collect();
    let b: Vec<char> = b.chars().collect();
    let mut two_above: Vec<usize> = vec![0; b.len() + 1];
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i; b.len() + 1];
        for j in 1..=b.len() {
            let replaced = above[j - 1] + usize::from(a[i - 1] != b[j - 1]);
            row[j] = replaced.min(above[j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                row[j] = row[j].min(two_above[j - 2] + 1);
            }
        }
        two_above = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

/// The format of the rendered table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TableFormat {
    /// For a terminal: one paragraph for each key.
    Text,
    /// For documentation: one table.
    Markdown,
}

/// Renders the whole table.
///
/// ```
/// use ironkeeper_config::{TableFormat, render_known_keys};
///
/// assert!(render_known_keys(TableFormat::Text).contains("snapCount (default 100000)\n"));
/// assert!(render_known_keys(TableFormat::Markdown).starts_with("| key |"));
/// ```
pub fn render_known_keys(format: TableFormat) -> String {
    let mut out = String::new();
    if format == TableFormat::Markdown {
        out.push_str("| key | default | status | meaning |\n|---|---|---|---|\n");
    }
    for row in TABLE {
        let support = match row.support() {
            Support::Applied => "applied".to_owned(),
            Support::NotYet { feature } => format!("not yet: {feature}"),
            Support::NotNeeded { why } => format!("not needed: {why}"),
        };
        let flag = match row.place {
            Place::ZooCfg => None,
            Place::Property => Some(format!("-Dzookeeper.{}", row.name)),
            Place::PropertyEitherName => Some(format!("-Dzookeeper.{0} or -D{0}", row.name)),
            Place::JvmProperty => Some(format!("-D{}", row.name)),
        };
        let KnownKey { name, default, meaning, .. } = row;
        match format {
            TableFormat::Text => {
                let default = if default.is_empty() { "(none)" } else { default };
                let bare = default.trim_start_matches('(').trim_end_matches(')');
                out.push_str(&format!("{name} (default {bare})\n    {meaning}\n"));
                if let Some(flag) = flag {
                    out.push_str(&format!("    as a flag: {flag}\n"));
                }
                out.push_str(&format!("    status: {support}\n"));
            }
            TableFormat::Markdown => {
                let default = match *default {
                    "" => "empty".to_owned(),
                    rule if rule.starts_with('(') => rule.trim_matches(['(', ')']).to_owned(),
                    value => format!("`{value}`"),
                };
                let flag = flag.map(|flag| format!(" Flag: `{flag}`.")).unwrap_or_default();
                let cells = [format!("`{name}`"), default, support, format!("{meaning}.{flag}")];
                let cells = cells.map(|cell| cell.replace('|', "\\|"));
                out.push_str(&format!("| {} |\n", cells.join(" | ")));
            }
        }
    }
    out
}

/// Names under which Apache's manual lists keys that only work under another name.
const NICKNAMES: [(&str, &str); 18] = [
    ("connectionMaxTokens", "connection_throttle_tokens"),
    ("connectionTokenFillTime", "connection_throttle_fill_time"),
    ("connectionTokenFillCount", "connection_throttle_fill_count"),
    ("connectionFreezeTime", "connection_throttle_freeze_time"),
    ("connectionDropIncrease", "connection_throttle_drop_increase"),
    ("connectionDropDecrease", "connection_throttle_drop_decrease"),
    ("connectionDecreaseRatio", "connection_throttle_decrease_ratio"),
    ("requestThrottleLimit", "request_throttle_max_requests"),
    ("requestThrottleStallTime", "request_throttle_stall_time"),
    ("requestThrottleDropStale", "request_throttle_drop_stale"),
    ("requestStaleLatencyCheck", "request_stale_latency_check"),
    ("requestStaleConnectionCheck", "request_stale_connection_check"),
    ("throttledOpWaitTime", "throttled_op_wait_time"),
    ("advancedFlowControlEnabled", "netty.advancedFlowControl.enabled"),
    ("outstandingHandshake.limit", "netty.server.outstandingHandshake.limit"),
    ("maxConcurrentSnapSyncs", "leader.maxConcurrentSnapSyncs"),
    ("maxConcurrentDiffSyncs", "leader.maxConcurrentDiffSyncs"),
    ("maxTimeToWaitForEpoch", "leader.maxTimeToWaitForEpoch"),
];
