//! The formats, byte by byte, compared with files captured from Apache ZooKeeper 3.9.5.

use std::path::Path;

use ironkeeper_proto::Zxid;
use ironkeeper_proto::snapshot_record::SnapshotDigest;
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::{Compression, Store, StoreOptions};

use crate::recorder::*;

/// The first two records of a log: header, createSession, create /a0.
const LOG: &str = "
    5a4b 4c47 0000 0002 0000 0000 0000 0000
    0000 0000 b636 0a81 0000 0030 0100 000e
    4e06 0000 0000 0000 0000 0001 0000 0001
    0000 01a1 e057 d4f5 ffff fff6 0000 2710
    0000 0002 0000 0000 51c6 d660 4200 0000
    00dd c50c a100 0000 5c01 0000 0e4e 0600
    0000 0000 0100 0000 0100 0000 0200 0001
    a1e0 57d5 1500 0000 0100 0000 032f 6130
    0000 0005 6461 7461 3000 0000 0100 0000
    1f00 0000 0577 6f72 6c64 0000 0006 616e
    796f 6e65 0000 0000 0100 0000 0200 0000
    016c e658 5842";

fn from_hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

#[test]
fn the_log_has_apaches_bytes_and_length() {
    let golden = from_hex(LOG);
    let disk = SimDisk::new(1);
    let store = Store::open(disk.clone(), dirs(), StoreOptions::default()).unwrap();
    let mut writer = store.log_writer();
    writer.append(Zxid(0x1_0000_0001), &golden[28..28 + 0x30]).unwrap();
    writer.append(Zxid(0x1_0000_0002), &golden[89..89 + 0x5c]).unwrap();
    writer.commit().unwrap();
    let bytes = disk.content(&log_path("log.100000001")).unwrap();
    assert_eq!(bytes.len(), 0x400_0010);
    assert_eq!(bytes[..golden.len()], golden);
    assert!(bytes[golden.len()..].iter().all(|byte| *byte == 0));
}

#[test]
fn a_log_file_gets_a_step_longer_when_less_than_a_page_is_left() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut writer = store.log_writer();
    let len = |disk: &SimDisk| disk.content(&log_path("log.1")).unwrap().len();
    let mut zxid = 0;
    let mut append = |data: &[u8]| {
        zxid += 1;
        writer.append(Zxid(zxid), &set_data(zxid, data)).unwrap();
        writer.commit().unwrap();
        writer.bytes_in_file()
    };
    assert!(append(&[1; 4000]) < 4096 + 16);
    assert_eq!(len(&disk), 16 + 8192);
    append(&[1; 20]);
    assert_eq!(len(&disk), 16 + 2 * 8192);
    append(&[1; 100_000]);
    assert_eq!(len(&disk), 16 + 14 * 8192);
}

/// The end of a snapshot, from the last node's pzxid on: seals, digest, last zxid. The checksums
/// depend on all bytes before them, so the captured file is rebuilt with the writer.
#[test]
fn a_snapshot_that_is_read_and_written_again_has_the_same_bytes() {
    let golden = include_bytes!("../data/apache-3.9.5/snapshot.1a");
    let sealed = golden.len() - 13 - 21 - 33;
    let end_of_nodes = sealed - 5;
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut writer = store.snapshot_writer(Zxid(0x1a)).unwrap();
    // In pieces of odd size, so that seals are at arbitrary offsets.
    for piece in golden[..end_of_nodes].chunks(7) {
        writer.write(piece).unwrap();
    }
    let digest = &golden[sealed + 13..];
    let digest = SnapshotDigest {
        zxid: Zxid(i64::from_be_bytes(digest[..8].try_into().unwrap())),
        version: 2,
        digest: u64::from_be_bytes(digest[12..20].try_into().unwrap()),
    };
    let path = writer.finish_with(digest, Zxid(0x1a)).unwrap();
    assert_eq!(path, snap_path("snapshot.1a"));
    assert_eq!(disk.content(&path).unwrap(), golden);
    assert_eq!(disk.files().iter().filter(|path| path.extension().is_some()).count(), 1);
}

#[test]
fn sections_are_written_as_the_options_say_and_all_combinations_are_read() {
    for (write_digest, write_last_zxid) in
        [(false, false), (false, true), (true, false), (true, true)]
    {
        let disk = SimDisk::new(1);
        let options = StoreOptions { write_digest, write_last_zxid, ..small() };
        let store = Store::open(disk.clone(), dirs(), options).unwrap();
        write_snapshot(&store, 5).unwrap();
        let (recorder, recovered) = recover(&disk).unwrap();
        assert_eq!(recovered.last_zxid, Zxid(5));
        assert_eq!(recorder.digest.is_some(), write_digest);
        assert_eq!(recorder.nodes.len(), 2);
    }
}

#[test]
fn compressed_snapshots_come_back() {
    for (compression, name) in [
        (Compression::None, "snapshot.5"),
        (Compression::Gzip, "snapshot.5.gz"),
        (Compression::Snappy, "snapshot.5.snappy"),
    ] {
        let disk = SimDisk::new(1);
        let options = StoreOptions { compression, ..small() };
        let store = Store::open(disk.clone(), dirs(), options).unwrap();
        // More than one piece and many blocks.
        let data: Vec<u8> =
            (0..700_000u32).map(|index| (index.wrapping_mul(index) >> 7) as u8).collect();
        let mut writer = store.snapshot_writer(Zxid(5)).unwrap();
        writer.write(&tree(&data)).unwrap();
        let digest = SnapshotDigest { zxid: Zxid(5), version: 2, digest: 9 };
        assert_eq!(writer.finish_with(digest, Zxid(5)).unwrap(), snap_path(name));
        let (recorder, _) = recover(&disk).unwrap();
        assert_eq!(recorder.nodes[1], ("/n".to_owned(), Some(data)));
        assert_eq!(recorder.digest, Some(digest));
    }
}

#[test]
fn a_snapshot_given_up_leaves_nothing_behind() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    let mut writer = store.snapshot_writer(Zxid(5)).unwrap();
    writer.write(&[1; 1 << 20]).unwrap();
    drop(writer);
    assert!(disk.files().iter().all(|path| !path.starts_with(Path::new("/snaps/version-2/snap"))));
    assert_eq!(disk.files().len(), 0, "{:?}", disk.files());
}

#[test]
fn a_field_above_the_limit_is_refused_with_a_hint() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 5).unwrap();
    let error = recover_with(&disk, StoreOptions { field_max: 4, ..small() }).unwrap_err();
    assert!(error.to_string().contains("jute.maxbuffer"), "{error}");
}
