//! `cargo xtask test`: the checks that every change has to pass and that need only this repository.

use std::process::Command;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use ironkeeper_steps::count::Count;
use ironkeeper_steps::limited::End;
use ironkeeper_steps::slots::Slots;
use ironkeeper_steps::stages::{self, Stage, Step};
use ironkeeper_steps::test_binaries::{self, TestBinary};
use ironkeeper_steps::{builds, process};

use crate::{permutations, sim, suites, tidy};

/// The longest time of one test binary: many times that of the slowest one on a busy machine.
const TEST_BINARY_MAX: Duration = Duration::from_secs(900);

/// The numbers of concurrent test binaries, and of concurrent tests in each: tests wait more than
/// they compute.
const TEST_BINARIES_AT_ONCE: usize = 3;
const TEST_THREADS: &str = "4";

/// Options of `cargo xtask test`.
#[derive(Debug, Args)]
pub struct Options {}

/// Runs all steps; returns `false` when any of them failed.
pub fn run(_: &Options) -> Result<bool> {
    let logs = tempfile::Builder::new().prefix("ironkeeper-tests-").tempdir()?;
    let logs = logs.path();
    let cargo = |arguments| stages::command(stages::cargo(arguments), logs);
    let binaries = Mutex::new(Vec::new());
    let build = || {
        *binaries.lock().expect("no step panics with it") = test_binaries::build()?;
        Ok(Count::default())
    };
    let tests = || run_binaries(&binaries.lock().expect("no step panics with it"), logs);
    let documentation = || {
        let mut command = stages::cargo("test --quiet --workspace --all-features --doc");
        command.args(["--config", &stages::limited_runner(TEST_BINARY_MAX)?]);
        stages::command(stages::nice(&command), logs)
    };
    let stages: Vec<Stage<'_>> = vec![
        vec![vec![Step::new("formatting", || cargo("fmt --all --check"))]],
        vec![vec![Step::new("tidy", tidy::step)]],
        vec![vec![Step::new("lints", || {
            cargo("clippy --quiet --workspace --all-targets --all-features -- -D warnings")
        })]],
        vec![vec![Step::new("building the tests", build)]],
        // Tests with processes wait; the other track computes.
        vec![
            vec![Step::new("unit, model, fault and process tests", tests)],
            vec![
                Step::new("the examples of the documentation", documentation),
                Step::new("building the permutations", || {
                    stages::command(stages::nice(&permutations::build_command()), logs)
                }),
                Step::new("threads in every order", || {
                    let options = stages::options("");
                    stages::command(stages::nice(&permutations::command(&options)), logs)
                }),
                Step::new("building the simulator and the checked server", || {
                    let command = stages::nice(&builds::build_checked_command());
                    stages::command(command, logs)
                }),
                Step::new("scenarios of the comparison, with Apache's recorded replies", || {
                    let command = suites::command("differential", ["--alone"]);
                    stages::command(stages::nice(&command), logs)
                }),
                Step::new("simulated clusters", || {
                    let options = stages::options("--seeds 2000 --broken-rules");
                    stages::command(stages::nice(&sim::command(&options)?), logs)
                }),
            ],
        ],
    ];
    Ok(stages::run(stages))
}

/// Runs all test binaries, several at a time, large ones first: they take longest.
fn run_binaries(binaries: &[TestBinary], logs: &std::path::Path) -> Result<Count> {
    let mut binaries = binaries.to_vec();
    let bytes = |binary: &TestBinary| binary.executable.metadata().map_or(0, |file| file.len());
    binaries.sort_by_key(|binary| std::cmp::Reverse(bytes(binary)));
    let run = |binary: &TestBinary| {
        let adjust = |command: &mut Command| {
            command.args(["--quiet", "--test-threads", TEST_THREADS]);
        };
        let ran = binary.run(adjust, TEST_BINARY_MAX, logs)?;
        let (what, took) = (binary.arguments(), ran.took.as_secs_f64());
        let mut count = Count::of_output(&ran.text);
        match ran.end {
            End::Well => println!("{took:>7.1} s  {what}: {count}"),
            End::Failed => println!("FAILED {what}\n{}", ran.text),
            End::Hung => {
                let tail = process::tail(&ran.text, 20);
                println!("{what} hangs: ended after {} s\n{tail}", TEST_BINARY_MAX.as_secs());
            }
        }
        if ran.end != End::Well {
            println!("to run it again: cargo test --all-features {what}");
            count.failed = count.failed.max(1);
        }
        Ok(count)
    };
    let mut all = Count::default();
    for count in Slots::new(TEST_BINARIES_AT_ONCE).run(&binaries, run)? {
        all.add(count);
    }
    Ok(all)
}
