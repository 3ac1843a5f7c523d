//! The machine stops at each call in turn. Recovery finds what was committed, and finds only what
//! was appended.

use std::io::ErrorKind;

use ironkeeper_proto::Zxid;
use ironkeeper_simdisk::{Fault, SimDisk};
use ironkeeper_store::{Store, StoreError};

use crate::recorder::*;

/// The state of the log that the server may rely on.
#[derive(Debug, Default)]
struct Ledger {
    committed: i64,
    bodies: Vec<Vec<u8>>,
}

/// Returns a record. The sizes are around a sector, a page, and larger.
fn body(zxid: i64) -> Vec<u8> {
    const SIZES: [usize; 7] = [1, 400, 60, 5000, 513, 0, 2000];
    // Data of zeroes looks like data that was never written.
    let fill = if zxid % 3 == 0 { 0 } else { zxid as u8 };
    set_data(zxid, &vec![fill; SIZES[zxid as usize % SIZES.len()]])
}

/// Runs a server: recovery, then batches with rolls, snapshots and purges between them.
fn live(disk: &SimDisk, ledger: &mut Ledger, batches: usize) -> Result<(), StoreError> {
    let store = Store::open(disk.clone(), dirs(), small())?;
    let mut recorder = Recorder::default();
    let recovered = store.recover(&mut recorder)?;
    let last = recovered.last_zxid.0;
    assert!(last >= ledger.committed, "{last} recovered, {} committed", ledger.committed);
    assert!(last <= ledger.bodies.len() as i64, "{last} recovered, never appended");
    let first = recorder.snapshot.map_or(0, |zxid| zxid.0) as usize;
    assert_eq!(recorder.bodies[..], ledger.bodies[first.min(last as usize)..last as usize]);
    if recovered.fresh {
        assert_eq!(ledger.committed, 0);
        write_snapshot(&store, 0)?;
    }
    // What recovery has delivered counts as committed from here on; everything else is dropped.
    ledger.committed = last;
    ledger.bodies.truncate(last as usize);

    let mut writer = store.log_writer();
    for batch in 0..batches {
        for _ in 0..=batch % 4 {
            let zxid = ledger.bodies.len() as i64 + 1;
            let body = body(zxid);
            writer.append(Zxid(zxid), &body)?;
            ledger.bodies.push(body);
            if zxid % 6 == 0 {
                writer.roll();
            }
        }
        writer.commit()?;
        ledger.committed = ledger.bodies.len() as i64;
        if batch % 3 == 2 {
            write_snapshot(&store, ledger.committed)?;
            store.purge(2)?;
        }
    }
    Ok(())
}

fn is_stop(error: &StoreError) -> bool {
    matches!(error, StoreError::Io { cause, .. } if cause.to_string().contains("stopped"))
}

#[test]
fn stopping_at_every_call_loses_nothing_that_was_committed() {
    let whole = SimDisk::new(0);
    live(&whole, &mut Ledger::default(), 8).unwrap();
    let calls = whole.calls();
    assert!(calls > 40, "{calls}");
    for seed in 0..12 {
        for call in 0..calls {
            let disk = SimDisk::new(seed);
            let mut ledger = Ledger::default();
            disk.fail_call(call, Fault::Stop);
            let error = live(&disk, &mut ledger, 8).unwrap_err();
            assert!(is_stop(&error), "{error}");
            disk.crash();
            live(&disk, &mut ledger, 2).unwrap_or_else(|error| panic!("{seed} {call}: {error}"));
        }
    }
}

#[test]
fn many_crashes_in_a_row_lose_nothing_either() {
    for seed in 0..60 {
        let disk = SimDisk::new(seed);
        let mut ledger = Ledger::default();
        for round in 0..12 {
            // At early and late calls of a run, including those of recovery.
            let after = (seed * 7 + round * 13) % 37;
            disk.fail_call(disk.calls() + after, Fault::Stop);
            if let Err(error) = live(&disk, &mut ledger, 6) {
                assert!(is_stop(&error), "{seed} {round}: {error}");
            }
            disk.crash();
        }
        live(&disk, &mut ledger, 1).unwrap_or_else(|error| panic!("{seed}: {error}"));
    }
}

#[test]
fn a_process_that_comes_back_after_an_error_of_any_call_relies_on_nothing_that_power_takes() {
    let whole = SimDisk::new(0);
    live(&whole, &mut Ledger::default(), 8).unwrap();
    for seed in 0..12 {
        for call in 0..whole.calls() {
            let disk = SimDisk::new(seed);
            let mut ledger = Ledger::default();
            disk.fail_call(call, Fault::Error(ErrorKind::Other));
            let _ = live(&disk, &mut ledger, 8);
            // The machine keeps running: recovery reads its cache and relies on that content
            // afterwards.
            disk.restart();
            live(&disk, &mut ledger, 1).unwrap_or_else(|error| panic!("{seed} {call}: {error}"));
            disk.crash();
            live(&disk, &mut ledger, 2).unwrap_or_else(|error| panic!("{seed} {call}: {error}"));
        }
    }
}

#[test]
fn a_process_that_comes_back_after_it_was_killed_at_any_call_relies_on_nothing_that_power_takes() {
    let whole = SimDisk::new(0);
    live(&whole, &mut Ledger::default(), 8).unwrap();
    for seed in 0..6 {
        for call in 0..whole.calls() {
            let disk = SimDisk::new(seed);
            let mut ledger = Ledger::default();
            disk.fail_call(call, Fault::Stop);
            let _ = live(&disk, &mut ledger, 8);
            disk.restart();
            live(&disk, &mut ledger, 0).unwrap_or_else(|error| panic!("{seed} {call}: {error}"));
            disk.crash();
            live(&disk, &mut ledger, 2).unwrap_or_else(|error| panic!("{seed} {call}: {error}"));
        }
    }
}

#[test]
fn an_error_of_any_call_ends_the_server_and_loses_nothing() {
    let whole = SimDisk::new(0);
    live(&whole, &mut Ledger::default(), 8).unwrap();
    for seed in 0..6 {
        for call in 0..whole.calls() {
            let disk = SimDisk::new(seed);
            let mut ledger = Ledger::default();
            disk.fail_call(call, Fault::Error(ErrorKind::Other));
            // A failure to remove an abandoned file is harmless.
            let _ = live(&disk, &mut ledger, 8);
            disk.crash();
            live(&disk, &mut ledger, 2).unwrap_or_else(|error| panic!("{seed} {call}: {error}"));
        }
    }
}
