//! A leader's snapshot replaces the local data.

use ironkeeper_proto::snapshot_record::END_PATH;
use ironkeeper_proto::{Put, Zxid};
use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::{Store, StoreError};

use crate::recorder::*;

/// Writes a local history: a snapshot at 0, one at 5, and the log from 1 to 9.
fn history(disk: &SimDisk) {
    let store = open(disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=5);
    write_snapshot(&store, 5).unwrap();
    write_log(&store, 6..=9);
}

/// Installs a snapshot as a leader sends it.
fn install(disk: &SimDisk, zxid: i64) -> Result<(), StoreError> {
    let mut sent = tree(b"leader");
    sent.put_str(END_PATH);
    let store = Store::open(disk.clone(), dirs(), small())?;
    let mut writer = store.incoming_snapshot_writer(Zxid(zxid))?;
    writer.write(&sent)?;
    store.install_snapshot(Zxid(zxid), writer)
}

#[track_caller]
fn is_the_leaders(disk: &SimDisk, zxid: i64) {
    let (recorder, recovered) = recover(disk).unwrap();
    assert_eq!(recovered.last_zxid, Zxid(zxid));
    assert_eq!(recorder.nodes[1].1.as_deref(), Some(&b"leader"[..]));
    assert_eq!(recorder.zxids(), [0; 0]);
}

/// ZOOKEEPER-582.
#[test]
fn nothing_of_the_old_history_is_left() {
    // Below the last zxid of the log, at a local snapshot, at the last zxid, and above it.
    for zxid in [3, 5, 9, 2 << 32 | 4] {
        let disk = SimDisk::new(1);
        history(&disk);
        install(&disk, zxid).unwrap();
        is_the_leaders(&disk, zxid);
        assert!(disk.content(&snap_path("snapshot.0")).is_err());
        assert!(disk.content(&log_path("log.1")).is_err());
        // The next transactions of the leader follow the snapshot.
        write_log(&open(&disk), [zxid + 1, zxid + 2]);
        assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(zxid + 2));
    }
}

#[test]
fn a_tree_that_is_given_up_late_does_not_take_the_next_one_of_its_transaction_along() {
    let disk = SimDisk::new(1);
    history(&disk);
    let store = open(&disk);
    let begin = |sent: &[u8]| {
        let mut writer = store.incoming_snapshot_writer(Zxid(7)).unwrap();
        writer.write(sent).unwrap();
        writer
    };
    let mut sent = tree(b"leader");
    sent.put_str(END_PATH);
    // The connection broke in the middle, and the next snapshot starts before the first is dropped.
    let given_up = begin(&sent[..20]);
    let next = begin(&sent);
    drop(given_up);
    store.install_snapshot(Zxid(7), next).unwrap();
    is_the_leaders(&disk, 7);
}

/// ZOOKEEPER-2872.
#[test]
fn a_crash_at_any_moment_leaves_the_leaders_tree_or_ours_as_far_as_it_agrees() {
    for (seed, zxid) in (0..3).flat_map(|seed| [3, 5, 7, 9, 2 << 32 | 4].map(|zxid| (seed, zxid))) {
        for stop_in in 0.. {
            let disk = SimDisk::new(seed);
            history(&disk);
            disk.fail_call(disk.calls() + stop_in, Fault::Stop);
            let done = install(&disk, zxid).is_ok();
            disk.crash();
            if done {
                is_the_leaders(&disk, zxid);
                break;
            }
            let (recorder, recovered) = recover(&disk).unwrap();
            let last = recovered.last_zxid.0;
            if recorder.nodes[1].1.as_deref() == Some(b"leader") {
                assert_eq!((last, recorder.zxids()), (zxid, vec![]));
            } else {
                assert!(last >= zxid.min(9), "{last} is a loss");
                let first = recorder.snapshot.unwrap().0 + 1;
                assert_eq!(recorder.zxids(), (first..=last).collect::<Vec<i64>>());
            }
            install(&disk, zxid).unwrap();
            is_the_leaders(&disk, zxid);
        }
    }
}
