//! The files that a purge removes and keeps.

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::{Fault, SimDisk};

use crate::recorder::*;

/// Creates logs and snapshots of these zxids, purges, and checks which are left. A name with a `!`
/// is an incomplete snapshot file.
#[track_caller]
fn check(logs: &str, snapshots: &str, retain: usize, kept_logs: &str, kept_snapshots: &str) {
    let disk = SimDisk::new(1);
    for zxid in logs.split_whitespace() {
        disk.put(&log_path(&format!("log.{zxid}")), b"");
    }
    for zxid in snapshots.split_whitespace() {
        let whole = !zxid.ends_with('!');
        let name = format!("snapshot.{}", zxid.trim_end_matches('!'));
        disk.put(&snap_path(&name), if whole { b"ZKSN....\0\0\0\x01/" } else { b"ZKSN" });
    }
    let store = open(&disk);
    let before = disk.files().len();
    let removed = store.purge(retain).unwrap();
    assert_eq!(disk.files().len(), before - removed.len());
    let left = |prefix: &str| {
        let names = disk
            .files()
            .into_iter()
            .filter_map(|path| Some(path.file_name()?.to_str()?.strip_prefix(prefix)?.to_owned()));
        let mut zxids: Vec<String> = names.collect();
        zxids.sort_by_key(|name| i64::from_str_radix(name, 16).unwrap());
        zxids.join(" ")
    };
    assert_eq!((left("log.").as_str(), left("snapshot.").as_str()), (kept_logs, kept_snapshots));
}

#[test]
fn the_log_leading_up_to_the_oldest_kept_snapshot_stays() {
    check("1 5 9 d 11", "0 4 8 c 10", 3, "5 9 d 11", "8 c 10");
    check("1 5 9 d 11", "0 4 9 c 10", 3, "9 d 11", "9 c 10");
    check("1", "0 4 8 c 10", 3, "1", "8 c 10");
    check("20 30", "0 4 8 c 10", 3, "20 30", "8 c 10");
}

#[test]
fn few_snapshots_all_stay() {
    check("1 5", "0 4", 3, "1 5", "0 4");
    check("1 5", "4", 3, "1 5", "4");
    check("1 5 9", "8", 3, "5 9", "8");
    check("1 5 9", "0 8", 0, "5 9", "8");
}

#[test]
fn stumps_do_not_count() {
    check("1 5 9 d 11", "0 4 8! c! 10!", 1, "1 5 9 d 11", "4 8 c 10");
    check("1 5 9 d 11", "0! 4! 8!", 3, "1 5 9 d 11", "0 4 8");
}

#[test]
fn without_any_snapshot_nothing_goes() {
    check("1 5 9", "", 3, "1 5 9", "");
}

#[test]
fn recovery_works_after_a_purge() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    for start in [1, 11, 21, 31] {
        write_snapshot(&store, start - 1).unwrap();
        write_log(&store, start..start + 10);
    }
    assert_eq!(store.purge(2).unwrap().len(), 3);
    let (recorder, recovered) = recover(&disk).unwrap();
    assert_eq!(recovered.last_zxid, Zxid(40));
    assert_eq!(recorder.zxids(), (31..=40).collect::<Vec<i64>>());
}

#[test]
fn a_large_file_goes_in_steps_and_is_never_half_there_under_its_name() {
    let whole = vec![7; 13 << 20];
    for stop_in in 0.. {
        let disk = SimDisk::new(stop_in);
        let store = open(&disk);
        disk.put(&snap_path("snapshot.3"), &whole);
        write_snapshot(&store, 5).unwrap();
        disk.fail_call(disk.calls() + stop_in, Fault::Stop);
        let done = store.purge(1).is_ok();
        disk.crash();
        open(&disk);
        let left = disk.content(&snap_path("snapshot.3"));
        assert!(left.is_err() || left.unwrap() == whole);
        assert!(disk.files().len() <= 2, "{:?}", disk.files());
        if done {
            assert!(stop_in > 5);
            break;
        }
    }
}
