//! The result of a suite.

use std::fmt;

use crate::count::SecondTry;

/// Counts of a suite's checks. A suite passes when `failures` is empty.
#[derive(Debug, Default)]
pub struct Tally {
    pub passed: usize,
    pub skipped: usize,
    /// One line or more for each failed check, starting with its name.
    pub failures: Vec<String>,
    /// Checks that passed only at the second attempt.
    pub second_tries: Vec<SecondTry>,
    /// Checks that fail on Apache as well and are therefore not required.
    pub excused: usize,
}

impl Tally {
    pub fn check(&mut self, name: &str, result: Result<(), String>) {
        match result {
            Ok(()) => self.passed += 1,
            Err(why) => self.failures.push(format!("{name}: {why}")),
        }
    }

    pub fn add(&mut self, other: Self) {
        self.passed += other.passed;
        self.skipped += other.skipped;
        self.excused += other.excused;
        self.failures.extend(other.failures);
        self.second_tries.extend(other.second_tries);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for failure in &self.failures {
            writeln!(f, "FAIL {}", failure.replace('\n', "\n        "))?;
            write!(f, "   ")?;
        }
        write!(
            f,
            "{} passed, {} failed, {} skipped",
            self.passed,
            self.failures.len(),
            self.skipped
        )?;
        if self.excused > 0 {
            write!(f, " ({} more fail on Apache as well)", self.excused)?;
        }
        Ok(())
    }
}
