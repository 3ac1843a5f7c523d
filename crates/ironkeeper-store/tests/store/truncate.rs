//! Truncation to the last transaction that the leader has.

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::StoreError;

use crate::recorder::*;

/// Writes three files of five records each and a snapshot before each.
fn history(disk: &SimDisk) {
    let store = open(disk);
    for start in [1, 6, 11] {
        write_snapshot(&store, start - 1).unwrap();
        write_log(&store, start..start + 5);
    }
}

#[test]
fn any_record_can_be_the_last() {
    for zxid in 1..=15 {
        let disk = SimDisk::new(1);
        history(&disk);
        open(&disk).truncate_log(Zxid(zxid)).unwrap();
        let (_, recovered) = recover(&disk).unwrap();
        assert_eq!(recovered.last_zxid, Zxid(zxid));
        assert_eq!(recovered.torn_tail, None);
        // The next transactions go to a new file.
        write_log(&open(&disk), (2 << 32 | 1)..(2 << 32 | 4));
        assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(2 << 32 | 3));
    }
}

#[test]
fn a_snapshot_is_a_place_to_go_back_to_without_a_record() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 100).unwrap();
    write_log(&store, 101..=105);
    store.truncate_log(Zxid(100)).unwrap();
    assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(100));
}

#[test]
fn a_log_that_does_not_belong_to_the_snapshot_can_be_cleared_away() {
    // A leader has sent a snapshot to a learner with a diverging history.
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=9);
    write_log(&store, [1 << 32 | 1, 1 << 32 | 2]);
    write_snapshot(&store, 7).unwrap();
    write_snapshot(&store, 50).unwrap();
    store.truncate_log(Zxid(50)).unwrap();
    assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(50));
    store.truncate_log(Zxid(7)).unwrap();
    assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(7));
}

#[test]
fn what_is_not_there_cannot_be_gone_back_to_and_nothing_is_touched() {
    let disk = SimDisk::new(1);
    history(&disk);
    let store = open(&disk);
    for zxid in [16, 99, 1 << 32 | 3, -1] {
        let error = store.truncate_log(Zxid(zxid)).unwrap_err();
        assert!(matches!(error, StoreError::CannotTruncate { .. }), "{error}");
    }
    assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(15));
    // Without any log.
    let store = open(&SimDisk::new(1));
    write_snapshot(&store, 100).unwrap();
    store.truncate_log(Zxid(5)).unwrap_err();
}

#[test]
fn a_crash_at_any_moment_leaves_a_history_that_is_too_long_at_worst() {
    for seed in 0..10 {
        for stop_in in 0.. {
            let disk = SimDisk::new(seed);
            history(&disk);
            let store = open(&disk);
            disk.fail_call(disk.calls() + stop_in, Fault::Stop);
            let done = store.truncate_log(Zxid(3)).is_ok();
            disk.crash();
            let (recorder, recovered) = recover(&disk).unwrap();
            assert!(recovered.last_zxid >= Zxid(3), "{recovered:?}");
            let first = recorder.snapshot.unwrap().0 + 1;
            assert_eq!(recorder.zxids(), (first..=recovered.last_zxid.0).collect::<Vec<i64>>());
            if done {
                assert_eq!(recovered.last_zxid, Zxid(3));
                break;
            }
            open(&disk).truncate_log(Zxid(3)).unwrap();
            assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(3));
        }
    }
}
