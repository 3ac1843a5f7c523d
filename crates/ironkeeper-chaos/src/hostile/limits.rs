//! The limits of the cost of an attack.

use std::time::Duration;

use super::attack::Attack;
use super::row::Row;
use super::target::Size;

#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// The 99th percentile of the victim's reads, and of its writes without the sync of the log.
    p99_max: Duration,
    /// The longest latency of a single request.
    longest_max: Duration,
    /// Megabytes above the memory before the attack.
    during_mb: u64,
    after_mb: u64,
    lines: usize,
}

impl Limits {
    /// Returns the limits. In the short form the machine may run other work, and a sync of its disk
    /// may take a second. The short form has to detect requests that stall a server; each of these
    /// took many seconds.
    pub fn of(size: Size) -> Limits {
        let (p99, longest, lines) = match size {
            // Log lines are counted until a minute after the attack, an interval that overlaps
            // three calendar minutes: most kinds of lines that clients cause are limited per
            // minute.
            Size::Full => (50, 1_000, 400),
            Size::Short => (3_000, 5_000, 100),
        };
        Limits {
            p99_max: Duration::from_millis(p99),
            longest_max: Duration::from_millis(longest),
            during_mb: 768,
            after_mb: 64,
            lines,
        }
    }

    /// Returns whether the memory kept after an attack is within the limit.
    pub fn is_memory_back(&self, attack: &Attack, before_mb: u64, after_mb: u64) -> bool {
        after_mb <= before_mb + attack.leaves_mb + self.after_mb
    }

    /// Returns descriptions of the exceeded limits.
    pub fn broken(&self, attack: &Attack, row: &Row) -> Vec<String> {
        let mut broken = Vec::new();
        let mut check = |holds: bool, what: &str| {
            if !holds {
                broken.push(what.to_owned());
            }
        };
        for (times, sync, what) in
            [(row.reads, Duration::ZERO, "read"), (row.writes, row.sync, "write")]
        {
            check(times.p99 <= self.p99_max + sync, &format!("{what} p99"));
            check(times.longest <= self.longest_max + sync, &format!("longest {what}"));
        }
        let during_max_mb = row.before_mb + attack.leaves_mb + self.during_mb;
        check(row.during_mb <= during_max_mb, "memory during");
        let is_back = |mb| self.is_memory_back(attack, row.before_mb, mb);
        check(row.after_mb.is_none_or(is_back), "memory after");
        check(row.lines <= self.lines, "log");
        check(row.epochs == 0, "epochs");
        broken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hostile::attack;
    use crate::hostile::row::Times;

    #[test]
    fn each_limit_is_reported_by_its_name() {
        let attack = attack::all().next().unwrap();
        let limits = Limits::of(Size::Full);
        let mut row = Row { before_mb: 10, during_mb: 20, ..Row::default() };
        assert!(limits.broken(attack, &row).is_empty());
        let ms = Duration::from_millis;
        row.sync = ms(30);
        row.reads = Times { p99: ms(51), longest: ms(1_001) };
        row.writes = Times { p99: ms(80), longest: ms(1_030) };
        assert_eq!(limits.broken(attack, &row), ["read p99", "longest read"]);
        row.writes = Times { p99: ms(81), longest: ms(1_031) };
        row.during_mb = 10_000;
        row.after_mb = Some(10_000);
        row.lines = 1_000;
        row.epochs = 1;
        let broken = limits.broken(attack, &row);
        assert_eq!(
            broken,
            [
                "read p99",
                "longest read",
                "write p99",
                "longest write",
                "memory during",
                "memory after",
                "log",
                "epochs"
            ]
        );
        assert!(!Limits::of(Size::Short).broken(attack, &row).contains(&"read p99".to_owned()));
    }
}
