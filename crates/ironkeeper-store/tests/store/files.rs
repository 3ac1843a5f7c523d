//! Directories and the files in them.

use std::path::Path;

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::disk::{Disk, RealDisk};
use ironkeeper_store::{Dirs, Store, StoreError, StoreOptions};

use crate::recorder::*;

#[test]
fn missing_directories_are_made_only_with_leave() {
    let options = StoreOptions { auto_create: false, ..small() };
    let error = Store::open(SimDisk::new(1), dirs(), options).unwrap_err();
    assert!(matches!(error, StoreError::MissingDirectory { .. }), "{error}");
}

#[test]
fn new_directories_survive_a_crash() {
    for seed in 0..20 {
        let disk = SimDisk::new(seed);
        open(&disk);
        disk.crash();
        assert!(disk.exists(Path::new("/snaps/version-2")).unwrap());
        assert!(disk.exists(Path::new("/logs/version-2")).unwrap());
    }
}

#[test]
fn swapped_directories_are_noticed() {
    for (path, part) in [(snap_path("log.1"), "log.1"), (log_path("snapshot.0"), "snapshot.0")] {
        let disk = SimDisk::new(1);
        disk.put(&path, b"");
        let error = Store::open(disk, dirs(), small()).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("swapped"), "{error}");
    }
    // A single directory may contain both.
    let disk = SimDisk::new(1);
    disk.put("/data/version-2/log.1".as_ref(), b"");
    disk.put("/data/version-2/snapshot.0".as_ref(), b"");
    Store::open(disk, Dirs::single("/data"), small()).unwrap();
}

#[test]
fn unfinished_snapshots_are_cleared_away_and_never_loaded() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 5).unwrap();
    let whole = disk.content(&snap_path("snapshot.5")).unwrap();
    disk.put(&snap_path("snapshot.9.tmp"), &whole);
    disk.put(&snap_path("snapshot.9.gz.tmp"), b"");
    disk.put(&snap_path("currentEpoch.tmp"), b"3");
    let (_, recovered) = recover(&disk).unwrap();
    assert_eq!(recovered.last_zxid, Zxid(5));
    assert_eq!(disk.files(), [snap_path("currentEpoch.tmp"), snap_path("snapshot.5")]);
}

#[test]
fn a_leaders_snapshot_is_kept_apart_until_it_is_finished() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    write_snapshot(&store, 5).unwrap();
    // A snapshot of this server at the same zxid does not conflict with it.
    let incoming = store.incoming_snapshot_writer(Zxid(9)).unwrap();
    write_snapshot(&store, 9).unwrap();
    assert!(disk.exists(&snap_path("incoming.0.snapshot.9")).unwrap());
    drop(incoming);
    assert_eq!(disk.files(), [snap_path("snapshot.5"), snap_path("snapshot.9")]);
    // An incoming snapshot that a crash interrupted is deleted.
    disk.put(&snap_path("incoming.7.snapshot.a"), b"ZKSN");
    let (_, recovered) = recover(&disk).unwrap();
    assert_eq!(recovered.last_zxid, Zxid(9));
    assert_eq!(disk.files(), [snap_path("snapshot.5"), snap_path("snapshot.9")]);
}

#[test]
fn sizes_are_lengths_of_files() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    disk.put(&snap_path("snapshot.0"), &[1; 478]);
    disk.put(&snap_path("currentEpoch"), b"1");
    disk.put(&log_path("old/log.1"), &[0; 100]);
    disk.put(&log_path("log.5"), &[0; 1000]);
    assert_eq!(store.dir_sizes().unwrap(), (479, 1100));
}

#[test]
fn one_server_at_a_time() {
    let home = tempfile::tempdir().unwrap();
    let open = || Store::open(RealDisk, Dirs::single(home.path()), StoreOptions::default());
    let first = open().unwrap();
    let error = open().unwrap_err();
    let pid = format!("another server (pid {}) uses", std::process::id());
    assert!(error.to_string().contains(&pid), "{error}");
    let clone = first.clone();
    drop(first);
    open().unwrap_err();
    drop(clone);
    open().unwrap();
}

