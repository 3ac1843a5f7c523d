//! Limits on requests and transactions. A server closes the link on which it receives a packet that
//! exceeds its limit, and would do so again after every reconnect. The network of these tests
//! panics on such a packet.

use ironkeeper_engine::auth::{IDENTITIES_MAX, IDENTITY_BYTES_MAX};
use ironkeeper_proto::{Acl, OpCode, Perms};

use crate::cluster::Cluster;
use crate::world::*;

/// The maximum length of a buffer in a packet between servers.
const FIELD_MAX: usize = 6000;

fn small() -> Cluster {
    Cluster::elected(3, 1, |node| {
        node.config.frame_bytes_max = 4000;
        node.config.field_bytes_max = FIELD_MAX;
    })
}

/// Returns a multi of creates, each with the ACL scheme `auth`, which expands to all identities of
/// the connection.
fn creates_for_own_identities(names: std::ops::Range<usize>) -> Vec<u8> {
    let own = [Acl::new(Perms::ALL, "auth", "")];
    let part = |name| create_acl(&format!("/n{name}"), b"", &own, Persistent);
    multi(&names.map(|name| (OpCode::Create, part(name))).collect::<Vec<_>>())
}

#[test]
fn a_session_with_more_nodes_than_a_transaction_can_name_ends_everywhere_at_once() {
    let mut cluster = small();
    let (leader, follower) = (cluster.leader(), cluster.follower());
    for (node, how) in [(leader, "closed"), (follower, "closed"), (follower, "expired")] {
        let mut client = cluster.at(node).connect();
        let path = |number: u32| format!("/{}-{number}", "long".repeat(20));
        for number in 0..100 {
            client.create(&mut cluster.at(node), &path(number), Ephemeral).unwrap();
        }
        let before = cluster.applied(leader);
        match how {
            "closed" => {
                assert_eq!(client.call(&mut cluster.at(node), OpCode::CloseSession, &[]).0, 0);
            }
            _ => cluster.expire(leader, client.session),
        }
        assert_eq!(cluster.applied(leader).0, before.0 + 1, "one transaction");
        for number in 0..100 {
            assert_eq!(cluster.data(&path(number)), vec![None; 4], "{how} at {node}");
        }
        cluster.assert_same();
    }
    // A member that recovers from its log has the same tree.
    cluster.kill(follower);
    cluster.start(follower);
    cluster.until("everybody serves", |cluster| cluster.serving() == 4);
    cluster.assert_same();
}

#[test]
fn what_would_be_too_long_for_learners_is_refused_and_changes_nothing() {
    let mut cluster = small();
    for node in [cluster.leader(), cluster.follower()] {
        let mut client = cluster.at(node).connect();
        for number in 0..20 {
            let user = format!("{}{number}:x", "user".repeat(20));
            assert_eq!(client.auth(&mut cluster.at(node), &user), 0);
        }
        // One create fits into a transaction, four do not.
        let (err, body) = client
            .call(&mut cluster.at(node), OpCode::Multi, &{ creates_for_own_identities(0..4) });
        let results = multi_results(&body);
        assert_eq!((err, results.len()), (0, 4));
        assert_eq!(results.iter().filter(|(_, err)| *err == -5).count(), 1, "{results:?}");
        assert_eq!(cluster.data("/n0"), vec![None; 4]);
        cluster.assert_same();
        let (err, _) =
            client.call(&mut cluster.at(node), OpCode::Multi, &creates_for_own_identities(0..1));
        assert_eq!(err, 0);
        client.delete(&mut cluster.at(node), "/n0").unwrap();
        cluster.assert_same();
    }
}

#[test]
fn a_connection_has_no_more_identities_than_its_leader_is_told() {
    let mut cluster = Cluster::three();
    let follower = cluster.follower();
    let mut many = cluster.at(follower).connect();
    // The client's address is the first identity.
    for number in 1..IDENTITIES_MAX {
        assert_eq!(many.auth(&mut cluster.at(follower), &format!("user{number}:x")), 0);
    }
    // A repeated identity does not count.
    assert_eq!(many.auth(&mut cluster.at(follower), "user1:x"), 0);
    many.create(&mut cluster.at(follower), "/with-many", Persistent).unwrap();
    assert_eq!(many.auth(&mut cluster.at(follower), "one-more:x"), -115);
    assert!(many.conn.close_reason().is_some());

    let mut long = cluster.at(follower).connect();
    let user = format!("{}:x", "u".repeat(IDENTITY_BYTES_MAX / 2));
    assert_eq!(long.auth(&mut cluster.at(follower), &user), 0);
    long.create(&mut cluster.at(follower), "/with-long", Persistent).unwrap();
    assert_eq!(long.auth(&mut cluster.at(follower), &format!("v{user}")), -115);
    cluster.assert_same();
}
