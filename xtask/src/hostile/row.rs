//! What one attack did to one build, and how the table shows it.

use std::fmt;
use std::time::Duration;

use super::victim::Latencies;

#[derive(Debug, Default)]
pub struct Row {
    pub attack: &'static str,
    /// Which of the builds; empty if there is one.
    pub build: String,
    pub reads: Times,
    pub writes: Times,
    /// The longest sync of a log meanwhile, for which writes wait.
    pub sync: Duration,
    pub before_mb: u64,
    pub during_mb: u64,
    /// `None` if the server was gone by then.
    pub after_mb: Option<u64>,
    pub lines: usize,
    /// Leaders that came after the one before the attack.
    pub epochs: i64,
    /// What must not happen at all: a panic, an end, a server that serves no more.
    pub failures: Vec<String>,
    /// Limits that were broken.
    pub broken: Vec<String>,
}

/// How long one kind of the victim's requests took.
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
