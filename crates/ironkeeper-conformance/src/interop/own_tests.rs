//! Tests of our own crates, on the server under test instead of the embedded one.
//!
//! They are built as `cargo xtask test` builds them, so that there is nothing to build after it.

use std::time::Duration;

use anyhow::{Context, Result};
use ironkeeper_steps::limited::End;
use ironkeeper_steps::process;
use ironkeeper_steps::test_binaries::{self, TestBinary};

use super::{Lab, Tally};

/// How long one binary may take: many times what the slowest takes.
const BINARY_MAX: Duration = Duration::from_secs(900);

/// Tests of one package.
pub struct OwnTests<'a> {
    pub package: &'a str,
    /// Which of its test binaries.
    pub binary: &'a str,
    /// How many tests run at a time.
    pub threads: usize,
    /// Where the server is.
    pub address: &'a str,
    /// Further variables of the environment.
    pub environment: &'a [(&'a str, String)],
}

impl OwnTests<'_> {
    /// Runs them to the end and counts.
    pub fn run(&self, lab: &Lab<'_>) -> Result<Tally> {
        let binary = test_binaries::build()?
            .into_iter()
            .find(|binary| {
                binary.package == self.package
                    && binary.kind == "test"
                    && binary.name == self.binary
            })
            .with_context(|| format!("{} has no tests named {}", self.package, self.binary))?;
        self.run_binary(lab, &binary)
    }

    fn run_binary(&self, lab: &Lab<'_>, binary: &TestBinary) -> Result<Tally> {
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
            tally.failures.push(format!(
                "{} {what}: {}",
                binary.name,
                process::tail(&ran.text, 20)
            ));
        }
        Ok(tally)
    }
}

/// Counts the tests in the output of the test runner. A failure has the name of the test and the
/// end of what the test printed.
fn count(text: &str) -> Tally {
    let mut tally = Tally::default();
    for line in text.lines().filter_map(|line| line.strip_prefix("test ")) {
        match line.rsplit_once(" ... ") {
            Some((_, "ok")) => tally.passed += 1,
            Some((name, _)) => tally.failures.push(match printed_by(name, text) {
                Some(printed) => format!("{name}\n{}", process::tail(printed, 20)),
                None => name.to_owned(),
            }),
            None => {}
        }
    }
    tally
}

/// Returns what a failed test printed: the test runner repeats it after the last test.
fn printed_by<'a>(test: &str, text: &'a str) -> Option<&'a str> {
    let (_, printed) = text.split_once(&format!("\n---- {test} stdout ----\n"))?;
    let end = [printed.find("\n---- "), printed.find("\nfailures:\n")].into_iter().flatten().min();
    Some(printed[..end.unwrap_or(printed.len())].trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_are_counted_and_failures_named_with_what_they_printed() {
        let tally = count(
            "\nrunning 3 tests\ntest a::one ... ok\ntest a::two ... FAILED\ntest b ... FAILED\n\n\
             failures:\n\n---- a::two stdout ----\n\nthread 'a::two' panicked at a.rs:1:1:\n\
             left: 1\n\n---- b stdout ----\nError: closed\n\n\nfailures:\n    a::two\n    b\n\n\
             test result: FAILED. 1 passed; 2 failed\n",
        );
        assert_eq!(tally.passed, 1);
        let [two, b] = &tally.failures[..] else { panic!("{:?}", tally.failures) };
        assert_eq!(two, "a::two\nthread 'a::two' panicked at a.rs:1:1:\nleft: 1");
        assert_eq!(b, "b\nError: closed");
    }

    #[test]
    fn a_failure_that_printed_nothing_is_named() {
        assert_eq!(count("test a ... FAILED\n").failures, ["a"]);
    }
}
