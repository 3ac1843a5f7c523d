//! The replies of members of an ensemble to four-letter words.

use ironkeeper_testing::{Role, TestCluster};

use crate::support::{ask, create_at, follower_and_leader, monitor};

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests";

fn cluster() -> TestCluster {
    let builder = TestCluster::builder().voters(3).observers(1);
    builder.set("4lw.commands.whitelist", "*").start().expect("a cluster")
}

#[test]
fn every_role_says_what_it_is() {
    let cluster = cluster();
    let (follower, leader) = follower_and_leader(&cluster);
    create_at(&cluster, follower, ["/node".to_owned()]);
    for (id, mode, state) in [
        (leader, "leader", "leading - broadcast"),
        (follower, "follower", "following - broadcast"),
        (4, "observer", "observing - broadcast"),
    ] {
        let address = cluster.server(id).address();
        let srvr = ask(address, "srvr");
        assert!(srvr.contains(&format!("\nMode: {mode}\n")), "{srvr}");
        assert_eq!(srvr.contains("\nProposal sizes last/min/max: "), id == leader, "{srvr}");
        assert_eq!(monitor(address, "zk_server_state"), mode);
        assert_eq!(monitor(address, "zk_peer_state"), state);
        assert_eq!(monitor(address, "zk_quorum_size"), "3");
        assert_eq!(ask(address, "isro"), "rw");
        let conf = ask(address, "conf");
        assert!(conf.contains(&format!("\nserverId={id}\n")), "{conf}");
        assert!(conf.contains(&format!("\npeerType={}\n", u8::from(id == 4))), "{conf}");
        assert!(conf.ends_with(":observer\nversion=0"), "{conf}");
    }
    assert_eq!(monitor(cluster.server(4).address(), "zk_observer_master_id"), leader.to_string());
}

#[test]
fn a_leader_counts_its_learners() {
    let cluster = cluster();
    let (follower, leader) = follower_and_leader(&cluster);
    let address = cluster.server(leader).address();
    assert_eq!(monitor(address, "zk_last_proposal_size"), "-1");
    create_at(&cluster, leader, ["/node".to_owned()]);
    assert_ne!(monitor(address, "zk_last_proposal_size"), "-1");
    for (key, count) in [
        ("zk_learners", "3"),
        ("zk_synced_followers", "2"),
        ("zk_synced_non_voting_followers", "0"),
        ("zk_synced_observers", "1"),
        ("zk_pending_syncs", "0"),
        ("zk_looking_count", "1"),
    ] {
        assert_eq!(monitor(address, key), count, "{key}");
    }
    cluster.stop(follower).expect("it stops");
    crate::support::until("the leader misses it", || monitor(address, "zk_learners") == "2");
}

#[test]
fn a_follower_counts_what_its_leader_says() {
    let cluster = cluster();
    let (follower, _) = follower_and_leader(&cluster);
    let count = |key: &str| -> u64 {
        monitor(cluster.server(follower).address(), key).parse().expect("a number")
    };
    let keys = ["zk_learner_proposal_received_count", "zk_learner_commit_received_count"];
    let before = keys.map(count);
    create_at(&cluster, follower, (0..5).map(|number| format!("/node-{number}")));
    for (key, before) in keys.into_iter().zip(before) {
        assert!(count(key) >= before + 5, "{key}");
    }
}

#[test]
fn without_a_quorum_there_is_nothing_to_say() {
    let cluster = cluster();
    cluster.stop(2).expect("it stops");
    cluster.stop(3).expect("it stops");
    cluster.wait_for_role(1, Role::Looking).expect("it has no quorum");
    let address = cluster.server(1).address();
    for word in ["srvr", "mntr", "stat", "conf"] {
        assert_eq!(ask(address, word), format!("{NOT_SERVING}\n"), "{word}");
    }
    assert_eq!((ask(address, "isro").as_str(), ask(address, "ruok").as_str()), ("null", "imok"));
}

#[test]
fn a_read_only_server_says_so() {
    let cluster = TestCluster::builder()
        .set("4lw.commands.whitelist", "*")
        .set("readonlymode.enabled", true)
        .start()
        .expect("a cluster");
    cluster.stop(2).expect("it stops");
    cluster.stop(3).expect("it stops");
    let address = cluster.server(1).address();
    crate::support::until("it serves readers", || ask(address, "isro") == "ro");
    let srvr = ask(address, "srvr");
    assert!(srvr.contains("\nMode: read-only\n"), "{srvr}");
}
