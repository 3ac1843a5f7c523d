//! Data directories that move between Apache ZooKeeper and the server under test.
//!
//! A [`Place`] is a data directory; servers are started on it one after the other, or on copies of
//! it. An [`Observation`] is the state of a server after recovery: every node with its data, Stat
//! and ACL, and the digest that the server itself has computed. Observations before and after a
//! move must be equal.
//!
//! Digests are read with `hash`, which returns them only for multiples of `DIGEST_INTERVAL`;
//! rejected requests advance the zxid to the next multiple without a change of the tree.

mod client;
mod load;
mod sample_tree;

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use ironkeeper_peers::apache::Apache;
use ironkeeper_peers::server::{Program, Server, Setup};
use ironkeeper_proto::SessionId;
use ironkeeper_proto::log_record::{FILE_HEADER_LEN, RECORD_HEADER_LEN, RecordHeader};
use ironkeeper_steps::process;

use super::{Lab, Tally};
use client::{Client, Dump};
use load::Load;

/// Small, so that a run creates many snapshots and logs.
const SNAP_COUNT: u32 = 300;
/// The number of transactions between two digests that a server keeps.
const DIGEST_INTERVAL: i64 = 128;
/// Acknowledged writes before a server is stopped or killed: several times `SNAP_COUNT`.
const WRITES: u64 = 2_500;
/// The required snapshots of a run of writes, and the bound of repetitions of `WRITES` to get them.
const SNAPSHOTS: usize = 4;
const PATIENCE: usize = 40;
/// How long a snapshot of Apache may take: many times what it takes on a busy machine.
const SNAPSHOT_MAX: Duration = Duration::from_secs(60);
/// The number of snapshots that are tested one by one.
const TRIED_ALONE: usize = 5;

pub fn run(lab: &Lab<'_>) -> Result<Tally> {
    let apache = lab.cache.apache()?;
    let mut suite = Suite {
        apache: Program::Apache(apache.clone()),
        jars: apache,
        ours: lab.program.clone(),
        dir: lab.dir.clone(),
        tally: Tally::default(),
    };
    suite.section("clean stop", Suite::clean_stop);
    suite.section("apache killed", Suite::apache_killed);
    suite.section("killed", Suite::ours_killed);
    for method in ["gz", "snappy"] {
        suite.section(method, |suite| suite.compressed(method));
    }
    suite.section("separate log directory", Suite::separate_log);
    suite.section("three times there and back", Suite::three_times);
    Ok(suite.tally)
}

#[derive(Debug)]
struct Suite {
    apache: Program,
    jars: Apache,
    ours: Program,
    dir: PathBuf,
    tally: Tally,
}

/// The state of a server after recovery.
#[derive(Debug)]
struct Observation {
    tree: Dump,
    digest: String,
}

impl Observation {
    fn of(server: &Server) -> Result<Self> {
        let mut client = Client::open(server.port())?;
        client.add_auth("digest", b"super:test")?;
        let tree = client.dump()?;
        let zxid = client.reach_digest(DIGEST_INTERVAL)?;
        client.close()?;
        let start = format!("{:x}: ", zxid.0);
        let digests = server.ask("hash")?;
        let digest = digests
            .lines()
            .find_map(|line| line.strip_prefix(&start))
            .with_context(|| format!("hash shows no digest of {zxid}:\n{digests}"))?
            .to_owned();
        let mismatches = server.ask("mntr")?;
        let mismatches = mismatches
            .lines()
            .find(|line| line.starts_with("zk_digest_mismatches_count"))
            .context("mntr does not count digest mismatches")?;
        ensure!(mismatches.ends_with("\t0"), "{mismatches}");
        let log = fs::read(server.log_path())?;
        if let Some(line) = String::from_utf8_lossy(&log)
            .lines()
            .find(|line| line.to_lowercase().contains("digests are not matching"))
        {
            bail!("the log says: {line}");
        }
        Ok(Self { tree, digest })
    }

    fn same_as(&self, before: &Self) -> Result<()> {
        client::compare(&before.tree, &self.tree).map_err(anyhow::Error::msg)?;
        ensure!(
            self.digest == before.digest,
            "the digest was {} and is {}",
            before.digest,
            self.digest
        );
        Ok(())
    }
}

/// A data directory and the settings of the servers on it.
#[derive(Debug, Clone)]
struct Place {
    dir: PathBuf,
    compression: Option<&'static str>,
    separate_log: bool,
}

