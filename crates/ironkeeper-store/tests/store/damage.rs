//! Every truncation, every torn write and every flipped bit of a small log and a small snapshot.
//!
//! The rule: recovery returns the longest prefix that an interrupted write explains, or a clear
//! error. It never panics and never skips a record.

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::StoreError;

use crate::recorder::*;

const RECORDS: i64 = 9;

/// Returns a log of smaller and larger records, and the offset at which each of them ends.
fn log() -> (Vec<u8>, Vec<usize>) {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut writer = store.log_writer();
    let mut ends = vec![16];
    for zxid in 1..=RECORDS {
        let data = if zxid == 5 { vec![0x42; 900] } else { vec![zxid as u8; 3 * zxid as usize] };
        writer.append(Zxid(zxid), &set_data(zxid, &data)).unwrap();
        writer.commit().unwrap();
        ends.push(writer.bytes_in_file() as usize);
    }
    let mut bytes = disk.content(&log_path("log.1")).unwrap();
    bytes.truncate(ends[RECORDS as usize] + 1100);
    (bytes, ends)
}

/// Returns a disk with a first snapshot and this log.
fn disk_with(log: &[u8]) -> SimDisk {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    disk.put(&log_path("log.1"), log);
    disk
}

#[track_caller]
fn check_prefix(disk: &SimDisk, records: usize, context: &str) {
    let (recorder, recovered) = recover(disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(recorder.zxids(), (1..=records as i64).collect::<Vec<i64>>(), "{context}");
    assert_eq!(recovered.last_zxid.0, records as i64);
    // The torn tail was removed: the next start finds a clean log.
    let again = recover(disk).unwrap().1;
    assert_eq!((again.last_zxid, again.torn_tail), (recovered.last_zxid, None), "{context}");
}

#[track_caller]
fn check_damage(disk: &SimDisk, file: &str, context: &str) {
    match recover(disk) {
        Err(StoreError::Damaged { file: found, .. }) if found.ends_with(file) => {}
        other => panic!("{context}: {other:?}"),
    }
}

#[test]
fn a_log_cut_anywhere_yields_the_records_before_the_cut() {
    let (log, ends) = log();
    for cut in 0..log.len() {
        let whole = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
        check_prefix(&disk_with(&log[..cut]), whole, &format!("cut at {cut}"));
    }
}

#[test]
fn a_log_that_is_zero_from_anywhere_on_yields_the_records_before() {
    let (log, ends) = log();
    for from in 0..log.len() {
        let mut torn = log.clone();
        torn[from..].fill(0);
        let whole = ends.iter().filter(|end| **end <= from).count().saturating_sub(1);
        check_prefix(&disk_with(&torn), whole, &format!("zero from {from}"));
    }
}

/// ZOOKEEPER-596.
#[test]
fn a_flipped_bit_in_any_record_stops_the_server() {
    let (log, ends) = log();
    for offset in 0..ends[RECORDS as usize] {
        // As in Apache, version and database id are not checked.
        if (4..16).contains(&offset) {
            continue;
        }
        for bit in 0..8 {
            let disk = disk_with(&log);
            disk.flip_bit(&log_path("log.1"), offset as u64, bit).unwrap();
            check_damage(&disk, "log.1", &format!("bit {bit} of {offset}"));
        }
    }
}

#[test]
fn a_flipped_bit_in_the_padding_costs_no_record() {
    let (log, ends) = log();
    for offset in ends[RECORDS as usize]..log.len() {
        let disk = disk_with(&log);
        disk.flip_bit(&log_path("log.1"), offset as u64, 3).unwrap();
        match recover(&disk) {
            Ok((recorder, _)) => assert_eq!(recorder.zxids().len(), RECORDS as usize),
            Err(error) => assert!(error.is_damage(), "{error}"),
        }
    }
}

#[test]
fn any_sectors_of_the_last_write_may_be_missing() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut writer = store.log_writer();
    writer.append(Zxid(1), &set_data(1, &[1; 700])).unwrap();
    writer.append(Zxid(2), &set_data(2, &[2; 100])).unwrap();
    writer.commit().unwrap();
    let synced = writer.bytes_in_file() as usize;
    for zxid in 3..=9 {
        writer.append(Zxid(zxid), &set_data(zxid, &vec![zxid as u8; 73 * zxid as usize])).unwrap();
    }
    writer.commit().unwrap();
    let end = writer.bytes_in_file() as usize;
    let whole = disk.content(&log_path("log.1")).unwrap();
    let sectors: Vec<usize> = (synced / 512..=(end - 1) / 512).collect();
    assert!((6..=12).contains(&sectors.len()), "{sectors:?}");
    for missing in 0..1u32 << sectors.len() {
        let mut torn = whole.clone();
        for (index, sector) in sectors.iter().enumerate() {
            if missing & 1 << index != 0 {
                torn[(sector * 512).max(synced)..(sector + 1) * 512].fill(0);
            }
        }
        let disk = disk_with(&torn);
        let (recorder, _) = recover(&disk).unwrap_or_else(|error| panic!("{missing:b}: {error}"));
        let last = recorder.zxids().len() as i64;
        assert!(last >= 2 && (last == 9) == (missing == 0), "{missing:b}: {last}");
        assert_eq!(recorder.zxids(), (1..=last).collect::<Vec<i64>>());
        // The next process continues in a new file.
        write_log(&open(&disk), last + 1..=last + 2);
        assert_eq!(recover(&disk).unwrap().1.last_zxid.0, last + 2);
    }
}

