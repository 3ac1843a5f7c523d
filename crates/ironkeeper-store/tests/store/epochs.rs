//! The epoch files of a voter.

use ironkeeper_proto::{Epoch, Zxid};
use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::{Epochs, StoreError};

use crate::recorder::*;

/// Writes `files`, loads the epochs with a last zxid of epoch 5, and checks the result.
#[track_caller]
fn check(files: &[(&str, &str)], expected: Result<(i64, i64), &str>) -> SimDisk {
    let disk = SimDisk::new(1);
    for (name, text) in files {
        disk.put(&snap_path(name), text.as_bytes());
    }
    let found = open(&disk).load_epochs(Zxid(5 << 32 | 3));
    match (found, expected) {
        (Ok(Epochs { accepted, current }), Ok(expected)) => {
            assert_eq!((accepted.0, current.0), expected);
        }
        (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
        (found, expected) => panic!("{found:?} instead of {expected:?}"),
    }
    disk
}

#[test]
fn missing_files_are_written_with_the_epoch_of_the_last_transaction() {
    let disk = check(&[], Ok((5, 5)));
    assert_eq!(disk.content(&snap_path("currentEpoch")).unwrap(), b"5");
    assert_eq!(disk.content(&snap_path("acceptedEpoch")).unwrap(), b"5");
    check(&[("acceptedEpoch", "7")], Ok((7, 5)));
    check(&[("currentEpoch", "5")], Ok((5, 5)));
}

#[test]
fn numbers_are_plain_decimals() {
    check(&[("acceptedEpoch", "6\n"), ("currentEpoch", "6")], Ok((6, 6)));
    check(&[("acceptedEpoch", "6"), ("currentEpoch", " 6")], Err("currentEpoch"));
    check(&[("acceptedEpoch", ""), ("currentEpoch", "6")], Err("acceptedEpoch"));
    check(&[("acceptedEpoch", "6"), ("currentEpoch", "six")], Err("decimal"));
    check(&[("currentEpoch", &"1".repeat(1000))], Err("decimal"));
}

#[test]
fn the_accepted_epoch_may_be_ahead_but_not_behind() {
    check(&[("acceptedEpoch", "9"), ("currentEpoch", "6")], Ok((9, 6)));
    check(&[("acceptedEpoch", "5"), ("currentEpoch", "6")], Err("accepted epoch 5"));
}

#[test]
fn an_interrupted_rename_is_finished() {
    let files = [("acceptedEpoch", "5"), ("currentEpoch", "4"), ("currentEpoch.tmp", "5")];
    let disk = check(&files, Ok((5, 5)));
    assert_eq!(disk.content(&snap_path("currentEpoch")).unwrap(), b"5");
    let files = [("acceptedEpoch", "5"), ("currentEpoch", "3"), ("currentEpoch.tmp", "4")];
    check(&files, Ok((5, 3)));
}

#[test]
fn an_epoch_that_was_never_written_to_its_end_does_not_keep_a_server_from_starting() {
    for torn in ["", "\0\0", "5x"] {
        let files = [("acceptedEpoch", "5"), ("currentEpoch", "4"), ("currentEpoch.tmp", torn)];
        check(&files, Ok((5, 4)));
    }
}

#[test]
fn a_history_may_be_there_before_its_epoch_is_written_down() {
    check(&[("acceptedEpoch", "6"), ("currentEpoch", "4")], Ok((6, 4)));
}

#[test]
fn an_observer_that_took_over_a_history_has_promised_its_epoch() {
    let disk = check(&[("acceptedEpoch", "4"), ("currentEpoch", "4")], Ok((5, 4)));
    assert_eq!(disk.content(&snap_path("acceptedEpoch")).unwrap(), b"5");
}

#[test]
fn a_promise_that_was_given_survives_and_one_that_was_not_is_old_or_new() {
    for seed in 0..40 {
        for stop_in in 0..6 {
            let disk = SimDisk::new(seed);
            let store = open(&disk);
            store.write_accepted_epoch(Epoch(1)).unwrap();
            store.write_current_epoch(Epoch(1)).unwrap();
            disk.fail_call(disk.calls() + stop_in, Fault::Stop);
            let given = store.write_accepted_epoch(Epoch(2)).is_ok();
            disk.crash();
            let epochs = open(&disk).load_epochs(Zxid(1 << 32)).unwrap();
            assert_eq!(epochs.current, Epoch(1));
            assert!(epochs.accepted == Epoch(2) || (!given && epochs.accepted == Epoch(1)));
        }
    }
}

#[test]
fn a_failed_write_says_so() {
    let disk = SimDisk::new(1);
    let store = open(&disk);
    disk.set_capacity(0);
    let error = store.write_current_epoch(Epoch(2)).unwrap_err();
    assert!(error.is_disk_full() && matches!(error, StoreError::Io { .. }), "{error}");
}
