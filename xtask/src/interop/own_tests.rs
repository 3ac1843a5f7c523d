//! Tests of our own crates, on the server under test instead of the embedded one.

use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::{Lab, Tally};
use crate::{repo, tools};

/// Tests of one package.
pub struct OwnTests<'a> {
    pub package: &'a str,
    /// Which of its test binaries; a pattern of cargo's.
    pub binaries: &'a str,
    /// How many run at a time.
    pub threads: usize,
    /// Where the server is.
    pub address: &'a str,
    /// Further variables of the environment.
    pub environment: &'a [(&'a str, String)],
}

impl OwnTests<'_> {
    /// Runs them to the end and counts.
    pub fn run(&self, lab: &Lab<'_>) -> Result<Tally> {
        let output = Command::new(env!("CARGO"))
            .args(["test", "--quiet", "--no-fail-fast", "-p", self.package])
            .args(["--test", self.binaries, "--", "--format", "pretty"])
            .args(["--test-threads", &self.threads.to_string()])
            .env("IRONKEEPER_TEST_SERVER", self.address)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(repo::root())
            .stdin(Stdio::null())
            .output()
            .context("cannot run cargo")?;
        let text = String::from_utf8_lossy(&output.stdout);
        std::fs::write(lab.dir.join("tests.log"), &*text)?;
        let mut tally = count(&text);
        if !output.status.success() && tally.failures.is_empty() {
            let errors = String::from_utf8_lossy(&output.stderr);
            tally.failures.push(format!("the tests ended early: {}", tools::tail(&errors, 20)));
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
    fn tests_are_counted_over_several_binaries() {
        let tally = count(
            "\nrunning 2 tests\ntest a::one ... ok\ntest a::two ... FAILED\n\ntest result: FAILED. 1 passed\n\
             running 1 test\ntest b::three ... ok\n\ntest result: ok. 1 passed; 0 failed\n",
        );
        assert_eq!(tally.passed, 2);
        assert_eq!(tally.failures, ["a::two"]);
    }
}