impl Place {
    fn setup(&self) -> Result<Setup> {
        let mut setup = Setup::on_free_port()?
            .set("extendedTypesEnabled", true)
            .set("maxClientCnxns", 0)
            .set("maxSessionTimeout", client::SESSION_TIMEOUT_MS)
            .set("snapCount", SNAP_COUNT)
            .set("preAllocSize", 256)
            .jvm_flag("-Dznode.container.checkIntervalMs=3600000")
            // super:test
            .jvm_flag("-Dzookeeper.DigestAuthenticationProvider.superDigest=super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        if let Some(method) = self.compression {
            setup = setup.jvm_flag(&format!("-Dzookeeper.snapshot.compression.method={method}"));
        }
        if self.separate_log {
            fs::create_dir_all(self.dir.join("log"))?;
            setup = setup.set("dataLogDir", self.dir.join("log").display());
        }
        Ok(setup)
    }

    fn start(&self, program: &Program) -> Result<Server> {
        Server::start(program, self.setup()?, &self.dir)
            .with_context(|| format!("{} does not start", program.name()))
    }

    /// Copies the files, without the servers' own logs.
    fn copy(&self, name: &str) -> Result<Self> {
        let dir = self.dir.with_file_name(name);
        for folder in ["data", "log"] {
            let from = self.dir.join(folder).join("version-2");
            if !from.exists() {
                continue;
            }
            let to = dir.join(folder).join("version-2");
            fs::create_dir_all(&to)?;
            for entry in fs::read_dir(from)? {
                let entry = entry?;
                fs::copy(entry.path(), to.join(entry.file_name()))?;
            }
        }
        Ok(Self { dir, ..self.clone() })
    }

    fn snapshots(&self) -> Result<Vec<PathBuf>> {
        numbered(&self.dir.join("data/version-2"), "snapshot.")
    }

    fn logs(&self) -> Result<Vec<PathBuf>> {
        let folder = if self.separate_log { "log/version-2" } else { "data/version-2" };
        numbered(&self.dir.join(folder), "log.")
    }
}

/// Returns the zxid in a file's name.
fn zxid_of(path: &Path, prefix: &str) -> Option<i64> {
    let name = path.file_name()?.to_str()?.strip_prefix(prefix)?;
    i64::from_str_radix(name.split('.').next()?, 16).ok()
}

/// Returns the files with a zxid in their names, ordered by zxid.
fn numbered(dir: &Path, prefix: &str) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        if let Some(zxid) = zxid_of(&path, prefix) {
            files.push((zxid, path));
        }
    }
    files.sort();
    Ok(files.into_iter().map(|(_, path)| path).collect())
}

/// Returns whether writes were applied while a snapshot was taken: its last section holds the zxid
/// at its end. Returns `false` for compressed snapshots.
fn is_fuzzy(snapshot: &Path) -> Result<bool> {
    if snapshot.extension().is_some_and(|ext| ext == "gz" || ext == "snappy") {
        return Ok(false);
    }
    let mut bytes = Vec::new();
    File::open(snapshot)?.read_to_end(&mut bytes)?;
    // The zxid, then the seal: eight bytes of checksum and the string "/".
    let last = bytes.len().checked_sub(8 + 8 + 5).and_then(|at| bytes[at..].first_chunk::<8>());
    let last = i64::from_be_bytes(*last.context("a snapshot without an end")?);
    Ok(zxid_of(snapshot, "snapshot.").is_some_and(|first| first < last))
}

/// Returns the begin and the end of the last record of a log.
fn last_record(log: &[u8]) -> Result<(usize, usize)> {
    let mut at = FILE_HEADER_LEN;
    let mut last = None;
    while let Some(header) = log.get(at..at + RECORD_HEADER_LEN) {
        let len = usize::try_from(RecordHeader::decode(header)?.len)?;
        if len == 0 {
            break;
        }
        let end = at + RECORD_HEADER_LEN + len + 1;
        last = Some((at, end));
        at = end;
    }
    last.context("a log without records")
}

/// A way in which the last record is incomplete.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tear {
    InChecksum,
    InLength,
    InBody,
    BeforeEndMark,
    /// The second half of the record, including its end mark, was not written to the disk.
    HalfZero,
}

impl Tear {
    const ALL: [Self; 5] =
        [Self::InChecksum, Self::InLength, Self::InBody, Self::BeforeEndMark, Self::HalfZero];