/// Returns a disk with two log files: the first as given, the second starting with `next`.
fn two_files(first: &[u8], next: i64) -> SimDisk {
    let disk = disk_with(first);
    write_log(&open(&disk), next..next + 2);
    disk
}

#[test]
fn a_torn_older_file_is_fine_if_the_next_one_goes_on_where_it_ends() {
    // Apache leaves this state when it is killed during a write and restarted.
    let (log, ends) = log();
    for cut in ends[4] + 1..ends[5] {
        let (recorder, recovered) = recover(&two_files(&log[..cut], 5)).unwrap();
        assert_eq!(recorder.zxids(), [1, 2, 3, 4, 5, 6]);
        assert_eq!(recovered.torn_tail, None);
        let error = recover(&two_files(&log[..cut], 6)).unwrap_err();
        assert!(
            matches!(error, StoreError::Gap { before: Zxid(4), found: Zxid(6), .. }),
            "{error}"
        );
        // The first transaction of a new epoch may follow any other.
        recover(&two_files(&log[..cut], 1 << 32 | 1)).unwrap();
        recover(&two_files(&log[..cut], 1 << 32 | 2)).unwrap_err();
    }
}

#[test]
fn a_damaged_older_file_stops_the_server() {
    let (log, ends) = log();
    for offset in 16..ends[RECORDS as usize] {
        let disk = two_files(&log, RECORDS + 1);
        disk.flip_bit(&log_path("log.1"), offset as u64, 6).unwrap();
        check_damage(&disk, "log.1", &format!("bit 6 of {offset}"));
    }
    // Also a record that the newer file repeats.
    let disk = two_files(&log[..ends[5]], 6);
    disk.flip_bit(&log_path("log.1"), ends[4] as u64 + 30, 0).unwrap();
    check_damage(&disk, "log.1", "the last record of the older file");
}

#[test]
fn a_missing_file_is_noticed() {
    let (log, _) = log();
    let disk = two_files(&log, RECORDS + 1);
    write_log(&open(&disk), RECORDS + 3..=RECORDS + 5);
    assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(RECORDS + 5));
    for missing in ["log.1", "log.a"] {
        let rest = SimDisk::new(1);
        for path in disk.files().iter().filter(|path| !path.ends_with(missing)) {
            rest.put(path, &disk.content(path).unwrap());
        }
        let error = recover(&rest).unwrap_err();
        assert!(matches!(error, StoreError::Gap { .. }), "{missing}: {error}");
    }
}

