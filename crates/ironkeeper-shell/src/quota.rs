//! The quota nodes: their paths and the format of their data.
//!
//! A quota of `/app` is the node `/zookeeper/quota/app/zookeeper_limits`; the server writes the
//! usage to `zookeeper_stats` beside it. The text is
//! `count=4,bytes=5=;byteHardLimit=-1;countHardLimit=10`: the extra `=` makes servers without hard
//! limits stop parsing there.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

pub const ROOT: &str = "/zookeeper/quota";
pub const LIMITS: &str = "zookeeper_limits";
pub const STATS: &str = "zookeeper_stats";

/// Returns the parent of the quota nodes of a path.
pub fn node_of(path: &str) -> String {
    format!("{ROOT}{path}")
}

pub fn limits_of(path: &str) -> String {
    format!("{ROOT}{path}/{LIMITS}")
}

pub fn stats_of(path: &str) -> String {
    format!("{ROOT}{path}/{STATS}")
}

/// One of the four limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    Count,
    Bytes,
    CountHard,
    BytesHard,
}

impl Limit {
    fn key(self) -> &'static str {
        match self {
            Limit::Count => "count",
            Limit::Bytes => "bytes",
            Limit::CountHard => "countHardLimit",
            Limit::BytesHard => "byteHardLimit",
        }
    }
}

/// The numbers of a limits or stats node; an unset number is -1.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Numbers(BTreeMap<String, i64>);

impl Numbers {
    /// Parses the data of a node. Entries that are not `key=number` are ignored, so that a damaged
    /// quota can still be listed and replaced.
    pub fn parse(data: &[u8]) -> Numbers {
        let text = String::from_utf8_lossy(data);
        let pairs = text.split([',', ';']).filter_map(|pair| {
            let mut parts = pair.split('=');
            let (key, value) = (parts.next()?, parts.next()?);
            let value = if value.is_empty() { -1 } else { value.parse().ok()? };
            Some((key.to_owned(), value))
        });
        Numbers(pairs.collect())
    }

    /// Returns all four limits as unset (-1).
    pub fn unlimited() -> Numbers {
        let mut numbers = Numbers::default();
        for limit in [Limit::Count, Limit::Bytes, Limit::CountHard, Limit::BytesHard] {
            numbers.set(limit, -1);
        }
        numbers
    }

    /// Returns the content of a new stats node, before the server updates it.
    pub fn nothing_counted() -> Numbers {
        let mut numbers = Numbers::default();
        numbers.set(Limit::Count, 0);
        numbers.set(Limit::Bytes, 0);
        numbers
    }

    pub fn limit(&self, limit: Limit) -> i64 {
        self.0.get(limit.key()).copied().unwrap_or(-1)
    }

    pub fn set(&mut self, limit: Limit, value: i64) {
        self.0.insert(limit.key().to_owned(), value);
    }

    /// Returns whether a limit, soft or hard, is below the existing usage.
    pub fn exceeded_by(&self, soft: Limit, hard: Limit, existing: i64) -> bool {
        [soft, hard].into_iter().any(|limit| (0..existing).contains(&self.limit(limit)))
    }
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, bytes) = (self.limit(Limit::Count), self.limit(Limit::Bytes));
        write!(f, "count={count},bytes={bytes}")?;
        let mut rest =
            self.0.iter().filter(|(key, _)| !matches!(&***key, "count" | "bytes")).peekable();
        if rest.peek().is_some() {
            f.write_str("=")?;
        }
        for (key, value) in rest {
            write!(f, ";{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_the_one_every_server_version_reads() {
        let mut numbers = Numbers::unlimited();
        numbers.set(Limit::Count, 2);
        let text = "count=2,bytes=-1=;byteHardLimit=-1;countHardLimit=-1";
        assert_eq!(numbers.to_string(), text);
        assert_eq!(Numbers::parse(text.as_bytes()), numbers);
        assert_eq!(Numbers::nothing_counted().to_string(), "count=0,bytes=0");
    }

    #[test]
    fn damaged_text_is_read_as_far_as_it_goes() {
        let numbers =
            Numbers::parse(b"count=x,bytes=,what,=;countHardLimit=7\xff;countHardLimit=9");
        assert_eq!(numbers.limit(Limit::Count), -1);
        assert_eq!(numbers.limit(Limit::CountHard), 9);
        assert_eq!(Numbers::parse(b""), Numbers::default());
    }

    #[test]
    fn a_limit_of_minus_one_is_no_limit() {
        let mut numbers = Numbers::unlimited();
        assert!(!numbers.exceeded_by(Limit::Count, Limit::CountHard, 5));
        numbers.set(Limit::CountHard, 4);
        assert!(numbers.exceeded_by(Limit::Count, Limit::CountHard, 5));
        assert!(!numbers.exceeded_by(Limit::Count, Limit::CountHard, 4));
    }
}
