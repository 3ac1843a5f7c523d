//! Detects a peer with another membership than this server.
//!
//! Votes contain the membership of their sender. Two memberships that an administrator wrote have
//! the same version, zero, and should contain the same voters: with different ones two servers can
//! count different majorities.

use std::collections::BTreeSet;
use std::time::Instant;

use ironkeeper_proto::membership::{Member, PeerRole};
use ironkeeper_proto::{Membership, ServerId, Zxid};

use crate::rate_limited::{Admitted, LineLimit};

/// The maximum number of differences in a log line.
const NAMED_MAX: usize = 4;

/// Compares memberships and logs warnings, at most once a minute for each peer and difference.
#[derive(Debug, Default)]
pub struct MembershipCheck {
    limit: LineLimit,
}

/// Why the membership of a peer does not agree with our own.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Mismatch {
    /// The peer counts itself among the voters, and our membership does not contain it.
    NotListed,
    /// The memberships have these differences.
    Differences(String),
}

impl MembershipCheck {
    /// Compares the membership in a vote of this server.
    pub fn compare(&self, own: &Membership, from: ServerId, config: &[u8]) {
        // Servers before 3.5 send none.
        if config.is_empty() {
            return;
        }
        let Ok(theirs) = Membership::parse(&String::from_utf8_lossy(config)) else { return };
        let Some(mismatch) = mismatch(own, from, &theirs) else { return };
        let (peer, version) = (from.0, Zxid(own.version));
        let line = format!("{peer} {version} {mismatch:?}");
        let admitted = self.limit.admit_kind("membership", line, Instant::now());
        let Some(Admitted { suppressed }) = admitted else { return };
        match mismatch {
            Mismatch::NotListed => {
                tracing::warn!(peer, %version, suppressed, "voter not in the membership");
            }
            Mismatch::Differences(differences) => {
                tracing::warn!(peer, differences, suppressed, "membership differs from the peer's");
            }
        }
    }
}

fn mismatch(own: &Membership, from: ServerId, theirs: &Membership) -> Option<Mismatch> {
    // The newer membership is in force, and a server with an older one adopts it.
    if theirs.version > own.version {
        return None;
    }
    if !own.members.contains_key(&from) && theirs.is_voter(from) {
        return Some(Mismatch::NotListed);
    }
    if theirs.version < own.version {
        return None;
    }
    differences(own, theirs).map(Mismatch::Differences)
}

/// Returns the differences. Hosts are not compared, because a server has many names and can listen
/// on a wildcard; nor are addresses for clients, which may be known only to the member itself.
fn differences(own: &Membership, theirs: &Membership) -> Option<String> {
    let ids: BTreeSet<ServerId> =
        own.members.keys().chain(theirs.members.keys()).copied().collect();
    let of_members = ids.into_iter().filter_map(|id| {
        let what = match (own.members.get(&id), theirs.members.get(&id)) {
            (Some(here), Some(there)) => of_member(here, there)?,
            // An observer need not be listed by the others.
            (Some(here), None) if here.role == PeerRole::Participant => {
                "is only listed here".into()
            }
            (None, Some(there)) if there.role == PeerRole::Participant => {
                "is only listed there".into()
            }
            _ => return None,
        };
        Some(format!("server.{id} {what}"))
    });
    let mut all: Vec<String> = of_members.collect();
    if own.groups != theirs.groups {
        all.push("the groups differ".to_owned());
    }
    let weighs_other = |id: ServerId| theirs.is_voter(id) && own.weight(id) != theirs.weight(id);
    all.extend(own.voters().filter(|id| weighs_other(*id)).map(|id| {
        let (here, there) = (own.weight(id), theirs.weight(id));
        format!("server.{id} weighs {there} there and {here} here")
    }));
    let more = all.len().saturating_sub(NAMED_MAX);
    all.truncate(NAMED_MAX);
    let named = all.join("; ");
    match (named.is_empty(), more) {
        (true, _) => None,
        (false, 0) => Some(named),
        (false, more) => Some(format!("{named}; and {more} more")),
    }
}

