//! The loads of the table and their generator, `ironkeeper bench`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use ironkeeper_peers::server::Server;
use ironkeeper_steps::process;
use serde_json::Value;

use super::table::{Measures, Side};

/// The measured servers: a single server, or all members of an ensemble.
#[derive(Debug)]
pub struct Target {
    /// The addresses, separated by commas.
    addresses: String,
    pids: Vec<u32>,
}

impl Target {
    pub fn of<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Result<Target> {
        let (mut addresses, mut pids) = (Vec::new(), Vec::new());
        for server in servers {
            addresses.push(server.address());
            pids.push(server.pid().context("the server is not running")?);
        }
        Ok(Target { addresses: addresses.join(","), pids })
    }
}

/// The parent of all nodes of a load; short, because Apache keeps whole paths in memory.
pub const PREFIX: &str = "/bench";

/// A named workload.
#[derive(Debug)]
pub struct Load {
    pub name: &'static str,
    pub args: &'static [&'static str],
    result: What,
    /// The row with the server's CPU time for each operation, if there is one.
    pub cpu_row: Option<&'static str>,
}

/// The value of a report that is the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum What {
    /// Operations per second, in a run of a fixed time.
    Rate,
    /// Operations per second, in a run of a fixed number of operations.
    RateOfCount,
    /// The median time to the last event, in milliseconds.
    LastEvent,
}

/// The loads, in the order of execution: loads that grow the tree are last.
#[rustfmt::skip]
pub const LOADS: [Load; 10] = [
    load("read-pipelined", &["read", "-c", "16", "-p", "32"], What::Rate).cpu("read-pipelined-cpu"),
    load("read-64", &["read", "-c", "64", "-p", "1"], What::Rate),
    load("read-one", &["read", "-c", "1", "-p", "1"], What::Rate),
    load("write-pipelined", &["write", "-c", "16", "-p", "32"], What::Rate).cpu("write-pipelined-cpu"),
    load("write-64", &["write", "-c", "64", "-p", "1"], What::Rate),
    load("write-one", &["write", "-c", "1", "-p", "1"], What::Rate),
    load("mixed", &["mixed", "-c", "16", "-p", "32"], What::Rate),
    load("watch", &["watch", "--watchers", "1000", "-n", "50", "--warmup", "20"], What::LastEvent),
    load("sessions", &["sessions", "-n", "5000", "--hold"], What::RateOfCount),
    load("create-pipelined", &["create", "-c", "16", "-p", "32"], What::Rate).cpu("create-pipelined-cpu"),
];

/// The loads of ensembles; their connections are distributed over all members.
#[rustfmt::skip]
pub const ENSEMBLE_LOADS: [Load; 5] = [
    load("ensemble-read", &["read", "-c", "16", "-p", "32"], What::Rate).cpu("ensemble-read-cpu"),
    load("ensemble-write", &["write", "-c", "16", "-p", "32"], What::Rate).cpu("ensemble-write-cpu"),
    load("ensemble-write-64", &["write", "-c", "64", "-p", "1"], What::Rate),
    load("ensemble-write-one", &["write", "-c", "1", "-p", "1"], What::Rate),
    load("ensemble-mixed", &["mixed", "-c", "16", "-p", "32"], What::Rate),
];

const fn load(name: &'static str, args: &'static [&'static str], result: What) -> Load {
    Load { name, args, result, cpu_row: None }
}

impl Load {
    const fn cpu(self, row: &'static str) -> Load {
        Load { name: self.name, args: self.args, result: self.result, cpu_row: Some(row) }
    }
}

/// Runs `ironkeeper bench` and reads its report.
#[derive(Debug)]
pub struct Generator {
    binary: PathBuf,
}

impl Generator {
    pub fn new(binary: PathBuf) -> Generator {
        Generator { binary }
    }

    pub fn warm_up(&self, target: &Target, seconds: f64) -> Result<()> {
        let seconds = seconds.to_string();
        self.run(target, &["mixed", "--read-percent", "50", "--seconds", &seconds])?;
        Ok(())
    }

    pub fn measure(
        &self,
        target: &Target,
        load: &Load,
        seconds: f64,
        side: Side,
        measures: &mut Measures,
    ) -> Result<()> {
        let mut args = load.args.to_vec();
        let seconds = seconds.to_string();
        if load.result == What::Rate {
            args.extend(["--seconds", &seconds]);
        }
        let report = self.run(target, &args)?;
        let result = match load.result {
            What::Rate | What::RateOfCount => number(&report, "/rate_per_s")?,
            What::LastEvent => median_us(&report, "last event")? / 1000.0,
        };
        measures.add(load.name, side, result);
        let cpu = number(&report, "/server_cpu_us_per_operation");
        if let Some(row) = load.cpu_row {
            measures.add(row, side, cpu?);
        }
        eprintln!("  {:<20} {side:<16} {result:.1}", load.name);
        Ok(())
    }

    /// Runs the load generator once. Returns an error if the server replied with errors, because
    /// they make the figures worthless.
    pub fn run(&self, target: &Target, args: &[&str]) -> Result<Value> {
        let pids: Vec<String> = target.pids.iter().map(u32::to_string).collect();
        let pids = pids.join(",");
        let addresses = &target.addresses;
        let text = process::run(
            Command::new(&self.binary)
                .args([
                    "bench", "--json", "--server", addresses, "--pid", &pids, "--prefix", PREFIX,
                ])
                .args(args),
        )?;
        let report: Value =
            serde_json::from_str(&text).context("the load generator's report is no JSON")?;
        let errors = report["errors"].as_object().is_some_and(|errors| !errors.is_empty());
        let lost = number(&report, "/lost_connections")? + number(&report, "/unanswered")?;
        if errors || lost > 0.0 {
            bail!("the run had errors: {report}");
        }
        Ok(report)
    }
}

/// Returns a number of a report, by its JSON pointer.
pub fn number(report: &Value, pointer: &str) -> Result<f64> {
    report
        .pointer(pointer)
        .and_then(Value::as_f64)
        .with_context(|| format!("the load generator's report has no number {pointer}"))
}

/// Returns the median latency of one kind of operation in a report.
fn median_us(report: &Value, what: &str) -> Result<f64> {
    report["latency_us"]
        .as_array()
        .and_then(|timed| timed.iter().find(|timed| timed["what"] == what))
        .and_then(|timed| timed["p50"].as_f64())
        .with_context(|| format!("the load generator's report has no time of {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::table;

    #[test]
    fn every_load_has_its_rows() {
        for load in LOADS.iter().chain(&ENSEMBLE_LOADS) {
            assert!(table::row(load.name).is_some(), "{}", load.name);
            assert!(load.cpu_row.is_none_or(|row| table::row(row).is_some()), "{}", load.name);
        }
    }

    #[test]
    fn figures_are_found_in_a_report() {
        let report = serde_json::json!({
            "rate_per_s": 12.5,
            "latency_us": [{"what": "events", "p50": 1.0}, {"what": "last event", "p50": 2.0}],
        });
        assert_eq!(number(&report, "/rate_per_s").unwrap(), 12.5);
        assert_eq!(median_us(&report, "last event").unwrap(), 2.0);
        assert!(number(&report, "/nothing").is_err());
        assert!(median_us(&report, "nothing").is_err());
    }
}
