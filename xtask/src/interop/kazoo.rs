//! kazoo's own test suite, its servers started by its own harness.
//!
//! The harness runs `java` from PATH; for Ironkeeper a stand-in of that name comes first (see
//! `interop/kazoo/bin/java`). `interop/kazoo/expected.txt` lists the tests that pass on one Apache server, and
//! `expected-ensemble.txt` those that pass on three: each of them has to pass.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use super::{Lab, Tally};
use crate::server::Program;
use crate::{ports, repo, tools};

/// On what the suite is run. Each worker process has servers of its own.
#[derive(Debug)]
pub struct Arrangement {
    servers: u16,
    workers: u16,
    /// In `interop/kazoo`: the tests that pass on Apache.
    expected: &'static str,
}

/// Nearly all of the suite's time is waiting.
pub const ALONE: Arrangement = Arrangement { servers: 1, workers: 4, expected: "expected.txt" };
pub const ENSEMBLE: Arrangement =
    Arrangement { servers: 3, workers: 2, expected: "expected-ensemble.txt" };

/// Ports the harness leaves to each server.
const PORTS: u16 = 10;

/// Tests set aside: TLS and SASL belong to no standalone server without them.
const SET_ASIDE: [&str; 2] = ["test_sasl.py", "test_client.py::TestSSLClient"];

pub fn run(lab: &Lab<'_>, arrangement: &Arrangement) -> Result<Tally> {
    let Arrangement { servers, workers, .. } = *arrangement;
    let kazoo = lab.cache.kazoo()?;
    let report = lab.dir.join("report.tsv");
    let output = lab.dir.join("pytest.log");
    let tests = tests_dir(&kazoo.python)?;

    let mut command = Command::new(&kazoo.python);
    command
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "report"])
        .args(["--timeout=300", "--dist=loadscope", "--rootdir"])
        .arg(&tests)
        .arg(format!("--numprocesses={workers}"));
    for name in SET_ASIDE {
        command.arg(format!("--deselect={name}"));
    }
    command
        .arg(&tests)
        .env("PYTHONPATH", repo::interop("kazoo"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("INTEROP_REPORT", &report)
        .env("INTEROP_PORTS", ports::block(workers * servers * PORTS)?.to_string())
        .env("INTEROP_PORTS_EACH", (servers * PORTS).to_string())
        .env("ZOOKEEPER_CLUSTER_SIZE", servers.to_string())
        // The harness wants a version to choose settings by, and a class path to be content with.
        .env("ZOOKEEPER_VERSION", "3.9")
        .env("ZOOKEEPER_CLASSPATH", "unused")
        // In what kazoo takes for its own CI it believes the variable above instead of asking the server.
        .env_remove("CI")
        .current_dir(&lab.dir);
    match lab.program {
        Program::Apache(apache) => {
            command.env("ZOOKEEPER_CLASSPATH", apache.class_path());
        }
        Program::Ironkeeper(binary) => {
            command.env("IRONKEEPER", binary).env("PATH", path_with(&repo::interop("kazoo/bin")));
        }
    }
    println!("   kazoo {} with {workers} workers (some minutes)", kazoo.version);
    let log = File::create(&output)?;
    let status = command
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("cannot run pytest")?;

    let outcomes = read_report(&report)?;
    // 0: all passed, 1: some failed. Anything else is pytest's own trouble.
    if outcomes.is_empty() || !matches!(status.code(), Some(0 | 1)) {
        let log = fs::read(&output).unwrap_or_default();
        bail!("pytest ended with {status}:\n{}", tools::tail(&String::from_utf8_lossy(&log), 20));
    }
    judge(lab, arrangement, &outcomes)
}

fn judge(
    lab: &Lab<'_>,
    arrangement: &Arrangement,
    outcomes: &BTreeMap<String, Outcome>,
) -> Result<Tally> {
    let name = arrangement.expected;
    let path = repo::interop("kazoo").join(name);
    let passed = |test: &str| outcomes.get(test).is_some_and(|outcome| outcome.word == "passed");
    if lab.bless {
        let mut text = format!(
            "# Tests of kazoo that pass on Apache ZooKeeper, servers: {}; TLS and SASL aside.\n",
            arrangement.servers
        );
        for test in outcomes.keys().filter(|test| passed(test)) {
            text.push_str(test);
            text.push('\n');
        }
        fs::write(&path, text)?;
        println!("   recorded {}", path.display());
    }
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read interop/kazoo/{name}"))?;
    let expected: BTreeSet<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();

    let mut tally = Tally::default();
    for test in &expected {
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
                println!("   {test} passes, though it is not in {name}");
                tally.passed += 1;
            }
            "skipped" => tally.skipped += 1,
            _ => tally.excused += 1,
        }
    }
    if !tally.failures.is_empty() {
        println!("   the failures in full: {}", lab.dir.join("pytest.log").display());
    }
    Ok(tally)
}

/// The folder kazoo's tests were installed to; they ship inside the package.
fn tests_dir(python: &Path) -> Result<String> {
    let code = "import kazoo.tests, os; print(os.path.dirname(kazoo.tests.__file__))";
    Ok(tools::run(Command::new(python).args(["-c", code]))?.trim().to_owned())
}

fn path_with(first: &Path) -> OsString {
    let mut path = first.as_os_str().to_owned();
    if let Some(rest) = std::env::var_os("PATH") {
        path.push(":");
        path.push(rest);
    }
    path
}

/// What came of one test.
#[derive(Debug)]
struct Outcome {
    /// `passed`, `failed` or `skipped`.
    word: String,
    why: String,
}

/// Test name to outcome, as `interop/kazoo/report.py` writes them.
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
