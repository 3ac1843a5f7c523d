//! An ensemble in one process: replication, failures, partitions.

use ironkeeper_proto::CreateMode;
use ironkeeper_testing::{Role, TestCluster};

use crate::session::Session;

const LONG_MS: i32 = 600_000;

fn session_at(cluster: &TestCluster, id: i64) -> Session {
    Session::open(cluster.server(id).address(), LONG_MS)
}

/// Returns true if a member has the node, after a sync.
fn has(cluster: &TestCluster, id: i64, path: &str) -> bool {
    let mut session = session_at(cluster, id);
    session.sync();
    session.has(path)
}

#[test]
fn what_is_written_at_any_member_is_read_at_every_member() {
    let cluster = TestCluster::builder().voters(3).observers(1).start().expect("a cluster");
    for writer in cluster.ids() {
        let path = format!("/from-{writer}");
        session_at(&cluster, writer).create(&path, CreateMode::Persistent);
        for reader in cluster.ids() {
            assert!(has(&cluster, reader, &path), "{path} is missing at {reader}");
        }
    }
    let roles = cluster.ids().map(|id| cluster.server(id).role()).collect::<Vec<_>>();
    assert_eq!(roles.iter().filter(|role| **role == Role::Leader).count(), 1);
    assert_eq!(roles[3], Role::Observer);
}

#[test]
fn every_leader_in_turn_can_be_stopped_and_comes_back_with_what_it_missed() {
    let cluster = TestCluster::start(3).expect("a cluster");
    for round in 0..3 {
        let stopped = cluster.stop_leader().expect("a leader");
        cluster.wait_until_serving().expect("a new leader");
        let leader = cluster.leader().expect("a leader");
        assert_ne!(leader, stopped);
        let path = format!("/round-{round}");
        session_at(&cluster, leader).create(&path, CreateMode::Persistent);
        cluster.restart(stopped).expect("it starts");
        cluster.wait_until_serving().expect("it joins");
        assert!(has(&cluster, stopped, &path));
    }
    for id in cluster.ids() {
        assert!((0..3).all(|round| has(&cluster, id, &format!("/round-{round}"))));
    }
}

#[test]
fn a_leader_alone_on_its_side_steps_down_and_the_others_go_on() {
    let cluster = TestCluster::start(3).expect("a cluster");
    let lonely = cluster.leader().expect("a leader");
    let others: Vec<i64> = cluster.ids().filter(|id| *id != lonely).collect();
    cluster.partition(&[&[lonely], &others]);
    cluster.wait_for_role(lonely, Role::Looking).expect("it steps down");
    // The partition also applies after a restart.
    cluster.restart(lonely).expect("it starts");
    let leads = || others.iter().find(|id| cluster.server(**id).role() == Role::Leader);
    let leader = loop {
        if let Some(leader) = leads() {
            break *leader;
        }
        std::thread::yield_now();
    };
    session_at(&cluster, leader).create("/without-it", CreateMode::Persistent);
    // Between its start and the partition the member may have connected to the others.
    cluster.wait_for_role(lonely, Role::Looking).expect("it is alone again");
    cluster.heal();
    cluster.wait_until_serving().expect("one ensemble again");
    assert!(has(&cluster, lonely, "/without-it"));
}

#[test]
fn a_killed_session_is_gone_at_every_member() {
    let cluster = TestCluster::start(3).expect("a cluster");
    for id in cluster.ids() {
        let mut victim = session_at(&cluster, id);
        victim.create("/ephemeral", CreateMode::Ephemeral);
        assert!(cluster.kill_session(victim.id).expect("a leader"));
        victim.hear_end();
        for other in cluster.ids() {
            assert!(!has(&cluster, other, "/ephemeral"));
            let address = cluster.server(other).address();
            assert!(Session::attach(address, victim.id, LONG_MS).is_none());
        }
    }
}

#[test]
fn a_session_goes_on_at_another_member() {
    let cluster = TestCluster::start(3).expect("a cluster");
    let mut session = session_at(&cluster, 1);
    session.create("/ephemeral", CreateMode::Ephemeral);
    let address = cluster.server(2).address();
    let mut moved = Session::attach(address, session.id, LONG_MS).expect("the session");
    moved.create("/second", CreateMode::Ephemeral);
    assert!(moved.has("/ephemeral"));
    // The old connection cannot be used any more.
    session.begin_create("/third", CreateMode::Persistent);
    session.hear_end();
    moved.sync();
    assert!(!moved.has("/third"));
}

/// However long a member was isolated, it rejoins when it can connect again, and no order of
/// restarts, partitions and heals leaves a member out. (The simulator checks a time limit.)
#[test]
fn a_restart_a_partition_and_its_end_at_once_leave_one_ensemble() {
    let cluster = TestCluster::builder().voters(3).observers(1).start().expect("a cluster");
    for (round, lonely) in cluster.ids().enumerate() {
        let others: Vec<i64> = cluster.ids().filter(|id| *id != lonely).collect();
        for restarted in [lonely, others[0]] {
            cluster.restart(restarted).expect("it starts");
            cluster.partition(&[&[lonely], &others]);
            cluster.heal();
            cluster.wait_until_serving().expect("one ensemble again");
        }
        cluster.partition(&[&[lonely], &others]);
        cluster.wait_for_role(lonely, Role::Looking).expect("it is alone");
        cluster.restart(lonely).expect("it starts");
        cluster.heal();
        cluster.wait_until_serving().expect("one ensemble again");
        let path = format!("/round-{round}");
        let leader = cluster.leader().expect("a leader");
        session_at(&cluster, leader).create(&path, CreateMode::Persistent);
        for id in cluster.ids() {
            assert!(has(&cluster, id, &path), "{path} is missing at {id}");
        }
    }
}
