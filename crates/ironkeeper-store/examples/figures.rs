//! Measures the store on this machine's disk: `cargo run --release -p ironkeeper-store --example
//! figures [DIR]`. The directory should be on the medium in question; the default is the current
//! one.
//!
//! Prints the cost of an append, the duration of commits alone and during the writing of a snapshot
//! of a million nodes and the removal of an old one, and the speed of reading such a snapshot.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "a program, not the store"
)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use ironkeeper_proto::snapshot_record::{self, SnapshotDigest, SnapshotNode};
use ironkeeper_proto::stat::StatPersisted;
use ironkeeper_proto::txn::{self, FullTxn, TxnHeader};
use ironkeeper_proto::{AclVec, OpCode, Put, SessionId, Zxid};
use ironkeeper_store::disk::RealDisk;
use ironkeeper_store::{Dirs, Store, StoreOptions, Visitor};

const NODES: usize = 1_000_000;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome<()> {
    let dir = PathBuf::from(env::args().nth(1).unwrap_or_else(|| ".".to_owned()));
    let home = dir.join(format!("store-figures-{}", std::process::id()));
    let outcome = run(&home);
    fs::remove_dir_all(&home)?;
    outcome
}

fn run(home: &Path) -> Outcome<()> {
    let open = |options| Store::open(RealDisk, Dirs::single(home), options);
    appends(&open(StoreOptions { force_sync: false, ..StoreOptions::default() })?)?;
    let store = open(StoreOptions::default())?;
    for bytes in [50, 1000, 6000, 30_000, 200_000] {
        let mut zxid = 0;
        let mut writer = store.log_writer();
        let mut latencies = Vec::new();
        let until = Instant::now() + Duration::from_millis(500);
        while Instant::now() < until {
            latencies.push(commit(&mut writer, &mut zxid, bytes)?);
        }
        println!("commit of {bytes:>6} bytes: {}", summary(latencies));
    }
    for round in 1..=3 {
        beside_a_snapshot(&store, round)?;
    }
    let path = store.snap_dir().join("snapshot.3");
    for how in ["from the disk", "from memory"] {
        let mut counter = Counter::default();
        let start = Instant::now();
        ironkeeper_store::read_snapshot_file(&RealDisk, &path, 2 << 20, &mut counter)?;
        println!("snapshot of {} nodes read {how} in {:?}", counter.nodes, start.elapsed());
    }
    Ok(())
}

fn set_data(zxid: i64, bytes: usize) -> Vec<u8> {
    let mut body = Vec::new();
    let (session, zxid, op) = (SessionId(1), Zxid(zxid), OpCode::SetData);
    TxnHeader { session, cxid: 1, zxid, time: 0, op }.encode(&mut body);
    txn::encode::set_data("/node", Some(&vec![7; bytes]), 3, &mut body);
    body
}

fn appends(store: &Store<RealDisk>) -> Outcome<()> {
    const RECORDS: i64 = 2_000_000;
    let body = set_data(1, 50);
    let mut writer = store.log_writer();
    let (mut appending, start) = (Duration::ZERO, Instant::now());
    for batch in 0..RECORDS / 500 {
        let begin = Instant::now();
        for record in 0..500 {
            writer.append(Zxid(batch * 500 + record + 1), &body)?;
        }
        appending += begin.elapsed();
        writer.commit()?;
    }
    let per_record = |total: Duration| total.as_nanos() as f64 / RECORDS as f64;
    println!(
        "append of {} bytes: {:.0} ns; with its share of an unsynced write for 500: {:.0} ns",
        body.len(),
        per_record(appending),
        per_record(start.elapsed())
    );
    Ok(())
}

fn commit(
    writer: &mut ironkeeper_store::LogWriter<RealDisk>,
    zxid: &mut i64,
    bytes: usize,
) -> Outcome<Duration> {
    *zxid += 1;
    let body = set_data(*zxid, bytes);
    let start = Instant::now();
    writer.append(Zxid(*zxid), &body)?;
    writer.commit()?;
    Ok(start.elapsed())
}

fn beside_a_snapshot(store: &Store<RealDisk>, zxid: i64) -> Outcome<()> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| -> Outcome<()> {
        let log = scope.spawn(|| {
            let mut zxid = 1000 * zxid;
            let mut writer = store.log_writer();
            let mut latencies = Vec::new();
            while !done.load(Ordering::Relaxed) {
                latencies.push(commit(&mut writer, &mut zxid, 300).map_err(|e| e.to_string())?);
            }
            Ok::<_, String>(latencies)
        });
        let start = Instant::now();
        let written = write_snapshot(store, zxid);
        let elapsed = start.elapsed();
        let start = Instant::now();
        let purged = store.purge(1);
        let purging = start.elapsed();
        done.store(true, Ordering::Relaxed);
        let latencies = log.join().map_err(|_| "the log thread died")??;
        println!(
            "commits beside a snapshot of {} MB in {elapsed:?}, {} files purged in {purging:?}: {}",
            written? >> 20,
            purged?.len(),
            summary(latencies)
        );
        Ok(())
    })
}

fn write_snapshot(store: &Store<RealDisk>, zxid: i64) -> Outcome<u64> {
    let mut writer = store.snapshot_writer(Zxid(zxid))?;
    let mut bytes = Vec::new();
    snapshot_record::encode_file_header(&mut bytes);
    bytes.put_i32(0);
    bytes.put_i32(0);
    let stat = StatPersisted::default();
    for index in 0..NODES {
        let path = match index {
            0 => String::new(),
            _ => format!("/services/region-{}/instance-{index:07}", index % 10),
        };
        SnapshotNode { path: path.into(), data: Some(&[7; 64]), acl: -1, stat }.encode(&mut bytes);
        writer.write(&bytes)?;
        bytes.clear();
    }
    let written = writer.bytes_written();
    let digest = SnapshotDigest { zxid: Zxid(zxid), version: 2, digest: 0 };
    writer.finish_with(digest, Zxid(zxid))?;
    Ok(written)
}

fn summary(mut latencies: Vec<Duration>) -> String {
    latencies.sort_unstable();
    let at = |part: f64| {
        let index = ((latencies.len() as f64 * part) as usize).min(latencies.len() - 1);
        latencies[index].as_micros()
    };
    let (count, mean) = (
        latencies.len(),
        latencies.iter().sum::<Duration>().as_micros() / latencies.len().max(1) as u128,
    );
    format!(
        "{count} commits, mean {mean} p50 {} p99 {} p99.9 {} max {} us",
        at(0.5),
        at(0.99),
        at(0.999),
        at(1.0)
    )
}

#[derive(Default)]
struct Counter {
    nodes: usize,
}

impl Visitor for Counter {
    fn snapshot_start(&mut self, _: Zxid, _: &Path) {}
    fn session(&mut self, _: SessionId, _: i32) {}
    fn acl(&mut self, _: i64, _: AclVec<'_>) {}
    fn node(&mut self, _: &SnapshotNode<'_>) -> Result<(), String> {
        self.nodes += 1;
        Ok(())
    }
    fn snapshot_end(&mut self, _: Zxid, _: Option<SnapshotDigest>) -> Result<(), String> {
        Ok(())
    }
    fn txn(&mut self, _: &FullTxn<'_>, _: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
