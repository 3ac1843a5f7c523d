//! A sync fails, and the process ends and restarts while the machine keeps running. The process
//! reads its writes from the cache, but they are not on the medium. Everything that it relies on
//! after recovery must survive a power failure.

use std::io::ErrorKind;

use ironkeeper_proto::snapshot_record::END_PATH;
use ironkeeper_proto::{Epoch, Put, Zxid};
use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::{Dirs, Store, StoreError, StoreOptions};

use crate::recorder::*;

const ERROR: Fault = Fault::Error(ErrorKind::Other);

/// Creates a store with three durable transactions.
fn begun(disk: &SimDisk, options: StoreOptions) -> Store<SimDisk> {
    let store = Store::open(disk.clone(), dirs(), options).unwrap();
    write_snapshot(&store, 0).unwrap();
    write_log(&store, 1..=3);
    store
}

/// Returns the number of the last call of `work`.
fn last_call(work: impl Fn(&SimDisk)) -> u64 {
    let disk = SimDisk::new(0);
    work(&disk);
    disk.calls() - 1
}

/// Checks that the next process finds the same transactions before and after a power failure, and
/// returns the last zxid.
#[track_caller]
fn found_and_kept(disk: &SimDisk, options: &StoreOptions) -> i64 {
    disk.restart();
    let found = recover_with(disk, options.clone()).unwrap().1.last_zxid;
    disk.crash();
    let kept = recover_with(disk, options.clone()).unwrap().1.last_zxid;
    assert_eq!(found, kept, "what was found is not what was kept");
    found.0
}

/// Commits `records` records of `bytes` bytes, with a failing sync.
fn fail_commit(
    disk: &SimDisk,
    options: &StoreOptions,
    records: i64,
    bytes: usize,
    call: Option<u64>,
) {
    let store = begun(disk, options.clone());
    let mut writer = store.log_writer();
    for zxid in 4..4 + records {
        writer.append(Zxid(zxid), &set_data(zxid, &vec![7; bytes])).unwrap();
    }
    if let Some(call) = call {
        disk.fail_call(call, ERROR);
    }
    assert_eq!(writer.commit().is_err(), call.is_some());
}

#[track_caller]
fn check_commit(records: i64, bytes: usize, seeds: u64) {
    let options = StoreOptions { prealloc_bytes: 64 << 10, ..StoreOptions::default() };
    // The last call syncs the directory, the call before it syncs the file.
    let call = last_call(|disk| fail_commit(disk, &options, records, bytes, None)) - 1;
    let mut read_again = 0;
    for seed in 0..seeds {
        let disk = SimDisk::new(seed);
        fail_commit(&disk, &options, records, bytes, Some(call));
        let found = found_and_kept(&disk, &options);
        assert!(found >= 3, "{found} is a loss");
        read_again += i64::from(found > 3);
    }
    assert!(read_again > 0, "nobody found anything in the cache");
}

#[test]
fn records_that_are_only_in_the_cache_are_written_again_before_they_count() {
    check_commit(1, 10, 40);
    check_commit(20, 1000, 40);
}

#[test]
fn a_batch_is_never_larger_than_what_is_written_again() {
    // More than is written without a sync, in records of several sizes, and one larger record.
    check_commit(5000, 1000, 4);
    check_commit(9, 1 << 20, 4);
    check_commit(1, 6 << 20, 4);
}

#[test]
fn a_large_batch_is_made_durable_in_pieces() {
    let (disk, options) = (SimDisk::new(1), StoreOptions::default());
    let store = begun(&disk, options);
    let mut writer = store.log_writer();
    for zxid in 4..=20 {
        writer.append(Zxid(zxid), &set_data(zxid, &vec![7; 1 << 20])).unwrap();
    }
    let calls = disk.calls();
    writer.commit().unwrap();
    assert!(disk.calls() - calls > 2 * 5, "seventeen megabytes take more than four syncs");
    disk.crash();
    assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(20));
}

#[test]
fn little_is_written_again_of_a_long_log() {
    let disk = SimDisk::new(1);
    let store = begun(&disk, StoreOptions::default());
    let mut writer = store.log_writer();
    for zxid in 4..=40 {
        writer.append(Zxid(zxid), &set_data(zxid, &vec![7; 1 << 20])).unwrap();
        writer.commit().unwrap();
    }
    let calls = disk.calls();
    recover(&disk).unwrap();
    // In pieces of 256 KiB: ten megabytes at most, of thirty-seven.
    assert!(disk.calls() - calls < 45, "{} calls", disk.calls() - calls);
}

