//! An empty directory, and when it becomes a new database.

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::SimDisk;
use ironkeeper_store::StoreOptions;
use ironkeeper_store::disk::Disk;

use crate::recorder::*;

#[test]
fn an_empty_directory_is_the_beginning_of_a_database() {
    let disk = SimDisk::new(1);
    let (recorder, recovered) = recover(&disk).unwrap();
    assert_eq!(recorder, Recorder::default());
    assert!(recovered.fresh);
    assert_eq!(recovered.last_zxid, Zxid(0));
}

/// ZOOKEEPER-3781.
#[test]
fn without_leave_to_make_one_there_is_no_database() {
    let disk = SimDisk::new(1);
    let careful = || StoreOptions { db_auto_create: false, ..small() };
    let (_, recovered) = recover_with(&disk, careful()).unwrap();
    assert_eq!((recovered.fresh, recovered.last_zxid), (true, Zxid(-1)));
    // The `initialize` file permits it once.
    disk.put("/logs/initialize".as_ref(), b"");
    let (_, recovered) = recover_with(&disk, careful()).unwrap();
    assert_eq!((recovered.fresh, recovered.last_zxid), (true, Zxid(0)));
    assert!(!disk.exists("/logs/initialize".as_ref()).unwrap());
}

#[test]
fn a_stump_of_the_first_snapshot_held_nothing() {
    let disk = SimDisk::new(1);
    disk.put(&snap_path("snapshot.0"), b"");
    let (_, recovered) = recover(&disk).unwrap();
    assert!(recovered.fresh);
    assert_eq!(recovered.refused_snapshots.len(), 1);
}

#[test]
fn a_stump_of_any_other_snapshot_stops_the_server() {
    let disk = SimDisk::new(1);
    disk.put(&snap_path("snapshot.100"), b"");
    let error = recover(&disk).unwrap_err();
    assert!(error.to_string().contains("snapshot.100"), "{error}");
}
