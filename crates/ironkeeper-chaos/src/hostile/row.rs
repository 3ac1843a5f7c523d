//! The result of one attack on one build, and its formatting in the table.

use std::fmt;
use std::time::Duration;

use super::victim::Latencies;

#[derive(Debug, Default)]
pub struct Row {
    pub attack: &'static str,
    /// The name of the build; empty if there is only one.
    pub build: String,
    pub reads: Times,
    pub writes: Times,
    /// The longest sync of a log during the attack; writes wait for it.
    pub sync: Duration,
    pub before_mb: u64,
    pub during_mb: u64,
    /// `None` if the server had terminated by then.
    pub after_mb: Option<u64>,
    pub lines: usize,
    /// The number of new epochs since the attack began.
    pub epochs: i64,
    /// Events that must never happen: a panic, a terminated process, a server that no longer
    /// serves.
    pub failures: Vec<String>,
    /// Descriptions of the exceeded limits.
    pub broken: Vec<String>,
}

/// The latencies of one kind of the victim's requests.
#[derive(Debug, Default, Clone, Copy)]
pub struct Times {
    pub p99: Duration,
    pub longest: Duration,
}

impl Times {
    pub fn of(latencies: &Latencies) -> Times {
        Times { p99: latencies.percentile(99), longest: latencies.longest() }
    }
}

impl Row {
    pub fn is_good(&self) -> bool {
        self.failures.is_empty() && self.broken.is_empty()
    }

    fn verdict(&self) -> String {
        if self.is_good() {
            return "ok".to_owned();
        }
        self.failures.iter().chain(&self.broken).cloned().collect::<Vec<_>>().join(", ")
    }
}

pub const HEADER: &str = "\
| attack | build | read p99 | longest | write p99 | longest | sync | MB before | during | after \
| log | epochs | verdict |
| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |";

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1e3);
        let after = self.after_mb.map_or_else(|| "-".to_owned(), |mb| mb.to_string());
        write!(
            f,
            "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {after} | {} | {} | {} |",
            self.attack,
            self.build,
            ms(self.reads.p99),
            ms(self.reads.longest),
            ms(self.writes.p99),
            ms(self.writes.longest),
            ms(self.sync),
            self.before_mb,
            self.during_mb,
            self.lines,
            self.epochs,
            self.verdict()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_cell_for_each_column() {
        let row = Row { sync: Duration::from_micros(1_250), ..Row::default() };
        let cells = |line: &str| line.matches('|').count();
        assert_eq!(cells(&row.to_string()), cells(HEADER.lines().next().unwrap()));
        assert!(row.to_string().contains("1.2 ms") && row.to_string().contains("| ok |"));
        let dead = Row { failures: vec!["ended".to_owned()], ..Row::default() };
        assert!(!dead.is_good() && dead.to_string().ends_with("| ended |"));
    }
}
