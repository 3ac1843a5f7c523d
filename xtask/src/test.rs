//! `cargo xtask test`: everything that has to hold before a change lands.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result};
use clap::Args;

use crate::repo;

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
        Step::certain("simulated clusters", "xtask sim --seeds 2000"),
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
    let mut child = Command::new(env!("CARGO"))
        .args(arguments.split(' '))
        .current_dir(repo::root())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cargo {arguments} did not start"))?;
    let mut failed = Vec::new();
    let stderr = child.stderr.take().context("stderr was piped")?;
    for line in BufReader::new(stderr).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        eprintln!("{line}");
        failed.extend(failed_target(&line));
    }
    if child.wait()?.success() {
        return Ok(Vec::new());
    }
    if failed.is_empty() {
        failed.push(arguments.to_owned());
    }
    Ok(failed)
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
