//! kazoo's own test suite, whose harness starts the servers.
//!
//! The harness runs `java` from PATH; for Ironkeeper a replacement of that name precedes it (see
//! `interop/kazoo/bin/java`). `interop/kazoo/expected.txt` lists the tests that pass on one Apache
//! server: each of them has to pass, on one server and on three; on three also the tests of
//! `expected-ensemble.txt`.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use ironkeeper_peers::ports;
use ironkeeper_peers::server::Program;
use ironkeeper_steps::count::SecondTry;
use ironkeeper_steps::{process, repo};

use super::{Lab, Tally};
use crate::interop::foreign_races;

/// The servers and workers of a run. Each worker process has its own servers.
#[derive(Debug)]
pub struct Arrangement {
    servers: u16,
    workers: u16,
}

/// Four workers: nearly all of the suite's time is waiting.
pub const ALONE: Arrangement = Arrangement { servers: 1, workers: 4 };
pub const ENSEMBLE: Arrangement = Arrangement { servers: 3, workers: 2 };

/// In `interop/kazoo`: the tests that pass on one Apache server, and the tests that need more
/// servers.
const EXPECTED: &str = "expected.txt";
const EXPECTED_BESIDES: &str = "expected-ensemble.txt";

/// The number of ports that the harness reserves for each server.
const PORTS: u16 = 10;

/// Excluded tests: TLS and SASL need a server that is configured for them.
const SET_ASIDE: [&str; 2] = ["test_sasl.py", "test_client.py::TestSSLClient"];

pub fn run(lab: &Lab<'_>, arrangement: &Arrangement) -> Result<Tally> {
    let suite = Suite::of(lab, arrangement)?;
    let workers = arrangement.workers;
    println!("   kazoo {} with {workers} workers (some minutes)", suite.version);
    let mut outcomes = suite.play("all", &[], workers)?;
    // The tests that pass are recorded on one server; they have to pass on three as well.
    if lab.bless && arrangement.servers == 1 {
        record(&repo::interop("kazoo").join(EXPECTED), &outcomes)?;
    }
    let mut text = expected_text(EXPECTED)?;
    if arrangement.servers > 1 {
        text += &expected_text(EXPECTED_BESIDES)?;
    }
    let expected: BTreeSet<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
    let second_tries = suite.try_again(&mut outcomes, &expected)?;
    Ok(Tally { second_tries, ..judge(lab, &expected, &outcomes) })
}

/// kazoo's tests, configured for the servers of an arrangement.
struct Suite<'a> {
    lab: &'a Lab<'a>,
    python: PathBuf,
    version: String,
    tests: PathBuf,
    servers: u16,
}

