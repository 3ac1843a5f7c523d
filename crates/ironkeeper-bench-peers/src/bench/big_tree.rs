//! Measurements that need a million nodes: memory, start-up time, snapshots and the write latency
//! while a snapshot is taken.
//!
//! Snapshots are controlled by `snapCount` alone, which both servers obey: a small value causes
//! several snapshots during a run of writes, a huge value none. A server takes its snapshot after a
//! random number of transactions between `snapCount / 2` and `snapCount`, so one run contains more
//! than one snapshot, at varying positions.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use ironkeeper_peers::server::{Program, Server};
use ironkeeper_steps::process;

use super::load::{Target, number};
use super::table::{Measures, Side};
use super::{Plan, SETTLE, resident_bytes};

/// The names of these measurements for `--only`.
pub const NAMES: [&str; 3] = ["memory", "startup", "snapshot"];

/// The number of starts of each server; the median is reported.
const STARTS: usize = 3;
/// The `snapCount` of the run with snapshots. With a tree of this size Ironkeeper waits up to ten
/// times as many writes.
const SNAP_COUNT: u32 = 1_000;
/// The `snapCount` of the run without snapshots: more writes than any run makes.
const NO_SNAP_COUNT: u32 = 1_000_000_000;
/// The length of the run in seconds, with one write in flight: enough for `10 * SNAP_COUNT` writes
/// on a slow disk.
const STALL_SECONDS: &str = "20";

/// Runs these measurements on each server. A failure is recorded and ends the measurements of that
/// server.
pub fn run(plan: &Plan, measures: &mut Measures) {
    for (side, program) in &plan.sides {
        let result = one_side(plan, *side, program, measures);
        measures.note_failure(result.with_context(|| format!("the big tree on {side}")));
    }
}

fn one_side(plan: &Plan, side: Side, program: &Program, measures: &mut Measures) -> Result<()> {
    let apache_files = plan.dir.path().join("apache-files");
    let dir = tempfile::tempdir_in(plan.dir.path())?;
    let on = On { plan, side, program, dir: dir.path() };
    on.fill(measures)?;
    if plan.wants(&["startup"]) {
        if side == Side::Apache {
            copy_files(&dir.path().join("data"), &apache_files)?;
        } else {
            let result = on.start_on(&apache_files, measures);
            measures.note_failure(result);
        }
        on.start(measures)?;
    }
    if plan.wants(&["snapshot"]) {
        for _ in 0..plan.rounds {
            on.stall(measures)?;
        }
    }
    Ok(())
}

/// One server and the directory of its big tree.
struct On<'a> {
    plan: &'a Plan,
    side: Side,
    program: &'a Program,
    dir: &'a Path,
}

impl On<'_> {
    /// Creates the tree with single creates, as clients do, and measures its memory.
    fn fill(&self, measures: &mut Measures) -> Result<()> {
        let nodes = self.plan.nodes.to_string();
        eprintln!("{}: filling a tree of {nodes} nodes", self.side);
        let mut server = Server::start(self.program, self.plan.setup(self.program)?, self.dir)?;
        let report =
            self.plan.generator.run(&Target::of([&server])?, &["fill", "--nodes", &nodes])?;
        thread::sleep(SETTLE);
        let each = |bytes: u64| bytes as f64 / f64::from(self.plan.nodes);
        if self.plan.wants(&["memory"]) {
            measures.add("fill", self.side, number(&report, "/rate_per_s")?);
            measures.add("memory", self.side, each(resident_bytes(&server)?));
            if let (Program::Apache(_), Some(pid)) = (self.program, server.pid())
                && let Some(heap) = live_heap_bytes(pid)
            {
                measures.add("memory-heap", self.side, each(heap));
            }
        }
        server.stop()?;
        Ok(())
    }

    /// Measures the time from the start of the process to its first reply, on its own files.
    fn start(&self, measures: &mut Measures) -> Result<()> {
        for _ in 0..STARTS {
            let seconds = self.timed_start(self.dir)?;
            eprintln!("{}: ready after {seconds:.2} s", self.side);
            measures.add("startup", self.side, seconds);
        }
        Ok(())
    }

    /// Measures the start-up time on a copy of Apache's files, if it exists.
    fn start_on(&self, files: &Path, measures: &mut Measures) -> Result<()> {
        if !files.exists() {
            return Ok(());
        }
        let dir = tempfile::tempdir_in(self.plan.dir.path())?;
        fs::rename(files, dir.path().join("data"))?;
        let seconds = self.timed_start(dir.path()).context("starting on the files Apache wrote")?;
        eprintln!("{}: ready after {seconds:.2} s on the files Apache wrote", self.side);
        measures.add("startup-foreign", self.side, seconds);
        Ok(())
    }

    fn timed_start(&self, dir: &Path) -> Result<f64> {
        let setup = self.plan.setup(self.program)?;
        let began = Instant::now();
        let mut server = Server::start(self.program, setup, dir)?;
        let seconds = began.elapsed().as_secs_f64();
        let found = node_count(&server)?;
        if found < u64::from(self.plan.nodes) {
            bail!("{} came back with {found} nodes of {}", self.side, self.plan.nodes);
        }
        server.stop()?;
        Ok(seconds)
    }

    /// Measures the longest write with one write in flight, first without and then with snapshots.
    fn stall(&self, measures: &mut Measures) -> Result<()> {
        let (without, taken) = self.longest_write(NO_SNAP_COUNT)?;
        if !taken.is_empty() {
            bail!("{} took a snapshot in spite of snapCount={NO_SNAP_COUNT}", self.side);
        }
        let (with, taken) = self.longest_write(SNAP_COUNT)?;
        if taken.is_empty() {
            bail!("{} took no snapshot in spite of snapCount={SNAP_COUNT}", self.side);
        }
        eprintln!("{}: longest write {without:.1} ms, {with:.1} ms with snapshots", self.side);
        measures.add("stall-without", self.side, without);
        measures.add("stall-with", self.side, with);
        measures.add("stall", self.side, with - without);
        for snapshot in taken {
            measures.add("snapshot", self.side, snapshot.as_secs_f64());
        }
        Ok(())
    }

    /// Returns the longest write in milliseconds and the durations of the snapshots taken
    /// meanwhile.
    fn longest_write(&self, snap_count: u32) -> Result<(f64, Vec<Duration>)> {
        let setup = self.plan.setup(self.program)?.set("snapCount", snap_count);
        let mut server = Server::start(self.program, setup, self.dir)?;
        // Work left over from the start, a snapshot for instance, must not be measured.
        thread::sleep(SETTLE);
        let before = snapshots(&server.data_dir())?;
        let nodes = self.plan.nodes.to_string();
        let args = ["stall", "--seconds", STALL_SECONDS, "--warmup", "3", "--nodes", &nodes];
        let report = self.plan.generator.run(&Target::of([&server])?, &args)?;
        // A snapshot that has begun must be complete before the files are listed.
        thread::sleep(SETTLE);
        let taken: Vec<PathBuf> = snapshots(&server.data_dir())?
            .into_iter()
            .filter(|path| !before.contains(path))
            .collect();
        server.stop()?;
        let longest =
            report["latency_us"][0]["max"].as_f64().context("a report without a maximum")?;
        let taken = taken.iter().filter_map(|path| time_to_write(path)).collect();
        Ok((longest / 1000.0, taken))
    }
}

