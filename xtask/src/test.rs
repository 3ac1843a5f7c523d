//! `cargo xtask test`: everything that has to hold before a change lands.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::build_ahead::BuildAhead;
use crate::side_by_side::side_by_side;
use crate::test_binaries::{self, End, TestBinary};
use crate::{limited, repo, tools};

/// How long one test binary may take: many times what the slowest takes on a busy machine.
const TEST_BINARY_MAX: Duration = Duration::from_secs(480);

/// How many test binaries run at a time. They wait more than they compute, and each has a thread per core.
const TEST_BINARIES_AT_ONCE: usize = 3;

/// How long one step may take.
const STEP_MAX: Duration = Duration::from_secs(1800);

/// How long to wait for another line of a command that has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What chores say on standard error, before the arguments of cargo that run again what failed of them.
pub const TO_RUN_AGAIN: &str = "to run again: cargo ";

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub struct Options {
    /// Leave out what needs foreign software: the interoperation and differential runs.
    #[arg(long)]
    own: bool,
    /// Seeds of the differential run in each arrangement.
    #[arg(long, value_name = "N", default_value_t = 40)]
    seeds: u64,
}

/// Something to run and what it is for.
struct Step {
    what: &'static str,
    work: Work,
    /// Whether it depends on how processes and threads take turns. What fails is then run once more, alone: a race
    /// of a test or of foreign software is told from a fault, which shows again. The summary names it.
    second_try: bool,
}

enum Work {
    /// The tests of the workspace but those of the documentation.
    Tests,
    /// A command of cargo.
    Cargo(String),
}

impl Step {
    fn certain(what: &'static str, arguments: &str) -> Step {
        Step { what, work: Work::Cargo(arguments.to_owned()), second_try: false }
    }

    fn racing(what: &'static str, arguments: impl Into<String>) -> Step {
        Step { what, work: Work::Cargo(arguments.into()), second_try: true }
    }

    fn play(&self, ahead: &mut Option<BuildAhead>) -> Result<Played> {
        let failed = match &self.work {
            Work::Tests => {
                println!("\n== {}", self.what);
                tests(ahead)?
            }
            Work::Cargo(arguments) => {
                println!("\n== {}: cargo {arguments}", self.what);
                cargo(arguments)?
            }
        };
        if failed.is_empty() {
            return Ok(Played::Well);
        }
        if !self.second_try {
            return Ok(Played::Failed);
        }
        println!("\n== FAILED, once more: {}", failed.join(", "));
        for arguments in &failed {
            if !cargo(arguments)?.is_empty() {
                return Ok(Played::Failed);
            }
        }
        Ok(Played::AtSecondTry(failed))
    }
}

enum Played {
    Well,
    /// What had to be run again.
    AtSecondTry(Vec<String>),
    Failed,
}

/// Runs the steps in order and stops at the first that fails: later ones take long.
pub fn run(options: &Options) -> Result<bool> {
    let mut steps = vec![
        Step::certain("formatting", "fmt --all --check"),
        Step::certain(
            "lints",
            "clippy --quiet --workspace --all-targets --all-features -- -D warnings",
        ),
        // Some tests of processes and of real threads are about time, and machines stall. What is tried again is one
        // binary, alone, and named in the end: one that is named there often has a race to be mended.
        Step { what: "unit, model, fault and process tests", work: Work::Tests, second_try: true },
        Step::certain(
            "the examples of the documentation",
            "test --quiet --workspace --all-features --doc",
        ),
        Step::certain("threads in every order", "xtask permutations"),
        Step::certain("simulated clusters", "xtask sim --seeds 2000 --broken-rules"),
    ];
    if !options.own {
        let seeds = options.seeds;
        steps.push(Step::racing(
            "foreign software against the server, our own against Apache ZooKeeper",
            "xtask interop",
        ));
        steps.push(Step::racing(
            "ensembles under load, with Apache ZooKeeper's members",
            "xtask ensemble",
        ));
        steps.push(Step::racing(
            "the same requests to Apache ZooKeeper and to Ironkeeper",
            format!("xtask differential --seeds {seeds}"),
        ));
    }
    let began = Instant::now();
    // Ended with the run, whatever comes of it.
    let mut ahead = None;
    let mut times = Vec::new();
    let mut again = Vec::new();
    for step in steps {
        let began = Instant::now();
        match step.play(&mut ahead)? {
            Played::Well => {}
            Played::AtSecondTry(failed) => again.extend(failed),
            Played::Failed => {
                println!("\nfailed: {}", step.what);
                return Ok(false);
            }
        }
        times.push((step.what, began.elapsed()));
    }
    println!("\nall is well:");
    for (what, took) in times {
        println!("  {:>4} s  {what}", took.as_secs());
    }
    println!("  {:>4} s  altogether", began.elapsed().as_secs());
    for arguments in again {
        println!("  passed at the second try only: cargo {arguments}");
    }
    Ok(true)
}