    /// Returns whether this tear is also tested on Apache, which takes seconds to start.
    fn is_tried_twice(self) -> bool {
        matches!(self, Self::InBody | Self::HalfZero)
    }

    fn name(self) -> &'static str {
        match self {
            Self::InChecksum => "cut-in-checksum",
            Self::InLength => "cut-in-length",
            Self::InBody => "cut-in-body",
            Self::BeforeEndMark => "cut-before-end-mark",
            Self::HalfZero => "half-zero",
        }
    }

    fn apply(self, path: &Path) -> Result<()> {
        let mut log = fs::read(path)?;
        let (start, end) = last_record(&log)?;
        let half = start + (end - start) / 2;
        match self {
            Self::InChecksum => log.truncate(start + 3),
            Self::InLength => log.truncate(start + 10),
            Self::InBody => log.truncate(half),
            Self::BeforeEndMark => log.truncate(end - 1),
            Self::HalfZero => log[half..end].fill(0),
        }
        Ok(fs::write(path, log)?)
    }
}

impl Suite {
    /// Runs a section; an error that ends it counts as one failure, and the next section runs.
    fn section(&mut self, name: &str, work: impl FnOnce(&mut Self) -> Result<()>) {
        if let Err(why) = work(self) {
            self.check(&format!("{name}: to its end"), Err(why));
        }
    }

    fn check(&mut self, name: &str, result: Result<()>) {
        let result = result.map_err(|why| format!("{why:#}"));
        println!("   {} {name}", if result.is_ok() { "ok" } else { "FAIL" });
        self.tally.check(name, result);
    }

    fn place(&self, name: &str) -> Place {
        Place { dir: self.dir.join(name), compression: None, separate_log: false }
    }

    /// Creates the sample tree, writes until enough snapshots were taken, and reads the result.
    fn fill(
        &self,
        place: &Place,
        server: &Server,
        round: usize,
    ) -> Result<(Observation, Vec<SessionId>)> {
        let before = place.snapshots()?.len();
        let sessions = sample_tree::create(server.port(), round)?;
        let load = Load::start(server.port(), round)?;
        for _ in 0..PATIENCE {
            load.wait_for(WRITES)?;
            // On a busy machine snapshots are slow, too, not only writes.
            if place.snapshots()?.len() >= before + SNAPSHOTS {
                break;
            }
        }
        let account = load.finish()?;
        let observed = Observation::of(server)?;
        account.check(&observed.tree)?;
        Ok((observed, sessions))
    }

    /// Stops an Apache server that began with an empty place, after the end of its last snapshot: a
    /// stop does not wait for that, and leaves a file that no server can read.
    fn stop_after_snapshots(place: &Place, server: &mut Server) -> Result<()> {
        let deadline = Instant::now() + SNAPSHOT_MAX;
        loop {
            let begun = place.snapshots()?.len();
            let mntr = server.ask("mntr")?;
            let ended = mntr.lines().find_map(|line| line.strip_prefix("zk_cnt_snapshottime\t"));
            let ended: usize = ended.context("mntr does not count snapshots")?.trim().parse()?;
            if ended >= begun {
                break;
            }
            ensure!(Instant::now() < deadline, "{ended} of {begun} snapshots have ended");
            thread::sleep(Duration::from_millis(20));
        }
        server.stop()?;
        Ok(())
    }

