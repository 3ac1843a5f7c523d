//! Checks that the members' tree digests are equal and that no log reports a mismatch.
//!
//! A single reported mismatch is not conclusive: apparently the snapshot that an Apache leader
//! sends under load contains some of the transactions after it, and Apache's learners compare
//! digests while they apply these transactions again. This was observed with Apache servers alone.
//! Therefore a mismatch is accepted only in this case: an Apache learner reports it while it
//! installs a snapshot from a leader at the address of an Apache member. Snapshots of Ironkeeper
//! are exact, and a mismatch after one of them is a failure.

use std::collections::HashMap;
use std::fs;

use ironkeeper_peers::cluster::Cluster;
use ironkeeper_peers::server::Server;

/// Texts that no log may contain: a digest that differs from the leader's, or a panic of an
/// Ironkeeper thread.
const COMPLAINTS: [&str; 4] =
    ["digest mismatch", "digests are not matching", "digest does not match", "panicked at"];
/// Between these two log lines an Apache learner applies the transactions after a leader's
/// snapshot.
const TREE_COMES: &str = "Getting a snapshot from leader";
const TREE_IS_HERE: &str = "Snapshotting: ";
/// The text before the leader's address in the log of an Apache learner.
const LEADER: &str = "Successfully connected to leader, using address: ";

/// Returns all mismatches of the running members; empty if there are none.
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
        let log = fs::read(server.log_path()).unwrap_or_default();
        let fuzzy_leaders = cluster.apache_leader_ports(at);
        let (complaints, excused) = complaints(&String::from_utf8_lossy(&log), &fuzzy_leaders);
        found.extend(complaints.into_iter().map(|line| format!("member {id} says: {line}")));
        if excused > 0 {
            cluster.tell(&format!(
                "member {id} was sent a tree by Apache that was ahead of its digest"
            ));
        } else if let Some(count) = mismatches(server).filter(|count| count != "0") {
            found.push(format!("member {id} counts {count} digest mismatches"));
        }
    }
    found
}

/// Returns the mismatch lines of a log, and the number of lines that are accepted because of a
/// snapshot from a leader with one of these ports.
fn complaints(log: &str, fuzzy_leaders: &[u16]) -> (Vec<String>, usize) {
    let (mut found, mut excused) = (Vec::new(), 0);
    let (mut tree_comes, mut may_be_fuzzy) = (false, false);
    for line in log.lines() {
        if let Some((_, address)) = line.split_once(LEADER) {
            let port = address.rsplit(':').next().and_then(|port| port.trim().parse().ok());
            may_be_fuzzy = port.is_some_and(|port| fuzzy_leaders.contains(&port));
            tree_comes = false;
        } else if line.contains(TREE_COMES) {
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

/// Returns the digests that a member has kept, by zxid.
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
Successfully connected to leader, using address: /127.0.0.1:2888
Getting a snapshot from leader 0x200000175
Digests are not matching. Value is Zxid. Value:8589934966
Snapshotting: 0x200000177 to data
";

    #[test]
    fn a_complaint_counts_unless_an_apache_leader_may_have_sent_a_tree_that_was_ahead() {
        assert_eq!(complaints(LOG, &[2888]), (Vec::new(), 1));
        assert_eq!(complaints(LOG, &[2889]).0.len(), 1);
        assert_eq!(complaints(LOG, &[]).0.len(), 1);
        let later = format!("{LOG}First digest mismatch on txn: 1,2,3\n");
        assert_eq!(
            complaints(&later, &[2888]),
            (vec!["First digest mismatch on txn: 1,2,3".to_owned()], 1)
        );
        assert_eq!(complaints("thread 'log' panicked at x.rs:1", &[2888]).0.len(), 1);
    }
}
