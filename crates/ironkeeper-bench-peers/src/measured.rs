//! Load programs that report their own counts: each prints `begin NAME` and `end NAME OPERATIONS
//! SECONDS` around each load. The CPU time in between is read from `/proc`.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// One load, as reported by a program.
#[derive(Debug)]
pub struct Load {
    pub name: String,
    pub operations: f64,
    pub seconds: f64,
    pub cpu_seconds: f64,
}

impl Load {
    pub fn per_second(&self) -> f64 {
        self.operations / self.seconds
    }

    /// Returns the microseconds per operation.
    pub fn each_us(&self) -> f64 {
        self.seconds / self.operations * 1e6
    }

    /// Returns the microseconds of CPU time per operation.
    pub fn cpu_us(&self) -> f64 {
        self.cpu_seconds / self.operations * 1e6
    }
}

/// Runs a program until it exits.
pub fn run(command: &mut Command) -> Result<Vec<Load>> {
    let mut child = command.stdout(Stdio::piped()).spawn().context("cannot be started")?;
    let stdout = child.stdout.take().context("stdout was piped")?;
    let mut loads = Vec::new();
    let mut cpu_before = 0.0;
    for line in BufReader::new(stdout).lines() {
        let line = line?;
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["begin", _] => cpu_before = cpu_seconds(child.id())?,
            ["end", name, operations, seconds] => loads.push(Load {
                name: name.to_owned(),
                operations: operations.parse()?,
                seconds: seconds.parse()?,
                cpu_seconds: cpu_seconds(child.id())? - cpu_before,
            }),
            _ => bail!("it printed {line:?}"),
        }
    }
    let status = child.wait()?;
    if !status.success() {
        bail!("it ended early ({status})");
    }
    Ok(loads)
}

/// Returns the CPU time of a process: fields 14 and 15 of `stat`, counted after the name, in
/// hundredths of a second.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let (_, fields) = stat.rsplit_once(')').context("a process has a name")?;
    let ticks = fields.split_whitespace().skip(11).take(2).map(str::parse::<u64>);
    Ok(ticks.sum::<Result<u64, _>>()? as f64 / 100.0)
}

/// Returns the median, the mean of the two middle figures if their number is even. NaN if there are
/// none.
pub fn median(figures: impl Iterator<Item = f64>) -> f64 {
    let mut figures: Vec<f64> = figures.collect();
    figures.sort_by(f64::total_cmp);
    let at = |at: usize| figures.get(at).copied().unwrap_or(f64::NAN);
    f64::midpoint(at(figures.len().wrapping_sub(1) / 2), at(figures.len() / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Result<Vec<Load>> {
        run(Command::new("sh").args(["-c", script]))
    }

    #[test]
    fn loads_are_read_in_their_order() {
        let loads = shell("echo begin a; echo end a 10 2; echo begin b; echo end b 4 0.5").unwrap();
        let names: Vec<&str> = loads.iter().map(|load| load.name.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert_eq!((loads[0].per_second(), loads[1].each_us()), (5.0, 125_000.0));
    }

    #[test]
    fn a_program_that_fails_or_says_something_else_is_an_error() {
        assert!(shell("echo begin a; exit 3").is_err());
        assert!(shell("echo hello").is_err());
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0].into_iter()), 2.0);
        assert_eq!(median([4.0].into_iter()), 4.0);
        assert_eq!(median([4.0, 1.0].into_iter()), 2.5);
        assert!(median([].into_iter()).is_nan());
    }
}
