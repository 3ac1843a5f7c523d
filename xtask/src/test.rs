//! `cargo xtask test`: everything that has to hold before a change lands.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;

use crate::{limited, repo};

/// How long one test binary may take: many times what the slowest takes on a busy machine.
const TEST_BINARY_MAX: Duration = Duration::from_secs(480);

/// How long one step may take.
const STEP_MAX: Duration = Duration::from_secs(1800);

/// How long to wait for another line of a command that has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

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

/// One command and what it is for.
struct Step {
    what: &'static str,
    arguments: String,
    /// Whether it depends on how processes and threads take turns. What fails is then run once more: a race
    /// of a test or of foreign software is told from a fault, which shows again. The summary names it.
    second_try: bool,
}

impl Step {
    fn certain(what: &'static str, arguments: &str) -> Step {
        Step { what, arguments: arguments.to_owned(), second_try: false }
    }

    fn racing(what: &'static str, arguments: impl Into<String>) -> Step {
        Step { what, arguments: arguments.into(), second_try: true }
    }

    fn play(&self) -> Result<Played> {
        println!("\n== {}: cargo {}", self.what, self.arguments);
        let failed = cargo(&self.arguments)?;
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
        Step::racing(
            "unit, model, fault and process tests",
            "test --quiet --workspace --all-features --no-fail-fast",
        ),
        Step::certain("threads in every order", "xtask permutations"),
        Step::certain("simulated clusters", "xtask sim --seeds 2000 --broken-rules"),
    ];
    if !options.own {
        let seeds = options.seeds;
        steps.push(Step::racing("foreign software against the server", "xtask interop"));
        steps.push(Step::racing(
            "ensembles under load, with Apache ZooKeeper's members",
            "xtask ensemble",
        ));
        steps.push(Step::racing(
            "our client against Apache ZooKeeper",
            "xtask interop --peer apache --only client",
        ));
        steps.push(Step::racing(
            "the same requests to Apache ZooKeeper and to Ironkeeper",
            format!("xtask differential --seeds {seeds}"),
        ));
    }
    let mut times = Vec::new();
    let mut again = Vec::new();
    for step in steps {
        let began = Instant::now();
        match step.play()? {
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
    for arguments in again {
        println!("  passed at the second try only: cargo {arguments}");
    }
    Ok(true)
}

/// Runs cargo and shows what it says. What comes back is what to run again: nothing if all went well, the test
/// binaries that failed if it names them, or else the whole command.
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
            if let Some(target) = failed_target(&line) {
                let _ = failed.send(target);
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
    while let Ok(target) = of_them.recv_timeout(LAST_WORDS) {
        failed.push(target);
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

/// The arguments that run one test binary again, if this line of cargo's is about one that failed.
fn failed_target(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("test failed, to rerun pass `")?;
    let target = rest.split('`').next()?;
    Some(format!("test --quiet --all-features {target}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_binary_that_failed_is_run_again_alone() {
        let line = "error: test failed, to rerun pass `-p ironkeeper-recipes --test lock`";
        let again = failed_target(line);
        assert_eq!(
            again.as_deref(),
            Some("test --quiet --all-features -p ironkeeper-recipes --test lock")
        );
        assert_eq!(failed_target("error: could not compile `xtask`"), None);
    }
}
