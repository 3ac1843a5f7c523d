//! Counts of a step: checks that passed, that failed, and that passed only at the second attempt.

use std::fmt;

/// The counts of a step. The step succeeds if `failed == 0`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Count {
    pub passed: usize,
    pub failed: usize,
    pub second_tries: Vec<SecondTry>,
}

/// A check that failed and then passed when repeated. Only checks with a known race in third-party
/// software are repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecondTry {
    pub check: String,
    pub cause: &'static str,
}

impl Count {
    /// Returns a count of one failure, for a step without its own count.
    pub fn failure() -> Count {
        Count { failed: 1, ..Count::default() }
    }

    pub fn is_good(&self) -> bool {
        self.failed == 0
    }

    pub fn add(&mut self, other: Count) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.second_tries.extend(other.second_tries);
    }

    /// Adds up the summary lines of Rust's test runner (`test result: ok. 3 passed; 0 failed; …`)
    /// and of our own programs (`3 passed, 0 failed`).
    pub fn of_output(text: &str) -> Count {
        let mut count = Count::default();
        for line in text.lines() {
            let counts = match line.strip_prefix("test result: ") {
                Some(result) => result.split_once(". ").map_or("", |(_, counts)| counts),
                None => line,
            };
            let mut words = counts.split([' ', ',', ';']).filter(|word| !word.is_empty());
            let mut number = |what| {
                let number = words.next()?.parse::<usize>().ok()?;
                (words.next() == Some(what)).then_some(number)
            };
            if let (Some(passed), Some(failed)) = (number("passed"), number("failed")) {
                count.passed += passed;
                count.failed += failed;
            }
        }
        count
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closing_lines_are_added_up_and_all_others_left_out() {
        let count = Count::of_output(
            "running 2 tests\n..\n\
             test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; finished in 0.1s\n\
             test result: FAILED. 3 passed; 1 failed; 0 ignored\n\
             a test that 7 passed, 9 failed\n\
             40 passed, 2 failed\n",
        );
        assert_eq!(count.to_string(), "45 passed, 3 failed");
        assert!(!count.is_good() && !Count::failure().is_good());
    }
}
