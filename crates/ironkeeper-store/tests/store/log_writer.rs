//! Batches, rolling, full disks and failed syncs.

use std::io::ErrorKind;

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::{LogRange, LogWriter, Store, StoreError, StoreOptions};

use crate::recorder::*;

#[test]
fn a_commit_is_one_write_and_one_sync_for_many_records() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut writer = store.log_writer();
    writer.append(Zxid(1), &set_data(1, b"first")).unwrap();
    writer.commit().unwrap();
    let before = disk.calls();
    for zxid in 2..30 {
        writer.append(Zxid(zxid), &set_data(zxid, b"more")).unwrap();
    }
    assert_eq!(disk.calls(), before);
    assert!(writer.pending_bytes() > 0);
    writer.commit().unwrap();
    assert_eq!(disk.calls(), before + 2);
    assert_eq!(writer.pending_bytes(), 0);
    writer.commit().unwrap();
    assert_eq!(disk.calls(), before + 2);
}

#[test]
fn without_force_sync_a_commit_only_writes() {
    let disk = SimDisk::new(1);
    let options = StoreOptions { force_sync: false, ..small() };
    let store = Store::open(disk.clone(), dirs(), options).unwrap();
    let mut writer = store.log_writer();
    writer.append(Zxid(1), &set_data(1, b"first")).unwrap();
    writer.commit().unwrap();
    let before = disk.calls();
    writer.append(Zxid(2), &set_data(2, b"second")).unwrap();
    writer.commit().unwrap();
    assert_eq!(disk.calls(), before + 1);
}

#[test]
fn a_batch_may_span_files() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    let mut writer = store.log_writer();
    assert_eq!(writer.bytes_in_file(), 0);
    for zxid in 1..=10 {
        if zxid % 4 == 0 {
            writer.roll();
            assert_eq!(writer.bytes_in_file(), 0);
        }
        writer.append(Zxid(zxid), &set_data(zxid, b"data")).unwrap();
    }
    let frame = 13 + set_data(1, b"data").len() as u64;
    assert_eq!(writer.bytes_in_file(), 16 + 3 * frame);
    writer.commit().unwrap();
    assert_eq!(writer.bytes_in_file(), 16 + 3 * frame);
    assert_eq!(writer.path(), Some(log_path("log.8").as_path()));
    disk.crash();
    let logs: Vec<_> = disk.files().into_iter().filter(|path| path.starts_with("/logs")).collect();
    assert_eq!(logs, [log_path("log.1"), log_path("log.4"), log_path("log.8")]);
    let (recorder, _) = recover(&disk).unwrap();
    assert_eq!(recorder.zxids(), (1..=10).collect::<Vec<i64>>());
}

#[test]
fn a_new_writer_begins_a_new_file_and_replaces_one_without_records() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=3);
    disk.put(&log_path("log.4"), b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0");
    write_log(&store, 4..=5);
    let (recorder, _) = recover(&disk).unwrap();
    assert_eq!(recorder.zxids(), [1, 2, 3, 4, 5]);
}

#[test]
fn a_full_disk_delays_a_commit_and_loses_nothing() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        write_snapshot(&store, 0).unwrap();
        write_log(&store, 1..=3);
        let mut writer = store.log_writer();
        disk.set_capacity(4 * 4096);
        let mut zxid = 3;
        // Two files in one batch, so that the second cannot be started.
        for _ in 0..2 {
            for _ in 0..5 {
                zxid += 1;
                writer.append(Zxid(zxid), &set_data(zxid, &[7; 3000])).unwrap();
            }
            writer.roll();
        }
        for _ in 0..3 {
            let error = writer.commit().unwrap_err();
            assert!(error.is_disk_full(), "{error}");
        }
        if seed % 2 == 0 {
            // The process stops instead of waiting for space: recovery finds what was committed and
            // a prefix of the rest.
            disk.crash();
            disk.set_capacity(u64::MAX);
            let (recorder, _) = recover(&disk).unwrap();
            let last = recorder.zxids().len() as i64;
            assert!((3..=13).contains(&last));
            assert_eq!(recorder.zxids(), (1..=last).collect::<Vec<i64>>());
        } else {
            disk.set_capacity(u64::MAX);
            writer.commit().unwrap();
            disk.crash();
            let (recorder, _) = recover(&disk).unwrap();
            assert_eq!(recorder.zxids(), (1..=13).collect::<Vec<i64>>());
        }
    }
}