fn node_count(server: &Server) -> Result<u64> {
    let answer = server.ask("srvr")?;
    answer
        .lines()
        .find_map(|line| line.strip_prefix("Node count: ")?.trim().parse().ok())
        .context("srvr tells no node count")
}

fn snapshots(data: &Path) -> Result<HashSet<PathBuf>> {
    let mut found = HashSet::new();
    for entry in fs::read_dir(data.join("version-2"))? {
        let path = entry?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("snapshot.")) {
            found.insert(path);
        }
    }
    Ok(found)
}

/// Returns the time in which a file was written: from its creation to its last modification. A
/// rename changes neither.
fn time_to_write(path: &Path) -> Option<Duration> {
    let meta = fs::metadata(path).ok()?;
    meta.modified().ok()?.duration_since(meta.created().ok()?).ok()
}

/// Returns the heap in use after a full collection, read with `jcmd`; `None` if there is no `jcmd`.
fn live_heap_bytes(pid: u32) -> Option<u64> {
    let pid = pid.to_string();
    process::run(Command::new("jcmd").args([&pid, "GC.run"])).ok()?;
    let info = process::run(Command::new("jcmd").args([&pid, "GC.heap_info"])).ok()?;
    used_heap_bytes(&info)
}

/// Returns the sum over the parts of the heap, whose names depend on the collector.
fn used_heap_bytes(info: &str) -> Option<u64> {
    const PARTS: [&str; 5] = [
        "garbage-first heap",
        "def new generation",
        "tenured generation",
        "PSYoungGen",
        "ParOldGen",
    ];
    let used: Vec<u64> = info
        .lines()
        .filter(|line| PARTS.iter().any(|part| line.trim_start().starts_with(part)))
        .filter_map(|line| line.split_once("used ")?.1.split_once('K')?.0.parse().ok())
        .collect();
    (!used.is_empty()).then(|| used.iter().sum::<u64>() * 1024)
}

fn copy_files(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_files(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_of_different_collectors_is_understood() {
        let g1 = "77:\n garbage-first heap   total 262144K, used 1000K [0x1, 0x2)\n  region size 1024K\n \
                  Metaspace       used 500K, committed 700K, reserved 1048576K\n";
        assert_eq!(used_heap_bytes(g1), Some(1000 * 1024));
        let serial = " def new generation   total 9216K, used 20K [0x1)\n  eden space 8192K, 5% used\n \
                      tenured generation   total 10240K, used 300K [0x2)\n";
        assert_eq!(used_heap_bytes(serial), Some(320 * 1024));
        assert_eq!(used_heap_bytes("nothing of the kind"), None);
    }

    #[test]
    fn only_snapshots_are_counted() {
        let dir = tempfile::tempdir().unwrap();
        let version = dir.path().join("version-2");
        fs::create_dir(&version).unwrap();
        for name in ["snapshot.0", "snapshot.ff.gz", "log.1", "acceptedEpoch"] {
            fs::write(version.join(name), "").unwrap();
        }
        let expected = ["snapshot.0", "snapshot.ff.gz"].map(|name| version.join(name));
        assert_eq!(snapshots(dir.path()).unwrap(), HashSet::from(expected));
    }

    #[test]
    fn folders_are_copied_whole() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("version-2")).unwrap();
        fs::write(from.join("version-2/log.1"), "content").unwrap();
        copy_files(&from, &to).unwrap();
        assert_eq!(fs::read_to_string(to.join("version-2/log.1")).unwrap(), "content");
    }
}
