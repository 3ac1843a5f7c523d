//! A restarted member receives the transactions it missed, by DIFF, from the log, and by SNAP.

use ironkeeper_proto::txn::{self, CreateKind, TxnHeader};
use ironkeeper_proto::{AclVec, OpCode, SessionId, Zxid};
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{Dirs, LogRange, Store, StoreOptions};
use ironkeeper_testing::{ClusterBuilder, TestCluster};

use crate::support::{create_at, follower_and_leader, has, monitor};

fn words() -> ClusterBuilder {
    TestCluster::builder().set("4lw.commands.whitelist", "*")
}

/// Returns how many learners the leader has synchronized with DIFF, and with SNAP.
fn syncs(cluster: &TestCluster, leader: i64) -> (String, String) {
    let address = cluster.server(leader).address();
    (monitor(address, "zk_diff_count"), monitor(address, "zk_snap_count"))
}

/// Stops a follower, writes without it, restarts it, and returns how it was synchronized.
#[track_caller]
fn miss_and_catch_up(cluster: &TestCluster, nodes: usize) -> (String, String) {
    let (away, leader) = follower_and_leader(cluster);
    cluster.stop(away).expect("it stops");
    create_at(cluster, leader, (0..nodes).map(|index| format!("/missed-{index}")));
    monitor_reset(cluster, leader);
    cluster.restart(away).expect("it starts");
    cluster.wait_until_serving().expect("it joins");
    for index in [0, nodes / 2, nodes - 1] {
        assert!(has(cluster, away, &format!("/missed-{index}")), "/missed-{index}");
    }
    let syncs = syncs(cluster, leader);
    // The received transactions are on its disk too.
    cluster.stop(leader).expect("it stops");
    cluster.restart(away).expect("it starts");
    cluster.wait_until_serving().expect("another leader");
    assert!(has(cluster, away, &format!("/missed-{}", nodes - 1)));
    syncs
}

fn monitor_reset(cluster: &TestCluster, leader: i64) {
    crate::support::ask(cluster.server(leader).address(), "srst");
}

#[test]
fn a_little_is_sent_from_memory() {
    let cluster = words().start().expect("a cluster");
    assert_eq!(miss_and_catch_up(&cluster, 5), ("1".to_owned(), "0".to_owned()));
}

#[test]
fn more_is_read_from_the_log() {
    let cluster = words()
        .set("commitLogCount", 3)
        .set("snapshotSizeFactor", 1_000_000)
        .start()
        .expect("a cluster");
    assert_eq!(miss_and_catch_up(&cluster, 40), ("1".to_owned(), "0".to_owned()));
}

#[test]
fn a_lot_is_sent_as_a_whole_tree() {
    let cluster =
        words().set("commitLogCount", 3).set("snapshotSizeFactor", -1).start().expect("a cluster");
    assert_eq!(miss_and_catch_up(&cluster, 40), ("0".to_owned(), "1".to_owned()));
}

#[test]
fn an_observer_catches_up_too() {
    let cluster = words().voters(1).observers(1).start().expect("a cluster");
    cluster.stop(2).expect("it stops");
    create_at(&cluster, 1, ["/missed".to_owned()]);
    cluster.restart(2).expect("it starts");
    cluster.wait_until_serving().expect("it joins");
    assert!(has(&cluster, 2, "/missed"));
    create_at(&cluster, 2, ["/through-it".to_owned()]);
    assert!(has(&cluster, 1, "/through-it"));
}

#[test]
fn a_member_that_may_not_begin_a_database_gets_one_from_its_leader() {
    let dir = tempfile::tempdir().expect("a directory");
    for id in 1..=3 {
        let home = dir.path().join(id.to_string());
        std::fs::create_dir(&home).expect("it is new");
        // The permission to begin with an empty database, once.
        std::fs::write(home.join("initialize"), "").expect("written");
    }
    let cluster =
        words().data_dir(dir.path()).set("db.autocreate", false).start().expect("a cluster");
    let (emptied, leader) = follower_and_leader(&cluster);
    create_at(&cluster, leader, ["/kept".to_owned()]);
    cluster.stop(emptied).expect("it stops");
    let files = dir.path().join(emptied.to_string()).join("version-2");
    std::fs::remove_dir_all(files).expect("they are there");
    cluster.restart(emptied).expect("it starts");
    cluster.wait_until_serving().expect("it joins");
    assert!(has(&cluster, emptied, "/kept"));
}

#[test]
fn what_the_others_never_heard_of_is_undone() {
    let dir = tempfile::tempdir().expect("a directory");
    let cluster = words().data_dir(dir.path()).start().expect("a cluster");
    let (astray, leader) = follower_and_leader(&cluster);
    create_at(&cluster, leader, ["/agreed".to_owned()]);
    assert!(has(&cluster, astray, "/agreed"));
    cluster.stop(astray).expect("it stops");
    append_alone(&dir.path().join(astray.to_string()));
    monitor_reset(&cluster, leader);
    cluster.restart(astray).expect("it starts");
    cluster.wait_until_serving().expect("it joins");
    assert_eq!(syncs(&cluster, leader).1, "0", "a tree is not needed");
    assert!(!has(&cluster, astray, "/ghost") && has(&cluster, astray, "/agreed"));
    create_at(&cluster, astray, ["/ghost".to_owned()]);
    // The truncated log continues at the right position.
    cluster.restart(astray).expect("it starts");
    cluster.wait_until_serving().expect("it joins");
    assert!(has(&cluster, astray, "/ghost"));
}

/// Appends a transaction to a server's log that no other server has.
fn append_alone(data_dir: &std::path::Path) {
    let store = Store::open(RealDisk, Dirs::single(data_dir), StoreOptions::default())
        .expect("the server has let go of it");
    let mut last = Zxid::ZERO;
    let mut stream = store.read_log(LogRange::all()).expect("there is a log");
    while let Some(located) = stream.next().expect("it can be read") {
        last = located.record.zxid;
    }
    let zxid = last.next().expect("there is room");
    let session = SessionId(0x1234);
    let header = TxnHeader { session, cxid: 1, zxid, time: 1, op: OpCode::Create };
    let mut body = Vec::new();
    header.encode(&mut body);
    let kind = CreateKind::Persistent;
    txn::encode::create(OpCode::Create, "/ghost", Some(b""), AclVec::OPEN, kind, 99, &mut body);
    let mut writer = store.log_writer();
    writer.append(zxid, &body).expect("it is small");
    writer.commit().expect("there is room");
}