impl<'a> Suite<'a> {
    fn of(lab: &'a Lab<'a>, arrangement: &Arrangement) -> Result<Suite<'a>> {
        let kazoo = lab.cache.kazoo()?;
        let tests = tests_dir(&kazoo.python)?;
        let servers = arrangement.servers;
        Ok(Suite { lab, python: kazoo.python, version: kazoo.version, tests, servers })
    }

    /// Runs the named tests, or all of them; `what` is the name of the output files.
    fn play(&self, what: &str, names: &[&str], workers: u16) -> Result<BTreeMap<String, Outcome>> {
        let (lab, servers) = (self.lab, self.servers);
        let report = lab.dir.join(format!("{what}.tsv"));
        let output = lab.dir.join(format!("pytest-{what}.log"));
        let mut command = Command::new(&self.python);
        command
            .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "report"])
            .args(["--timeout=300", "--dist=loadscope", "--rootdir"])
            .arg(&self.tests)
            .arg(format!("--numprocesses={workers}"));
        for name in SET_ASIDE {
            command.arg(format!("--deselect={name}"));
        }
        if names.is_empty() {
            command.arg(&self.tests);
        }
        command
            .args(names.iter().map(|name| self.tests.join(name)))
            .env("PYTHONPATH", repo::interop("kazoo"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("INTEROP_REPORT", &report)
            .env("INTEROP_PORTS", ports::block(workers * servers * PORTS)?.to_string())
            .env("INTEROP_PORTS_EACH", (servers * PORTS).to_string())
            .env("ZOOKEEPER_CLUSTER_SIZE", servers.to_string())
            // The harness chooses settings by the version, and requires a class path.
            .env("ZOOKEEPER_VERSION", "3.9")
            .env("ZOOKEEPER_CLASSPATH", "unused")
            // With `CI` set, kazoo trusts the variable above instead of asking the server for its
            // version.
            .env_remove("CI")
            .current_dir(&lab.dir);
        match lab.program {
            Program::Apache(apache) => {
                command.env("ZOOKEEPER_CLASSPATH", apache.class_path());
            }
            Program::Ironkeeper(binary) => {
                command
                    .env("IRONKEEPER", binary)
                    .env("PATH", path_with(&repo::interop("kazoo/bin")));
            }
        }
        let log = File::create(&output)?;
        let status = command
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .status()
            .context("cannot run pytest")?;
        let outcomes = read_report(&report)?;
        // 0: all passed, 1: some failed. Any other status is an error of pytest itself.
        if outcomes.is_empty() || !matches!(status.code(), Some(0 | 1)) {
            let log = fs::read(&output).unwrap_or_default();
            let tail = process::tail(&String::from_utf8_lossy(&log), 20);
            bail!("pytest ended with {status}:\n{tail}");
        }
        Ok(outcomes)
    }

    /// Repeats failed tests with a known race, each alone. Returns the tests that passed then.
    fn try_again(
        &self,
        outcomes: &mut BTreeMap<String, Outcome>,
        expected: &BTreeSet<&str>,
    ) -> Result<Vec<SecondTry>> {
        let has_failed =
            |test: &str| outcomes.get(test).is_some_and(|outcome| outcome.word == "failed");
        let racing: Vec<(&str, &'static str)> = expected
            .iter()
            .filter(|test| has_failed(test))
            .filter_map(|test| Some((*test, foreign_races::cause(test)?)))
            .collect();
        let mut passed = Vec::new();
        for (number, (test, cause)) in racing.into_iter().enumerate() {
            println!("   {test} failed and has a second try: {cause}");
            let mut again = self.play(&format!("again-{number}"), &[test], 1)?;
            let Some(outcome) = again.remove(test) else { continue };
            if outcome.word == "passed" {
                passed.push(SecondTry { check: format!("kazoo {test}"), cause });
            }
            outcomes.insert(test.to_owned(), outcome);
        }
        Ok(passed)
    }
}

fn expected_text(name: &str) -> Result<String> {
    fs::read_to_string(repo::interop("kazoo").join(name))
        .with_context(|| format!("cannot read interop/kazoo/{name}"))
}

/// Records the passed tests as the expected ones.
fn record(path: &Path, outcomes: &BTreeMap<String, Outcome>) -> Result<()> {
    let mut text = String::from(
        "# Tests of kazoo that pass on one Apache ZooKeeper server; TLS and SASL aside.\n",
    );
    for (test, _) in outcomes.iter().filter(|(_, outcome)| outcome.word == "passed") {
        text.push_str(test);
        text.push('\n');
    }
    fs::write(path, text)?;
    println!("   recorded {}", path.display());
    Ok(())
}

fn judge(lab: &Lab<'_>, expected: &BTreeSet<&str>, outcomes: &BTreeMap<String, Outcome>) -> Tally {
    let mut tally = Tally::default();
    for test in expected {
        match outcomes.get(*test) {
            Some(outcome) if outcome.word == "passed" => tally.passed += 1,
            Some(outcome) => {
                tally.failures.push(format!("{test}: {} {}", outcome.word, outcome.why));
            }
            None => tally.failures.push(format!("{test}: was not run")),
        }
    }
    for (test, outcome) in outcomes.iter().filter(|(test, _)| !expected.contains(test.as_str())) {
        match outcome.word.as_str() {
            "passed" => {
                println!("   {test} passes, though it is not expected to");
                tally.passed += 1;
            }
            "skipped" => tally.skipped += 1,
            _ => tally.excused += 1,
        }
    }
    if !tally.failures.is_empty() {
        println!("   the failures in full: {}", lab.dir.join("pytest-all.log").display());
    }
    tally
}

/// Returns the installed directory of kazoo's tests, which are part of the package.
fn tests_dir(python: &Path) -> Result<PathBuf> {
    let code = "import kazoo.tests, os; print(os.path.dirname(kazoo.tests.__file__))";
    Ok(PathBuf::from(process::run(Command::new(python).args(["-c", code]))?.trim()))
}

fn path_with(first: &Path) -> OsString {
    let mut path = first.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

/// The result of one test.
#[derive(Debug)]
struct Outcome {
    /// `passed`, `failed` or `skipped`.
    word: String,
    why: String,
}

/// Reads the report of `interop/kazoo/report.py`: a result for each test name.
fn read_report(path: &Path) -> Result<BTreeMap<String, Outcome>> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines()
        .map(|line| match line.splitn(4, '\t').collect::<Vec<_>>()[..] {
            [word, test, _seconds, why] => {
                Ok((test.to_owned(), Outcome { word: word.to_owned(), why: why.to_owned() }))
            }
            _ => bail!("unreadable line in {}: {line}", path.display()),
        })
        .collect()
}
