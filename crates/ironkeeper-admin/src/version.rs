//! The version that the server reports.
//!
//! Clients and monitors derive the features of a server from the first three numbers, so they are
//! the numbers of the Apache release with the same behaviour. In place of the revision of Apache's
//! source are a name and our own version; everything up to the comma has the form
//! `number.number.number-text`, which these readers expect.

use crate::text::java;

/// The release of Apache ZooKeeper that this server behaves like.
pub const ZOOKEEPER_VERSION: &str = "3.9.5";

/// The day of the release, to be changed together with the version of the workspace. A build with
/// `SOURCE_DATE_EPOCH` (seconds since 1970, as in reproducible builds) reports that instead; the
/// clock of the compiling machine is never used.
const RELEASED_S: i64 = 1_794_700_800;

/// Returns, for example, `3.9.5-ironkeeper-0.1.0, built on 2026-11-15 00:00 UTC`.
pub fn version() -> String {
    let built_s = option_env!("SOURCE_DATE_EPOCH").and_then(|seconds| seconds.parse().ok());
    let built = java::build_date(built_s.unwrap_or(RELEASED_S).saturating_mul(1000));
    format!("{ZOOKEEPER_VERSION}-ironkeeper-{}, built on {built}", env!("CARGO_PKG_VERSION"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_reads_as_apache_s_does() {
        let text = version();
        let (release, built) = text.split_once(", built on ").expect("a build date");
        let (numbers, name) = release.split_once('-').expect("a revision");
        assert_eq!(numbers, ZOOKEEPER_VERSION);
        assert_eq!(name, concat!("ironkeeper-", env!("CARGO_PKG_VERSION")));
        assert!(built.len() == 20 && built.ends_with(" UTC"), "{built}");
    }
}