#[test]
fn a_removed_lock_file_lets_no_second_server_in() {
    let home = tempfile::tempdir().unwrap();
    let at = |snap: &str, log: &str| {
        let dirs = Dirs { snap_dir: home.path().join(snap), log_dir: home.path().join(log) };
        Store::open(RealDisk, dirs, StoreOptions::default())
    };
    let first = at("snap", "log").unwrap();
    for dir in ["snap", "log"] {
        std::fs::remove_file(home.path().join(dir).join("version-2/ironkeeper.lock")).unwrap();
    }
    for (snap, log) in [("snap", "log"), ("snap", "other"), ("other", "log")] {
        let error = at(snap, log).unwrap_err();
        assert!(matches!(error, StoreError::Locked { .. }), "{snap}, {log}: {error}");
    }
    drop(first);
    at("snap", "log").unwrap();
}

#[test]
fn everything_that_is_created_is_for_its_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    let home = tempfile::tempdir().unwrap();
    let dirs = Dirs { snap_dir: home.path().join("a"), log_dir: home.path().join("b") };
    let store = Store::open(RealDisk, dirs, StoreOptions::default()).unwrap();
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=3);
    store.write_accepted_epoch(ironkeeper_proto::Epoch(1)).unwrap();
    let mut left = vec![home.path().join("a"), home.path().join("b")];
    let mut names = Vec::new();
    while let Some(path) = left.pop() {
        let metadata = std::fs::metadata(&path).unwrap();
        let expected = if metadata.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(metadata.permissions().mode() & 0o777, expected, "{}", path.display());
        if metadata.is_dir() {
            left.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            names.push(path.file_name().unwrap().to_str().unwrap().to_owned());
        }
    }
    names.sort();
    names.dedup();
    assert_eq!(names, ["acceptedEpoch", "ironkeeper.lock", "log.1", "snapshot.0"]);
}

#[test]
fn a_version_2_directory_is_no_data_directory() {
    let home = tempfile::tempdir().unwrap();
    let open = |dir| Store::open(RealDisk, Dirs::single(dir), StoreOptions::default());
    let store = open(home.path().to_owned()).unwrap();
    let version_2 = home.path().join("version-2");
    open(version_2.clone()).expect("an empty directory may have any name");
    std::fs::remove_dir_all(version_2.join("version-2")).unwrap();
    write_snapshot(&store, 0).unwrap();
    drop(store);
    let error = open(version_2.clone()).unwrap_err().to_string();
    assert!(error.contains("Set dataDir to its parent"), "{error}");
    assert!(error.ends_with(&home.path().display().to_string()), "{error}");
    assert!(!version_2.join("version-2").exists(), "nothing was created");
    let dirs = Dirs { snap_dir: home.path().join("new"), log_dir: version_2 };
    let error = Store::open(RealDisk, dirs, StoreOptions::default()).unwrap_err().to_string();
    assert!(error.contains("Set dataLogDir to its parent"), "{error}");
}

#[test]
fn the_real_disk_keeps_a_log_and_a_snapshot() {
    let home = tempfile::tempdir().unwrap();
    let dirs = Dirs { snap_dir: home.path().join("a"), log_dir: home.path().join("b") };
    let options = StoreOptions { prealloc_bytes: 1 << 20, ..StoreOptions::default() };
    let store = Store::open(RealDisk, dirs.clone(), options.clone()).unwrap();
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=300);
    drop(store);
    let store = Store::open(RealDisk, dirs, options).unwrap();
    let mut recorder = Recorder::default();
    let recovered = store.recover(&mut recorder).unwrap();
    assert_eq!(recovered.last_zxid, Zxid(300));
    assert_eq!(recorder.zxids(), (1..=300).collect::<Vec<i64>>());
    assert_eq!(store.dir_sizes().unwrap().1, 16 + (1 << 20));
    let (snap_free, log_free) = store.free_bytes().unwrap();
    assert!(snap_free > 0 && log_free > 0);
}