#[test]
fn files_without_records() {
    let (log, _) = log();
    // The newest file may be empty, or have only a header.
    for newest in [&b""[..], b"ZKLG", b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0", &[0; 5000]] {
        let disk = disk_with(&log);
        disk.put(&log_path("log.a"), newest);
        check_prefix(&disk, RECORDS as usize, &format!("{} bytes", newest.len()));
        let header_only = newest.len() == 16;
        assert_eq!(disk.files().contains(&log_path("log.a")), header_only);
    }
    // An older file must have at least a header.
    for older in [&b""[..], b"ZKLG", &[0; 5000]] {
        let disk = disk_with(&log);
        disk.put(&log_path("log.a"), older);
        write_log(&open(&disk), 0xb..=0xc);
        check_damage(&disk, "log.a", "an older file without a header");
    }
    // A file of another kind.
    let disk = disk_with(&log);
    disk.put(&log_path("log.a"), b"a file of somebody else's");
    check_damage(&disk, "log.a", "another kind of file");
}

#[test]
fn zxids_out_of_order_are_not_passed_over() {
    for zxids in [[1, 3], [1, 1], [2, 1], [2, 3]] {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        write_snapshot(&store, 0).unwrap();
        write_log(&store, zxids);
        let error = recover(&disk).unwrap_err();
        assert!(matches!(error, StoreError::Gap { .. }), "{zxids:?}: {error}");
    }
    // Records that a snapshot covers may be missing, as after a leader has sent a snapshot.
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, [1, 2]);
    write_snapshot(&store, 100).unwrap();
    write_log(&store, [101, 102]);
    assert_eq!(recover(&disk).unwrap().0.zxids(), [101, 102]);
}

#[test]
fn a_record_with_a_right_checksum_and_no_sense_is_named() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    let mut writer = store.log_writer();
    let mut body = set_data(1, b"data");
    body[31] = 99;
    writer.append(Zxid(1), &body).unwrap();
    writer.commit().unwrap();
    let error = recover(&disk).unwrap_err();
    assert!(error.is_damage() && error.to_string().contains("offset 16"), "{error}");
}

/// Returns a disk with two snapshots, and the log between and after them.
fn two_snapshots() -> SimDisk {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=5);
    write_snapshot(&store, 5).unwrap();
    write_log(&store, 6..=8);
    disk
}

#[test]
fn a_flipped_bit_in_a_snapshot_leads_to_the_one_before() {
    let path = snap_path("snapshot.5");
    let len = two_snapshots().content(&path).unwrap().len();
    for offset in 0..len {
        for bit in [0, 5, 7] {
            let disk = two_snapshots();
            disk.flip_bit(&path, offset as u64, bit).unwrap();
            let (recorder, recovered) = recover(&disk).unwrap();
            assert_eq!(recorder.snapshot, Some(Zxid(0)), "bit {bit} of {offset}");
            assert_eq!(recorder.nodes.len(), 2);
            assert_eq!(recorder.zxids(), [1, 2, 3, 4, 5, 6, 7, 8]);
            assert_eq!(recovered.refused_snapshots.len(), 1);
            assert_eq!(recovered.refused_snapshots[0].0, path);
        }
    }
}

#[test]
fn a_cut_snapshot_leads_to_the_one_before() {
    let path = snap_path("snapshot.5");
    let whole = two_snapshots().content(&path).unwrap();
    // A file that ends after a seal is a complete snapshot of an older version.
    let seals = [whole.len() - 21 - 33, whole.len() - 21];
    for cut in 0..whole.len() {
        let disk = two_snapshots();
        disk.put(&path, &whole[..cut]);
        let (recorder, recovered) = recover(&disk).unwrap();
        let base = if seals.contains(&cut) { 5 } else { 0 };
        assert_eq!(recorder.snapshot, Some(Zxid(base)), "cut at {cut}");
        assert_eq!(recovered.last_zxid, Zxid(8));
    }
}

