//! The version this server gives as its own.
//!
//! Clients and monitors read the first three numbers to learn what the server can do, so they are
//! those of the Apache release whose behaviour is matched. Where Apache puts the revision of its
//! source, a name and our own version follow; everything up to the comma has the shape
//! `number.number.number-text`, which is what those readers expect.

use super::java_text;

/// The release of Apache ZooKeeper that this server behaves like.
pub const ZOOKEEPER_VERSION: &str = "3.9.5";

/// The day of the release, to be changed together with the version of the workspace. A build that
/// sets `SOURCE_DATE_EPOCH` (seconds since 1970, as reproducible builds do) shows that instead; the
/// clock of the machine that compiles never shows.
const RELEASED_S: i64 = 1_794_700_800;

/// For example `3.9.5-ironkeeper-0.1.0, built on 2026-11-15 00:00 UTC`.
pub(super) fn full() -> String {
    let built_s = option_env!("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.parse().ok());
    let built = java_text::build_date(built_s.unwrap_or(RELEASED_S).saturating_mul(1000));
    format!("{ZOOKEEPER_VERSION}-ironkeeper-{}, built on {built}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_reads_as_apache_s_does() {
        let full = full();
        let (version, built) = full.split_once(", built on ").expect("a build date");
        let (numbers, name) = version.split_once('-').expect("a revision");
        assert_eq!(numbers, ZOOKEEPER_VERSION);
        assert_eq!(name, concat!("ironkeeper-", env!("CARGO_PKG_VERSION")));
        assert!(built.len() == 20 && built.ends_with(" UTC"), "{built}");
    }
}