/// Builds all tests and runs them, several binaries at a time; what later steps need is built meanwhile. What comes
/// back is what to run again.
fn tests(ahead: &mut Option<BuildAhead>) -> Result<Vec<String>> {
    let began = Instant::now();
    let binaries = test_binaries::build()?;
    println!("   built in {} s", began.elapsed().as_secs());
    *ahead = Some(BuildAhead::start());
    let logs = tempfile::Builder::new().prefix("ironkeeper-tests-").tempdir()?;
    let run = |binary: &TestBinary| {
        let quiet = |command: &mut Command| {
            command.arg("--quiet");
        };
        let ran = binary.run(quiet, TEST_BINARY_MAX, logs.path())?;
        let (what, took) = (binary.arguments(), ran.took.as_secs_f64());
        match ran.end {
            End::Well => println!("{took:>7.1} s  {what}"),
            End::Failed => println!("FAILED {what}\n{}", ran.text),
            End::Hung => {
                let tail = tools::tail(&ran.text, 20);
                println!("{what} hangs: ended after {} s\n{tail}", TEST_BINARY_MAX.as_secs());
            }
        }
        Ok((ran.end != End::Well).then(|| format!("test --quiet --all-features {what}")))
    };
    let failed = side_by_side(&binaries, TEST_BINARIES_AT_ONCE, run)?;
    Ok(failed.into_iter().flatten().collect())
}

/// Runs cargo and shows what it says. What comes back is what to run again: nothing if all went well, what
/// failed if it is named, or else the whole command.
fn cargo(arguments: &str) -> Result<Vec<String>> {
    let mut command = Command::new(env!("CARGO"));
    command.args(arguments.split(' '));
    if arguments.starts_with("test ") {
        command.args(["--config", &limited_runner()?]);
    }
    let mut child = command
        .current_dir(repo::root())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cargo {arguments} did not start"))?;
    let stderr = child.stderr.take().context("stderr was piped")?;
    let (failed, of_them) = mpsc::channel();
    // On a thread: what a step leaves behind may hold the pipe open.
    thread::spawn(move || {
        for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            eprintln!("{line}");
            if let Some(again) = line.strip_prefix(TO_RUN_AGAIN) {
                let _ = failed.send(again.to_owned());
            }
        }
    });
    match limited::wait(&mut child, STEP_MAX)? {
        Some(status) if status.success() => return Ok(Vec::new()),
        Some(_) => {}
        None => eprintln!("it hangs: ended after {} s", STEP_MAX.as_secs()),
    }
    // Everything it printed has been read soon after its end.
    let mut failed: Vec<String> = Vec::new();
    while let Ok(again) = of_them.recv_timeout(LAST_WORDS) {
        failed.push(again);
    }
    if failed.is_empty() {
        failed.push(arguments.to_owned());
    }
    Ok(failed)
}

/// The setting of cargo that runs every test binary under a time limit.
fn limited_runner() -> Result<String> {
    let this = std::env::current_exe()?;
    let this = this.to_str().context("the path of this program is not readable text")?;
    let limit = TEST_BINARY_MAX.as_secs().to_string();
    let runner = serde_json::to_string(&[this, "limited", &limit])?;
    Ok(format!("target.'cfg(all())'.runner = {runner}"))
}
