//! Copies of the history of a standalone server, before it joins an ensemble.

use std::path::Path;

use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::disk::Disk;
use ironkeeper_store::{Dirs, Store, StoreOptions};

fn store(disk: &SimDisk) -> Store<SimDisk> {
    Store::open(disk.clone(), Dirs::single("/data"), StoreOptions::default()).unwrap()
}

/// Returns a disk with these files in the data directory.
fn disk_with(files: &[(&str, &str)]) -> SimDisk {
    let disk = SimDisk::new(7);
    drop(store(&disk));
    for (name, content) in files {
        disk.put(&Path::new("/data/version-2").join(name), content.as_bytes());
    }
    disk
}

fn content(disk: &SimDisk, path: &str) -> String {
    String::from_utf8(disk.content(Path::new(path)).unwrap()).unwrap()
}

#[test]
fn the_history_of_a_standalone_server_is_copied_whole() {
    let disk = disk_with(&[("snapshot.0", "nothing"), ("log.1", "one"), ("snapshot.5", "five")]);
    assert!(store(&disk).has_standalone_history().unwrap());
    let dir = store(&disk).set_aside().unwrap();
    assert_eq!(dir, Path::new("/data/before-ensemble.1"));
    assert_eq!(content(&disk, "/data/before-ensemble.1/version-2/snapshot.0"), "nothing");
    assert_eq!(content(&disk, "/data/before-ensemble.1/version-2/log.1"), "one");
    assert_eq!(content(&disk, "/data/before-ensemble.1/version-2/snapshot.5"), "five");
    assert!(!disk.exists(Path::new("/data/before-ensemble.1/unfinished")).unwrap());
    // The originals are unchanged, and the copies survive a crash.
    assert_eq!(content(&disk, "/data/version-2/log.1"), "one");
    disk.crash();
    assert_eq!(content(&disk, "/data/before-ensemble.1/version-2/log.1"), "one");
}

#[test]
fn a_second_one_does_not_take_the_place_of_the_first() {
    let disk = disk_with(&[("log.1", "one")]);
    store(&disk).set_aside().unwrap();
    disk.put(Path::new("/data/version-2/log.1"), b"another");
    let dir = store(&disk).set_aside().unwrap();
    assert_eq!(dir, Path::new("/data/before-ensemble.2"));
    assert_eq!(content(&disk, "/data/before-ensemble.1/version-2/log.1"), "one");
    assert_eq!(content(&disk, "/data/before-ensemble.2/version-2/log.1"), "another");
}

#[test]
fn no_history_and_that_of_an_ensemble_are_not_of_a_standalone_server() {
    for files in [
        &[][..],
        &[("snapshot.0", "nothing")],
        &[("snapshot.0", "nothing"), ("log.100000001", "of epoch 1")],
        &[("log.1", "one"), ("log.100000001", "of epoch 1")],
        // Adopted from a leader that had been standalone.
        &[("snapshot.5", "five"), ("currentEpoch", "1")],
    ] {
        assert!(!store(&disk_with(files)).has_standalone_history().unwrap(), "{files:?}");
    }
}

#[test]
fn a_crash_at_any_moment_leaves_the_history_and_one_whole_copy_in_the_end() {
    let files = [("snapshot.0", "nothing"), ("log.1", "one"), ("currentEpoch", "0")];
    for call in 0.. {
        let disk = disk_with(&files);
        let before = store(&disk);
        disk.fail_call(disk.calls() + call, Fault::Stop);
        if before.set_aside().is_ok() {
            assert!(call > 10, "{call}");
            break;
        }
        drop(before);
        disk.crash();
        assert_eq!(content(&disk, "/data/version-2/log.1"), "one");
        let after = store(&disk);
        assert!(after.has_standalone_history().unwrap());
        let dir = after.set_aside().unwrap();
        let copy = dir.join("version-2/log.1");
        assert_eq!(content(&disk, copy.to_str().unwrap()), "one");
    }
}