/// ZOOKEEPER-3701.
#[test]
fn a_cut_that_failed_is_made_again_before_it_counts() {
    for seed in 0..40 {
        for fail_in in 0.. {
            let disk = SimDisk::new(seed);
            let store = begun(&disk, small());
            write_log(&store, 4..=9);
            disk.fail_call(disk.calls() + fail_in, ERROR);
            let done = store.truncate_log(Zxid(5)).is_ok();
            let found = {
                disk.restart();
                recover(&disk).unwrap().1.last_zxid
            };
            assert!(found >= Zxid(5));
            // The next leader's transaction follows what was found, and no removed record reappears
            // before it.
            write_log(&open(&disk), [1 << 32 | 1]);
            disk.crash();
            let (recorder, _) = recover(&disk).unwrap();
            let expected: Vec<i64> = (1..=found.0).chain([1 << 32 | 1]).collect();
            assert_eq!(recorder.zxids(), expected, "seed {seed}, call {fail_in}");
            if done {
                break;
            }
        }
    }
}

#[test]
fn a_tree_that_was_found_is_there_after_power_was_lost() {
    let install = |store: &Store<SimDisk>| -> Result<(), StoreError> {
        let mut sent = tree(b"leader");
        sent.put_str(END_PATH);
        let mut writer = store.incoming_snapshot_writer(Zxid(2 << 32 | 4))?;
        writer.write(&sent)?;
        store.install_snapshot(Zxid(2 << 32 | 4), writer)
    };
    for (seed, fault) in (0..20).flat_map(|seed| [ERROR, Fault::Stop].map(|fault| (seed, fault))) {
        for fail_in in 0.. {
            let disk = SimDisk::new(seed);
            let store = begun(&disk, small());
            disk.fail_call(disk.calls() + fail_in, fault);
            let done = install(&store).is_ok();
            // The next start deletes abandoned files.
            drop(store);
            found_and_kept(&disk, &small());
            if done {
                break;
            }
        }
    }
}

#[test]
fn nothing_is_removed_for_a_snapshot_whose_name_may_vanish() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let store = begun(&disk, small());
        write_log(&store, 4..=9);
        let calls = disk.calls();
        write_snapshot(&store, 3).unwrap();
        // The last call of a snapshot makes its name durable.
        let made = disk.calls() - calls;
        disk.fail_call(disk.calls() + made - 1, ERROR);
        write_snapshot(&store, 9).unwrap_err();
        assert!(!store.purge(1).unwrap().is_empty());
        disk.crash();
        assert_eq!(recover(&disk).unwrap().1.last_zxid, Zxid(9), "{seed}");
    }
}

#[test]
fn a_promise_that_was_read_is_there_after_power_was_lost() {
    for (seed, fault) in (0..40).flat_map(|seed| [ERROR, Fault::Stop].map(|fault| (seed, fault))) {
        for fail_in in 0..5 {
            let disk = SimDisk::new(seed);
            let store = open(&disk);
            store.write_accepted_epoch(Epoch(1)).unwrap();
            store.write_current_epoch(Epoch(1)).unwrap();
            disk.fail_call(disk.calls() + fail_in, fault);
            let _ = store.write_accepted_epoch(Epoch(2));
            disk.restart();
            let read = open(&disk).load_epochs(Zxid(1 << 32)).unwrap();
            disk.crash();
            assert_eq!(open(&disk).load_epochs(Zxid(1 << 32)).unwrap(), read, "{seed} {fail_in}");
        }
    }
}

#[test]
fn an_epoch_whose_sync_failed_is_written_again_before_its_rename_is_finished() {
    for seed in 0..40 {
        let disk = SimDisk::new(seed);
        let store = open(&disk);
        store.write_accepted_epoch(Epoch(2)).unwrap();
        store.write_current_epoch(Epoch(1)).unwrap();
        // The file was created and written, and its sync fails. The log already has the new epoch.
        disk.fail_call(disk.calls() + 2, ERROR);
        store.write_current_epoch(Epoch(2)).unwrap_err();
        disk.restart();
        let read = open(&disk).load_epochs(Zxid(2 << 32 | 1)).unwrap();
        disk.crash();
        let kept = open(&disk).load_epochs(Zxid(2 << 32 | 1)).unwrap();
        assert_eq!(kept, read, "{seed}");
    }
}

#[test]
fn directories_that_were_made_and_not_synced_are_synced_by_the_next_start() {
    for (seed, fault) in (0..20).flat_map(|seed| [ERROR, Fault::Stop].map(|fault| (seed, fault))) {
        for fail_in in 0..12 {
            let disk = SimDisk::new(seed);
            let open = || Store::open(disk.clone(), Dirs::single("/srv/keeper/data"), small());
            disk.fail_call(fail_in, fault);
            let _ = open();
            disk.restart();
            let store = open().unwrap();
            write_snapshot(&store, 0).unwrap();
            write_log(&store, 1..=3);
            disk.crash();
            let recovered = open().unwrap().recover(&mut Recorder::default()).unwrap();
            assert_eq!(recovered.last_zxid, Zxid(3), "{seed} {fail_in}");
        }
    }
}
