//! Tests of our own crates, on the server under test instead of the embedded one.
//!
//! They are built as `cargo xtask test` builds them, so that there is nothing to build after it.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Lab, Tally};
use crate::side_by_side::side_by_side;
use crate::test_binaries::{self, End, TestBinary};
use crate::tools;

/// How long one binary may take: many times what the slowest takes.
const BINARY_MAX: Duration = Duration::from_secs(300);

/// Tests of one package.
pub struct OwnTests<'a> {
    pub package: &'a str,
    /// Which of its test binaries; all of them if none is named.
    pub binary: Option<&'a str>,
    /// How many binaries run at a time, and how many tests of each.
    pub binaries_at_once: usize,
    pub threads: usize,
    /// Where the server is.
    pub address: &'a str,
    /// Further variables of the environment.
    pub environment: &'a [(&'a str, String)],
}

impl OwnTests<'_> {
    /// Runs them to the end and counts.
    pub fn run(&self, lab: &Lab<'_>) -> Result<Tally> {
        let mut binaries = test_binaries::build()?;
        binaries.retain(|binary| {
            binary.package == self.package
                && binary.kind == "test"
                && self.binary.is_none_or(|name| binary.name == name)
        });
        ensure!(!binaries.is_empty(), "{} has no such tests", self.package);
        let mut tally = Tally::default();
        let run = |binary: &TestBinary| self.run_one(lab, binary);
        for one in side_by_side(&binaries, self.binaries_at_once, run)? {
            tally.add(one);
        }
        Ok(tally)
    }

    fn run_one(&self, lab: &Lab<'_>, binary: &TestBinary) -> Result<Tally> {
        let threads = self.threads.to_string();
        let ran = binary.run(
            |command| {
                command
                    .args(["--format", "pretty", "--test-threads", &threads])
                    .env("IRONKEEPER_TEST_SERVER", self.address)
                    .envs(self.environment.iter().map(|(name, value)| (name, value)));
            },
            BINARY_MAX,
            &lab.dir,
        )?;
        println!("   {} took {:.1} s", binary.name, ran.took.as_secs_f64());
        let mut tally = count(&ran.text);
        let what = match ran.end {
            End::Well => return Ok(tally),
            End::Failed => "ended early",
            End::Hung => "hung",
        };
        if tally.failures.is_empty() || ran.end == End::Hung {
            tally.failures.push(format!("{} {what}: {}", binary.name, tools::tail(&ran.text, 20)));
        }
        Ok(tally)
    }
}

/// What the test runner says of each test.
fn count(text: &str) -> Tally {
    let mut tally = Tally::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("test ")) {
        match line.rsplit_once(" ... ") {
            Some((_, "ok")) => tally.passed += 1,
            Some((name, _)) => tally.failures.push(name.to_owned()),
            None => {}
        }
    }
    tally
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_failures_named() {
        let tally = count(
            "\nrunning 2 tests\ntest a::one ... ok\ntest a::two ... FAILED\n\n\
             test result: FAILED. 1 passed; 1 failed\n",
        );
        assert_eq!(tally.passed, 1);
        assert_eq!(tally.failures, ["a::two"]);
    }
}