    fn clean_stop(&mut self) -> Result<()> {
        let place = self.place("clean-stop");
        let mut server = place.start(&self.apache)?;
        let (written, mut sessions) = self.fill(&place, &server, 0)?;
        Self::stop_after_snapshots(&place, &mut server)?;
        let from_apache = place.snapshots()?;
        self.check("clean stop: apache took snapshots between and during writes", {
            several_and_fuzzy(&from_apache)
        });
        let alone = self.each_snapshot_alone(&place, &self.ours, &from_apache, &written);
        self.check("clean stop: each of apache's snapshots with the logs behind it", alone);
        self.read_by_our_tools(&place, "clean stop: apache's files pass our checks");

        let mut server = place.start(&self.ours)?;
        let read = Observation::of(&server)?;
        self.check("clean stop: apache's tree and digest", read.same_as(&written));
        self.check("clean stop: sessions of apache are taken up", resume(&server, &sessions));
        let (written, more) = self.fill(&place, &server, 1)?;
        sessions.extend(more);
        server.stop()?;
        let ours: Vec<PathBuf> =
            place.snapshots()?.into_iter().filter(|path| !from_apache.contains(path)).collect();
        self.check("clean stop: snapshots between writes", {
            if ours.len() >= SNAPSHOTS { Ok(()) } else { Err(anyhow::anyhow!("only {ours:?}")) }
        });
        let newest = &ours[ours.len().saturating_sub(2)..];
        let alone = self.each_snapshot_alone(&place, &self.apache, newest, &written);
        self.check("clean stop: apache takes single snapshots of ours", alone);
        let tools = self.read_by_apaches_tools(newest, &place.logs()?);
        self.check("clean stop: apache's tools read our files", tools);

        let mut server = place.start(&self.apache)?;
        let read = Observation::of(&server)?;
        self.check("clean stop: our tree and digest on apache", read.same_as(&written));
        self.check("clean stop: all sessions are taken up by apache", resume(&server, &sessions));
        for session in sessions {
            Client::resume(server.port(), session)?.close()?;
        }
        let read = Observation::of(&server)?;
        self.check("clean stop: closed sessions take their nodes along", {
            match read.tree.keys().find(|path| path.contains("/alive-")) {
                None => Ok(()),
                Some(path) => Err(anyhow::anyhow!("{path} is still there")),
            }
        });
        server.stop()?;
        Ok(())
    }

    /// For each of some snapshots, starts a server with this snapshot alone and all logs: fuzzy
    /// snapshots first, then the newest.
    fn each_snapshot_alone(
        &self,
        place: &Place,
        program: &Program,
        snapshots: &[PathBuf],
        expected: &Observation,
    ) -> Result<()> {
        let mut chosen: Vec<&PathBuf> = snapshots.iter().rev().collect();
        chosen.sort_by_cached_key(|path| !is_fuzzy(path).unwrap_or(false));
        for snapshot in chosen.into_iter().take(TRIED_ALONE) {
            let name = snapshot.file_name().context("a file without a name")?.to_string_lossy();
            let copy = place.copy(&format!("alone-{}-{name}", program.name()))?;
            for other in copy.snapshots()? {
                if other.file_name() != snapshot.file_name() {
                    fs::remove_file(other)?;
                }
            }
            let server = copy.start(program).with_context(|| format!("with {name} alone"))?;
            let read = Observation::of(&server)?;
            read.same_as(expected).with_context(|| format!("with {name} alone"))?;
        }
        Ok(())
    }

    fn apache_killed(&mut self) -> Result<()> {
        let place = self.place("apache-killed");
        let mut server = place.start(&self.apache)?;
        let sessions = sample_tree::create(server.port(), 0)?;
        let load = Load::start(server.port(), 0)?;
        load.wait_for(WRITES)?;
        server.kill()?;
        let account = load.finish()?;
        let copy = place.copy("apache-killed-ours")?;

        let server_ours = copy.start(&self.ours)?;
        let read = Observation::of(&server_ours)?;
        self.check("apache killed: all that it acknowledged", account.check(&read.tree));
        self.check("apache killed: its sessions", resume(&server_ours, &sessions));
        drop(server_ours);
        let mut server = place.start(&self.apache)?;
        let by_apache = Observation::of(&server)?;
        self.check("apache killed: what apache itself recovers", read.same_as(&by_apache));

        // The last record must be one whose loss is visible.
        let mut client = Client::open(server.port())?;
        let open = ironkeeper_proto::acl::open();
        client.create("/torn", Some(b"first"), ironkeeper_proto::CreateMode::Persistent, &open)?;
        client.set("/torn", Some(b"kept"))?;
        client.set("/torn", Some(b"the last write"))?;
        server.kill()?;
        for tear in Tear::ALL {
            let result = self.torn(&place, tear);
            self.check(&format!("apache killed: last record torn ({})", tear.name()), result);
        }
        Ok(())
    }

