//! Bounded parts of the log, as a backup or a restore reads them.

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::{LogRange, Store, StoreError};

use crate::recorder::*;

fn zxids(store: &Store<SimDisk>, range: LogRange) -> Result<Vec<i64>, StoreError> {
    let mut records = store.read_log(range)?;
    let mut zxids = Vec::new();
    while let Some(located) = records.next()? {
        zxids.push(located.record.zxid.0);
    }
    // The end of a range is final.
    assert!(records.next()?.is_none());
    Ok(zxids)
}

/// Writes a log of three records in each file.
fn log(zxids: impl IntoIterator<Item = i64>) -> Store<SimDisk> {
    let store = open(&SimDisk::new(1));
    let mut writer = store.log_writer();
    for (at, zxid) in zxids.into_iter().enumerate() {
        if at % 3 == 0 {
            writer.roll();
        }
        writer.append(Zxid(zxid), &set_data(zxid, b"data")).unwrap();
    }
    writer.commit().unwrap();
    store
}

#[test]
fn a_range_of_zxids_has_both_of_its_ends() {
    let store = log(1..=10);
    assert_eq!(zxids(&store, LogRange::all()).unwrap(), (1..=10).collect::<Vec<_>>());
    for from in 0..=11 {
        for to in 0..=11 {
            let expected: Vec<i64> = (from.max(1)..=to.min(10)).collect();
            assert_eq!(
                zxids(&store, LogRange::from(Zxid(from)).up_to(Zxid(to))).unwrap(),
                expected
            );
            let after = LogRange::after(Zxid(from - 1)).up_to(Zxid(to));
            if from > 0 {
                assert_eq!(zxids(&store, after).unwrap(), expected);
            }
        }
    }
}

#[test]
fn records_that_must_follow_a_snapshot_are_not_returned_after_a_gap() {
    let store = log(5..=7);
    assert_eq!(zxids(&store, LogRange::from(Zxid(2))).unwrap(), [5, 6, 7]);
    assert_eq!(zxids(&store, LogRange::after(Zxid(4))).unwrap(), [5, 6, 7]);
    let error = zxids(&store, LogRange::after(Zxid(2))).unwrap_err();
    assert!(matches!(error, StoreError::Gap { before: Zxid(2), found: Zxid(5), .. }), "{error}");
}

#[test]
fn a_range_of_time_ends_before_the_first_later_record() {
    let store = open(&SimDisk::new(1));
    let mut writer = store.log_writer();
    // The clock of the second leader is behind.
    for (zxid, time_ms) in [(1, 100), (2, 200), (3, 300), (4, 150), (5, 400)] {
        writer.append(Zxid(zxid), &set_data_at(zxid, time_ms)).unwrap();
    }
    writer.commit().unwrap();
    let until = |time_ms| zxids(&store, LogRange::all().up_to_time(time_ms)).unwrap();
    assert_eq!(until(99), []);
    assert_eq!(until(100), [1]);
    assert_eq!(until(299), [1, 2]);
    assert_eq!(until(300), [1, 2, 3, 4]);
    assert_eq!(until(i64::MAX), [1, 2, 3, 4, 5]);
}

#[test]
fn a_snapshot_and_the_log_after_it_are_what_recovery_reads() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=3);
    write_snapshot(&store, 3).unwrap();
    write_log(&store, 4..=6);
    let newest = store.snapshots().unwrap().remove(0);
    assert_eq!(newest.zxid, Zxid(3));
    let mut read = Recorder::default();
    let summary = store.read_snapshot(&newest, &mut read).unwrap();
    assert_eq!((summary.nodes, read.snapshot), (2, Some(Zxid(3))));
    assert_eq!(zxids(&store, LogRange::after(newest.zxid)).unwrap(), [4, 5, 6]);
    drop(store);
    let (recovered, _) = recover(&disk).unwrap();
    assert_eq!(recovered.zxids(), [4, 5, 6]);
    assert_eq!(recovered.nodes, read.nodes);
}