#[test]
fn a_lost_snapshot_that_no_log_replaces_stops_the_server() {
    // As after a leader has sent a snapshot: the log does not reach its zxid.
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=5);
    write_snapshot(&store, 100).unwrap();
    disk.flip_bit(&snap_path("snapshot.64"), 20, 1).unwrap();
    let error = recover(&disk).unwrap_err();
    assert!(matches!(error, StoreError::SnapshotLost { reached: Zxid(5), .. }), "{error}");
}

#[test]
fn compressed_snapshots_survive_no_damage_either() {
    for (name, whole) in [
        ("snapshot.1b.gz", &include_bytes!("../data/apache-3.9.5/snapshot.1b.gz")[..]),
        ("snapshot.1b.snappy", &include_bytes!("../data/apache-3.9.5/snapshot.1b.snappy")[..]),
    ] {
        let disk = SimDisk::new(1);
        disk.put(&snap_path(name), whole);
        let (expected, _) = recover(&disk).unwrap();
        for offset in 0..whole.len() {
            for bit in [0, 3, 7] {
                disk.flip_bit(&snap_path(name), offset as u64, bit).unwrap();
                match recover(&disk) {
                    // Some bits have no effect: the time in a header, or the offset of a copy
                    // within equal runs of zeroes.
                    Ok((found, _)) => assert_eq!(found, expected, "{name}: bit {bit} of {offset}"),
                    Err(error) => assert!(error.is_damage(), "{error}"),
                }
                disk.flip_bit(&snap_path(name), offset as u64, bit).unwrap();
            }
        }
        for cut in 0..whole.len() - 8 {
            let disk = SimDisk::new(1);
            disk.put(&snap_path(name), &whole[..cut]);
            recover(&disk).unwrap_err();
        }
    }
}

#[test]
fn lengths_that_a_file_merely_claims_are_not_believed() {
    let disk = SimDisk::new(1);
    let mut bytes = b"ZKSN\0\0\0\x02\xff\xff\xff\xff\xff\xff\xff\xff".to_vec();
    // Two thousand million sessions, then ACLs, then a path.
    for claims in 0..3 {
        let mut bytes = bytes.clone();
        bytes.extend(std::iter::repeat_n([0; 4], claims).flatten());
        bytes.extend([0x7f, 0xff, 0xff, 0xff]);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 1, b'/']);
        disk.put(&snap_path("snapshot.7"), &bytes);
        let error = recover(&disk).unwrap_err();
        assert!(error.is_damage(), "{error}");
    }
    bytes.clear();
    bytes.extend(b"ZKLG\0\0\0\x02\0\0\0\0\0\0\0\0");
    bytes.extend([0, 0, 0, 0, 1, 2, 3, 4, 0x7f, 0xff, 0xff, 0xff, 1, 2, 3]);
    check_damage(&disk_with(&bytes), "log.1", "a record of two gigabytes");
}

#[test]
fn a_record_whose_head_is_destroyed_is_no_unfinished_write() {
    let (log, ends) = log();
    for record in 0..RECORDS as usize {
        let mut bytes = log.clone();
        // Checksum, length, and the start of the body.
        for byte in &mut bytes[ends[record]..ends[record] + 16] {
            *byte ^= 0x55;
        }
        check_damage(&disk_with(&bytes), "log.1", &format!("record {record}"));
    }
}

#[test]
fn sixteen_damaged_bytes_before_an_intact_record_are_no_unfinished_write() {
    let (log, ends) = log();
    for offset in ends[0]..ends[RECORDS as usize - 1] - 16 {
        let mut bytes = log.clone();
        for byte in &mut bytes[offset..offset + 16] {
            *byte ^= 0x55;
        }
        check_damage(&disk_with(&bytes), "log.1", &format!("at {offset}"));
    }
}

