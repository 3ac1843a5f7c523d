//! The part of the log that a learner needs that is behind.

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::LogTail;

use crate::recorder::*;

/// Reads from a log of 11 to 15 and of epoch 2 that follows a snapshot at 10.
#[track_caller]
fn check(after: i64, until: i64, expected: Option<&[i64]>) {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 10).unwrap();
    write_log(&store, 11..=13);
    write_log(&store, [14, 15, 2 << 32 | 1, 2 << 32 | 2]);
    let tail = store.read_tail(Zxid(after), u64::MAX, || Zxid(until)).unwrap();
    let zxids: Vec<i64> = tail.txns.iter().map(|(zxid, _)| zxid.0).collect();
    assert_eq!(tail.found.then_some(&zxids[..]), expected, "after {after}");
    for (zxid, body) in &tail.txns {
        assert_eq!(*body, set_data(zxid.0, b"data"));
    }
}

#[test]
fn what_follows_a_transaction_is_read_over_files_and_epochs() {
    check(12, i64::MAX, Some(&[13, 14, 15, 2 << 32 | 1, 2 << 32 | 2]));
    check(15, 2 << 32 | 1, Some(&[2 << 32 | 1]));
    check(2 << 32 | 2, i64::MAX, Some(&[]));
}

#[test]
fn the_snapshot_that_the_log_builds_on_is_a_beginning_too() {
    check(10, 12, Some(&[11, 12]));
}

#[test]
fn what_is_not_in_the_log_is_not_found() {
    for after in [9, 16, 1 << 32, 2 << 32, 2 << 32 | 3] {
        check(after, i64::MAX, None);
    }
}

#[test]
fn a_tail_that_is_too_long_is_none() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=9);
    let bytes_max = 3 * set_data(1, b"data").len() as u64;
    let read = |after| store.read_tail(Zxid(after), bytes_max, || Zxid(9)).unwrap().found;
    assert!(read(6) && !read(5));
}

/// A purge truncates a large file in steps. Here it does so while the file is read, and the next
/// file starts with the first transaction of a later epoch, which may follow any other.
#[test]
fn what_is_read_while_a_purge_removes_it_is_none() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    let data = vec![7; 64 << 10];
    let mut writer = store.log_writer();
    for zxid in 1..=160 {
        writer.append(Zxid(zxid), &set_data(zxid, &data)).unwrap();
    }
    writer.commit().unwrap();
    drop(writer);
    let second = 1 << 32 | 1;
    write_log(&store, [second]);
    write_snapshot(&store, second).unwrap();
    let read = |purge_at: i64| {
        let mut asked = 0;
        let tail = store.read_tail(Zxid(1), u64::MAX, || {
            asked += 1;
            if asked == purge_at {
                assert!(!store.purge(1).unwrap().is_empty());
            }
            Zxid(i64::MAX)
        });
        tail.unwrap()
    };
    let whole = read(i64::MAX);
    assert_eq!((whole.found, whole.txns.len()), (true, 160));
    assert_eq!(read(10), LogTail::default());
}