    /// Checks that both servers drop a torn last record, and that Apache reads what Ironkeeper
    /// writes after it.
    fn torn(&self, place: &Place, tear: Tear) -> Result<()> {
        let copy = place.copy(&format!("torn-{}", tear.name()))?;
        tear.apply(copy.logs()?.last().context("no log")?)?;
        let other = copy.copy(&format!("torn-{}-apache", tear.name()))?;
        let mut server = copy.start(&self.ours)?;
        let read = Observation::of(&server)?;
        let torn = read.tree.get("/torn").and_then(|node| node.data.as_deref());
        ensure!(torn == Some(b"kept"), "/torn holds {:?}", torn.map(String::from_utf8_lossy));
        if !tear.is_tried_twice() {
            return Ok(());
        }
        let by_apache = Observation::of(&other.start(&self.apache)?)?;
        read.same_as(&by_apache).context("apache reads something else")?;
        let mut client = Client::open(server.port())?;
        client.set("/torn", Some(b"written again"))?;
        let written = Observation::of(&server)?;
        server.kill()?;
        // Without all snapshots but the oldest, Apache has to read the log across the tear.
        for snapshot in copy.snapshots()?.iter().skip(1) {
            fs::remove_file(snapshot)?;
        }
        let read = Observation::of(&copy.start(&self.apache)?)?;
        read.same_as(&written).context("apache reads what was written behind the tear")
    }

    fn ours_killed(&mut self) -> Result<()> {
        let place = self.place("killed");
        let mut server = place.start(&self.ours)?;
        let sessions = sample_tree::create(server.port(), 0)?;
        for round in 0..3 {
            let load = Load::start(server.port(), round)?;
            load.wait_for(WRITES)?;
            server.kill()?;
            let account = load.finish()?;
            let copy = place.copy(&format!("killed-{round}-apache"))?;
            let by_apache = copy.start(&self.apache)?;
            let read = Observation::of(&by_apache)?;
            let name = |what: &str| format!("killed ({round}): {what}");
            self.check(&name("apache finds all that was acknowledged"), account.check(&read.tree));
            self.check(&name("apache takes up the sessions"), resume(&by_apache, &sessions));
            drop(by_apache);
            server = place.start(&self.ours)?;
            let ours = Observation::of(&server)?;
            self.check(&name("both recover the same"), read.same_as(&ours));
        }
        Ok(())
    }

    fn compressed(&mut self, method: &'static str) -> Result<()> {
        let mut place = self.place(method);
        place.compression = Some(method);
        let mut server = place.start(&self.apache)?;
        let (written, _) = self.fill(&place, &server, 0)?;
        Self::stop_after_snapshots(&place, &mut server)?;
        let from_apache = place.snapshots()?;
        self.check(&format!("{method}: written by apache"), all_compressed(&from_apache, method));
        let alone = self.each_snapshot_alone(&place, &self.ours, &from_apache, &written);
        self.check(&format!("{method}: each of apache's snapshots with the logs behind it"), alone);
        self.read_by_our_tools(&place, &format!("{method}: apache's files pass our checks"));
        let mut server = place.start(&self.ours)?;
        let read = Observation::of(&server)?;
        self.check(&format!("{method}: apache's tree and digest"), read.same_as(&written));
        let (written, _) = self.fill(&place, &server, 1)?;
        server.stop()?;
        let ours: Vec<PathBuf> =
            place.snapshots()?.into_iter().filter(|path| !from_apache.contains(path)).collect();
        self.check(&format!("{method}: written by us"), all_compressed(&ours, method));
        let newest = &ours[ours.len().saturating_sub(1)..];
        let alone = self.each_snapshot_alone(&place, &self.apache, newest, &written);
        self.check(&format!("{method}: our tree and digest on apache"), alone);
        let tools = self.read_by_apaches_tools(newest, &[]);
        self.check(&format!("{method}: apache's tools read our snapshot"), tools);
        Ok(())
    }

    fn separate_log(&mut self) -> Result<()> {
        let mut place = self.place("separate-log");
        place.separate_log = true;
        let mut server = place.start(&self.apache)?;
        let (written, _) = self.fill(&place, &server, 0)?;
        server.stop()?;
        let mut server = place.start(&self.ours)?;
        let read = Observation::of(&server)?;
        self.check("separate log directory: apache's tree and digest", read.same_as(&written));
        let logs = place.logs()?.len();
        let (written, _) = self.fill(&place, &server, 1)?;
        server.stop()?;
        let stray = numbered(&place.dir.join("data/version-2"), "log.")?;
        self.check("separate log directory: logs go there and only there", {
            if stray.is_empty() && place.logs()?.len() > logs {
                Ok(())
            } else {
                Err(anyhow::anyhow!("stray logs: {stray:?}"))
            }
        });
        let read = Observation::of(&place.start(&self.apache)?)?;
        self.check("separate log directory: our tree and digest on apache", {
            read.same_as(&written)
        });
        Ok(())
    }