#[test]
fn a_wrong_length_that_reaches_past_the_last_record_is_no_unfinished_write() {
    let (log, ends) = log();
    let end = ends[RECORDS as usize];
    for start in &ends[..RECORDS as usize - 1] {
        for past in [0, 1, 100, 1 << 20, 63 << 20] {
            let mut bytes = log.clone();
            let len = (end - start - 13 + past) as i32;
            bytes[start + 8..start + 12].copy_from_slice(&len.to_be_bytes());
            // The body is damaged as well, so the checksum matches no shorter length.
            bytes[start + 14] ^= 1;
            check_damage(&disk_with(&bytes), "log.1", &format!("{len} at {start}"));
        }
    }
}

#[test]
fn no_mutilation_makes_the_readers_panic() {
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let mut draw = move |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 11) as usize % below
    };
    let log = log().0;
    let snapshot = include_bytes!("../data/apache-3.9.5/snapshot.1a");
    let gz = include_bytes!("../data/apache-3.9.5/snapshot.1b.gz");
    let snappy = include_bytes!("../data/apache-3.9.5/snapshot.1b.snappy");
    let files: [(_, &[u8]); 4] = [
        (log_path("log.1"), &log),
        (snap_path("snapshot.1a"), snapshot),
        (snap_path("snapshot.1b.gz"), gz),
        (snap_path("snapshot.1b.snappy"), snappy),
    ];
    for round in 0..4000 {
        let (path, whole) = &files[round % files.len()];
        let mut bytes = whole.to_vec();
        for _ in 0..=draw(6) {
            let from = draw(bytes.len());
            let to = (from + 1 + draw(40)).min(bytes.len());
            match draw(5) {
                0 => bytes[from..to].fill(0),
                1 => bytes[from..to].fill(0xff),
                2 => bytes[from] = draw(256) as u8,
                3 => drop(bytes.drain(from..to)),
                _ => bytes.copy_within(from..to, 0),
            }
            bytes.push(0);
        }
        let disk = SimDisk::new(1);
        write_snapshot(&open(&disk), 0).unwrap();
        disk.put(path, &bytes);
        if let Err(error) = recover(&disk) {
            assert!(error.is_damage(), "{error}");
        }
    }
}

#[test]
fn large_records_come_back() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 0).unwrap();
    let mut writer = store.log_writer();
    for (zxid, size) in [(1, 10), (2, 3 << 20), (3, 256 << 10), (4, 1)] {
        writer.append(Zxid(zxid), &set_data(zxid, &vec![zxid as u8; size])).unwrap();
    }
    writer.commit().unwrap();
    let (recorder, _) = recover(&disk).unwrap();
    assert_eq!(recorder.bodies[1], set_data(2, &[2; 3 << 20]));
    assert_eq!(recorder.zxids(), [1, 2, 3, 4]);
}

#[test]
fn a_refusal_with_the_zxid_before_it_is_passed_over_and_nothing_else_is() {
    // As Apache 3.9 writes for a request that it cannot decode.
    let repeated = |again: &[u8]| {
        let disk = SimDisk::new(1);
        let store = open(&disk);
        write_snapshot(&store, 0).unwrap();
        let mut writer = store.log_writer();
        for (zxid, body) in
            [(1, &set_data(1, b"one")[..]), (2, &set_data(2, b"two")), (2, again), (3, &refusal(3))]
        {
            writer.append(Zxid(zxid), body).unwrap();
            writer.commit().unwrap();
        }
        drop(writer);
        drop(store);
        recover(&disk)
    };
    let (recorder, recovered) = repeated(&refusal(2)).unwrap();
    assert_eq!((recorder.zxids(), recovered.last_zxid), (vec![1, 2, 3], Zxid(3)));
    assert_eq!(recorder.bodies[1], set_data(2, b"two"));
    let refused = repeated(&set_data(2, b"two")).unwrap_err();
    assert!(matches!(refused, StoreError::Gap { .. }), "{refused}");
}
