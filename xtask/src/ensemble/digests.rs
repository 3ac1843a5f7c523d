//! Whether members agree on their trees' digests, and whether any of them complained.

use std::collections::HashMap;
use std::fs;

use super::cluster::Cluster;
use crate::server::Server;

/// Words no log may hold: a digest that differs from the leader's, or a thread of ours that died.
const COMPLAINTS: [&str; 4] =
    ["digest mismatch", "digests are not matching", "digest does not match", "panicked at"];

/// Everything that speaks against the running members; nothing is what is wanted.
pub fn disagreements(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    let mut digests: HashMap<String, (usize, String)> = HashMap::new();
    for (at, server) in cluster.members().enumerate() {
        let id = at + 1;
        for (zxid, digest) in history(server) {
            let known = digests.entry(zxid.clone()).or_insert_with(|| (id, digest.clone()));
            if known.1 != digest {
                found.push(format!(
                    "digest at {zxid}: {} on member {}, {digest} on member {id}",
                    known.1, known.0
                ));
            }
        }
        if let Some(count) = mismatches(server).filter(|count| count != "0") {
            found.push(format!("member {id} counts {count} digest mismatches"));
        }
        let log = fs::read(server.log_path()).unwrap_or_default();
        for line in String::from_utf8_lossy(&log).lines() {
            let lower = line.to_lowercase();
            if COMPLAINTS.iter().any(|words| lower.contains(words)) {
                found.push(format!("member {id} says: {line}"));
            }
        }
    }
    found
}

/// The digests a member remembers, by zxid.
fn history(server: &Server) -> Vec<(String, String)> {
    let text = server.ask("hash").unwrap_or_default();
    text.lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(zxid, digest)| (zxid.to_owned(), digest.to_owned()))
        .collect()
}

fn mismatches(server: &Server) -> Option<String> {
    let text = server.ask("mntr").ok()?;
    let count = text.lines().find_map(|line| line.strip_prefix("zk_digest_mismatches_count\t"))?;
    Some(count.to_owned())
}