    fn three_times(&mut self) -> Result<()> {
        let place = self.place("three-times");
        let mut server = place.start(&self.apache)?;
        let mut sessions = Vec::new();
        for round in 0..3 {
            let (written, more) = self.fill(&place, &server, 2 * round)?;
            sessions.extend(more);
            server.stop()?;
            server = place.start(&self.ours)?;
            let read = Observation::of(&server)?;
            self.check(&format!("there ({round}): tree and digest"), read.same_as(&written));
            let (written, more) = self.fill(&place, &server, 2 * round + 1)?;
            sessions.extend(more);
            server.stop()?;
            server = place.start(&self.apache)?;
            let read = Observation::of(&server)?;
            self.check(&format!("back ({round}): tree and digest"), read.same_as(&written));
        }
        self.check("there and back: sessions of all rounds", resume(&server, &sessions));
        Ok(())
    }

    /// Checks every file with our own tools, if the server under test is Ironkeeper.
    fn read_by_our_tools(&mut self, place: &Place, name: &str) {
        let Program::Ironkeeper(binary) = &self.ours else {
            self.tally.skipped += 1;
            return;
        };
        let result = (|| {
            for log in place.logs()? {
                check_file(binary, "log", &log)?;
            }
            for snapshot in place.snapshots()? {
                check_file(binary, "snapshot", &snapshot)?;
            }
            Ok(())
        })();
        self.check(name, result);
    }

    /// Runs Apache's tools on some files and compares their counts with those of our tools.
    fn read_by_apaches_tools(&self, snapshots: &[PathBuf], logs: &[PathBuf]) -> Result<()> {
        let newest_logs = &logs[logs.len().saturating_sub(2)..];
        for snapshot in snapshots {
            let mut formatter = self.jars.java(&[]);
            let text = process::run(
                formatter.arg("org.apache.zookeeper.server.SnapshotFormatter").arg(snapshot),
            )?;
            // Apache stores the root under two names and counts it twice.
            let nodes = number_behind(&text, "ZNode Details (count=")?.saturating_sub(1);
            if let Program::Ironkeeper(binary) = &self.ours {
                let ours = check_file(binary, "snapshot", snapshot)?;
                ensure!(ours["nodes"] == nodes, "{nodes} nodes, but we say {ours}");
            }
        }
        for log in newest_logs {
            let mut toolkit = self.jars.java(&[]);
            let text = process::run(
                toolkit.arg("org.apache.zookeeper.server.persistence.TxnLogToolkit").arg(log),
            )?;
            ensure!(!text.contains("CRC ERROR"), "{}", process::tail(&text, 5));
            let records = number_behind(&text, "EOF reached after ")?;
            if let Program::Ironkeeper(binary) = &self.ours {
                let ours = check_file(binary, "log", log)?;
                ensure!(ours["records"] == records, "{records} records, but we say {ours}");
            }
        }
        Ok(())
    }
}

/// Runs our check of one file and returns its summary.
fn check_file(binary: &Path, kind: &str, file: &Path) -> Result<serde_json::Value> {
    let text = process::run(Command::new(binary).arg(kind).args(["--check", "--json"]).arg(file))
        .with_context(|| file.display().to_string())?;
    serde_json::from_str(text.trim()).with_context(|| format!("the summary of {}", file.display()))
}

fn number_behind(text: &str, mark: &str) -> Result<u64> {
    let rest = text.split_once(mark).with_context(|| format!("no {mark:?}"))?.1;
    let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    Ok(rest[..digits].parse()?)
}

fn several_and_fuzzy(snapshots: &[PathBuf]) -> Result<()> {
    ensure!(snapshots.len() >= SNAPSHOTS, "only {} snapshots", snapshots.len());
    for snapshot in snapshots {
        if is_fuzzy(snapshot)? {
            return Ok(());
        }
    }
    bail!("none of {} snapshots is fuzzy", snapshots.len())
}

fn all_compressed(snapshots: &[PathBuf], method: &str) -> Result<()> {
    ensure!(snapshots.len() >= SNAPSHOTS, "only {} snapshots", snapshots.len());
    match snapshots.iter().find(|path| path.extension().is_none_or(|ext| ext != method)) {
        None => Ok(()),
        Some(path) => bail!("{} is not compressed", path.display()),
    }
}

/// Resumes sessions that were opened on another server.
fn resume(server: &Server, sessions: &[SessionId]) -> Result<()> {
    for &session in sessions {
        Client::resume(server.port(), session)?;
    }
    Ok(())
}