#[test]
fn records_that_fit_are_taken_when_there_is_no_room_for_zeroes_ahead() {
    let disk = SimDisk::new(1);
    let options = StoreOptions { prealloc_bytes: 1 << 20, ..StoreOptions::default() };
    let store = Store::open(disk.clone(), dirs(), options).unwrap();
    disk.set_capacity(8 * 4096);
    write_log(&store, 1..=100);
}

#[test]
fn a_failed_sync_is_final() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        write_snapshot(&store, 0).unwrap();
        let mut writer = store.log_writer();
        writer.append(Zxid(1), &set_data(1, b"one")).unwrap();
        writer.commit().unwrap();
        writer.append(Zxid(2), &set_data(2, b"two")).unwrap();
        disk.fail_call(disk.calls() + 1, Fault::Error(ErrorKind::Other));
        let error = writer.commit().unwrap_err();
        assert!(!error.is_disk_full() && error.to_string().contains("sync"), "{error}");
        let error = writer.commit().unwrap_err();
        assert!(matches!(error, StoreError::WriterFailed { .. }), "{error}");
        writer.append(Zxid(3), &set_data(3, b"three")).unwrap_err();
        disk.crash();
        let (recorder, _) = recover(&disk).unwrap();
        assert!(matches!(recorder.zxids()[..], [1] | [1, 2]));
    }
}

#[test]
fn reading_goes_on_where_the_writer_is() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_log(&store, 1..=5);
    let mut writer = store.log_writer();
    let append = |writer: &mut LogWriter<SimDisk>, zxid: i64| {
        writer.append(Zxid(zxid), &set_data(zxid, b"data")).unwrap();
        writer.commit().unwrap();
    };
    append(&mut writer, 6);
    let mut records = store.read_log(LogRange::from(Zxid(4))).unwrap();
    let mut read = || {
        let mut zxids = Vec::new();
        while let Some(located) = records.next().unwrap() {
            assert_eq!(located.record.body, set_data(located.record.zxid.0, b"data"));
            zxids.push(located.record.zxid.0);
        }
        zxids
    };
    assert_eq!(read(), [4, 5, 6]);
    append(&mut writer, 7);
    append(&mut writer, 8);
    assert_eq!(read(), [7, 8]);
    assert_eq!(read(), []);
    // Also in files that did not exist when the reading started.
    for zxid in 9..=13 {
        writer.append(Zxid(zxid), &set_data(zxid, b"data")).unwrap();
        writer.roll();
    }
    writer.commit().unwrap();
    assert_eq!(read(), [9, 10, 11, 12, 13]);
    assert!(store.read_log(LogRange::from(Zxid(14))).unwrap().next().unwrap().is_none());
    // From a zxid before the first record.
    let mut all = store.read_log(LogRange::from(Zxid(0))).unwrap();
    assert_eq!(all.next().unwrap().unwrap().record.zxid, Zxid(1));
}

#[test]
fn a_snapshot_that_finds_no_room_is_given_up() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    disk.set_capacity(1 << 20);
    let mut writer = store.snapshot_writer(Zxid(5)).unwrap();
    let error = writer.write(&vec![7; 2 << 20]).unwrap_err();
    assert!(error.is_disk_full(), "{error}");
    writer.finish().unwrap_err();
    assert_eq!(disk.files(), Vec::<std::path::PathBuf>::new());
}
