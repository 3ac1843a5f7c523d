//! Whether members agree on their trees' digests, and whether any of them complained.
//!
//! One complaint proves nothing: it seems that the tree an Apache leader sends under load holds some of what follows it,
//! and that Apache's learners compare digests while they apply that once more. It was seen among Apache servers alone.

use std::collections::HashMap;
use std::fs;

use super::cluster::Cluster;
use crate::server::Server;

/// Words no log may hold: a digest that differs from the leader's, or a thread of ours that died.
const COMPLAINTS: [&str; 4] =
    ["digest mismatch", "digests are not matching", "digest does not match", "panicked at"];
/// Between these two, an Apache learner applies what follows a leader's tree.
const TREE_COMES: &str = "Getting a snapshot from leader";
const TREE_IS_HERE: &str = "Snapshotting: ";

/// Everything that speaks against the running members; nothing is what is wanted.
pub fn disagreements(cluster: &Cluster) -> Vec<String> {
    let mut found = Vec::new();
    let mut digests: HashMap<String, (usize, String)> = HashMap::new();
    let apaches = (0..cluster.size()).filter(|at| cluster.is_apache(*at)).count();
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
        let log = fs::read(server.log_path()).unwrap_or_default();
        let may_be_fuzzy = cluster.is_apache(at) && apaches > 1;
        let (complaints, excused) = complaints(&String::from_utf8_lossy(&log), may_be_fuzzy);
        found.extend(complaints.into_iter().map(|line| format!("member {id} says: {line}")));
        if excused > 0 {
            println!("   member {id} was sent a tree by Apache that was ahead of its digest");
        } else if let Some(count) = mismatches(server).filter(|count| count != "0") {
            found.push(format!("member {id} counts {count} digest mismatches"));
        }
    }
    found
}

/// The complaints of a log, and how many more an Apache leader's tree excuses.
fn complaints(log: &str, may_be_fuzzy: bool) -> (Vec<String>, usize) {
    let (mut found, mut excused) = (Vec::new(), 0);
    let mut tree_comes = false;
    for line in log.lines() {
        if line.contains(TREE_COMES) {
            tree_comes = true;
        } else if line.contains(TREE_IS_HERE) {
            tree_comes = false;
        }
        let lower = line.to_lowercase();
        if COMPLAINTS.iter().any(|words| lower.contains(words)) {
            if tree_comes && may_be_fuzzy {
                excused += 1;
            } else {
                found.push(line.to_owned());
            }
        }
    }
    (found, excused)
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

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
Getting a snapshot from leader 0x200000175
Digests are not matching. Value is Zxid. Value:8589934966
Snapshotting: 0x200000177 to data
";

    #[test]
    fn a_complaint_counts_unless_an_apache_leader_may_have_sent_a_tree_that_was_ahead() {
        assert_eq!(complaints(LOG, true), (Vec::new(), 1));
        assert_eq!(complaints(LOG, false).0.len(), 1);
        let later = format!("{LOG}First digest mismatch on txn: 1,2,3\n");
        assert_eq!(
            complaints(&later, true),
            (vec!["First digest mismatch on txn: 1,2,3".to_owned()], 1)
        );
        assert_eq!(complaints("thread 'log' panicked at x.rs:1", true).0.len(), 1);
    }
}