fn of_member(here: &Member, there: &Member) -> Option<String> {
    let role = |member: &Member| match member.role {
        PeerRole::Participant => "votes",
        PeerRole::Observer => "observes",
    };
    if here.role != there.role {
        return Some(format!("{} there and {} here", role(there), role(here)));
    }
    let ports = |member: &Member| -> BTreeSet<(u16, u16)> {
        member.addresses.iter().map(|at| (at.quorum_port, at.election_port)).collect()
    };
    let (ports_here, ports_there) = (ports(here), ports(there));
    (ports_here != ports_there).then(|| {
        let text = |ports: &BTreeSet<(u16, u16)>| {
            let first = ports.first().map(|(quorum, election)| format!("{quorum}:{election}"));
            first.unwrap_or_default()
        };
        format!("has the ports {} there and {} here", text(&ports_there), text(&ports_here))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(lines: &[&str]) -> Membership {
        Membership::parse(&lines.join("\n")).expect("members of our own making")
    }

    const OWN: [&str; 3] =
        ["server.1=db1:2888:3888", "server.2=db2:2888:3888", "server.3=db3:2888:3888"];

    fn found(own: &[&str], theirs: &[&str]) -> Option<Mismatch> {
        mismatch(&members(own), ServerId(3), &members(theirs))
    }

    fn differences_of(own: &[&str], theirs: &[&str]) -> String {
        match found(own, theirs) {
            Some(Mismatch::Differences(differences)) => differences,
            other => panic!("{other:?} for {theirs:?}"),
        }
    }

    #[test]
    fn differences_are_named() {
        for (theirs, expected) in [
            (&OWN[1..], "server.1 is only listed here"),
            (
                &[OWN[0], OWN[1], OWN[2], "server.4=db4:2888:3888"][..],
                "server.4 is only listed there",
            ),
            (
                &[OWN[0], "server.2=db2:2888:3888:observer", OWN[2]],
                "server.2 observes there and votes here",
            ),
            (
                &[OWN[0], OWN[1], "server.3=db3:2889:3888"],
                "server.3 has the ports 2889:3888 there and 2888:3888 here",
            ),
            (&[OWN[0], OWN[1], OWN[2], "weight.1=0"], "server.1 weighs 0 there and 1 here"),
            (&[OWN[0], OWN[1], OWN[2], "group.1=1:2", "group.2=3"], "the groups differ"),
        ] {
            assert_eq!(differences_of(&OWN, theirs), expected);
        }
        let others: Vec<String> = (4..=9).map(|id| format!("server.{id}=x:1:2")).collect();
        let others: Vec<&str> = others.iter().map(String::as_str).collect();
        let line = differences_of(&OWN, &others);
        assert!(line.ends_with("; server.4 is only listed there; and 5 more"), "{line}");
    }

    #[test]
    fn what_may_differ_is_no_difference() {
        for theirs in [
            // Other names of the same servers, and an address for clients.
            &["server.1=10.0.0.1:2888:3888", OWN[1], "server.3=0.0.0.0:2888:3888;2181"][..],
            &[OWN[0], OWN[1], OWN[2], "server.9=far:2888:3888:observer"],
            // The newer one will be in force here as well.
            &[OWN[0], OWN[2], "version=100000005"],
        ] {
            assert_eq!(found(&OWN, theirs), None, "{theirs:?}");
        }
    }

    #[test]
    fn a_voter_that_is_no_member_is_noticed() {
        let own = ["server.1=db1:2888:3888", "version=100000005"];
        assert_eq!(found(&own, &OWN), Some(Mismatch::NotListed));
        assert_eq!(found(&OWN[..2], &OWN), Some(Mismatch::NotListed));
        let observer = ["server.1=db1:2888:3888", "server.3=db3:2888:3888:observer"];
        assert_eq!(found(&own, &observer), None);
    }

    #[test]
    fn bytes_that_are_no_membership_are_ignored() {
        let check = MembershipCheck::default();
        for config in [&b""[..], b"server.x=\n", b"\xff\xfe"] {
            check.compare(&members(&OWN), ServerId(3), config);
        }
    }
}
