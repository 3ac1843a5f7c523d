//! The report of a run, as text and as JSON.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use serde::Serialize;

use super::histogram::{Histogram, Latency};
use super::load::Outcome;
use super::process::Usage;
use super::session::code_name;

/// The result of a workload. Fields that do not apply to the workload are omitted.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    workload: &'static str,
    server: String,
    setting: String,
    seconds: f64,
    operations: u64,
    rate_per_s: f64,
    /// One entry for each kind of operation.
    latency_us: Vec<Timed>,
    errors: BTreeMap<String, u64>,
    lost_connections: u32,
    unanswered: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sent_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    received_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_cpu_us_per_operation: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    server_resident_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    longest: Vec<Stalled>,
}

#[derive(Debug, Serialize)]
struct Timed {
    what: &'static str,
    count: u64,
    #[serde(flatten)]
    latency: Latency,
}

#[derive(Debug, Serialize)]
struct Stalled {
    /// When the request was sent, since measuring began and on the wall clock.
    at_s: f64,
    unix_ms: u64,
    ms: f64,
}

impl Report {
    pub(crate) fn new(workload: &'static str, server: &str, setting: String) -> Report {
        Report {
            workload,
            server: server.to_owned(),
            setting,
            seconds: 0.0,
            operations: 0,
            rate_per_s: 0.0,
            latency_us: Vec::new(),
            errors: BTreeMap::new(),
            lost_connections: 0,
            unanswered: 0,
            sent_bytes: None,
            received_bytes: None,
            client_cpu_s: None,
            server_cpu_s: None,
            server_cpu_us_per_operation: None,
            server_resident_bytes: None,
            longest: Vec::new(),
        }
    }

    /// Copies the result of the load engine; `kinds` names the kinds of its requests.
    pub(crate) fn take_load(&mut self, outcome: &Outcome, kinds: &[&'static str]) {
        for (what, histogram) in kinds.iter().zip(&outcome.latencies) {
            self.timed(what, histogram);
        }
        for (code, count) in &outcome.errors {
            self.errors.insert(code_name(*code), *count);
        }
        self.lost_connections = outcome.lost_connections;
        self.unanswered = outcome.unanswered;
        self.sent_bytes = Some(outcome.sent_bytes);
        self.received_bytes = Some(outcome.received_bytes);
        self.rate(outcome.operations(), outcome.elapsed);
        self.used(outcome.client, outcome.server);
    }

    pub(crate) fn take_longest(&mut self, outcome: &Outcome) {
        self.longest = outcome
            .longest
            .iter()
            .map(|slow| Stalled {
                at_s: slow.at_ns as f64 / 1e9,
                unix_ms: (outcome.began + Duration::from_nanos(slow.at_ns))
                    .duration_since(UNIX_EPOCH)
                    .map_or(0, |since| since.as_millis() as u64),
                ms: slow.latency_ns as f64 / 1e6,
            })
            .collect();
    }

    pub(crate) fn rate(&mut self, operations: u64, elapsed: Duration) {
        self.operations = operations;
        self.seconds = elapsed.as_secs_f64();
        self.rate_per_s = if elapsed.is_zero() { 0.0 } else { operations as f64 / self.seconds };
    }

    pub(crate) fn timed(&mut self, what: &'static str, histogram: &Histogram) {
        if histogram.count() > 0 {
            let latency = histogram.summary();
            self.latency_us.push(Timed { what, count: histogram.count(), latency });
        }
    }

    pub(crate) fn lost(&mut self, connections: u32) {
        self.lost_connections = connections;
    }

    /// Sets the CPU time while measuring, of this process and of the server. Call after
    /// [`Report::rate`].
    pub(crate) fn used(&mut self, client: Option<Duration>, server: Option<Usage>) {
        self.client_cpu_s = client.map(|cpu| cpu.as_secs_f64());
        if let Some(server) = server {
            let cpu = server.cpu.as_secs_f64();
            self.server_cpu_s = Some(cpu);
            self.server_resident_bytes = Some(server.resident_bytes);
            self.server_cpu_us_per_operation =
                (self.operations > 0).then(|| cpu * 1e6 / self.operations as f64);
        }
    }

    pub(crate) fn print(&self, json: bool) -> Result<()> {
        let text = if json { serde_json::to_string_pretty(self)? + "\n" } else { self.to_string() };
        std::io::stdout().write_all(text.as_bytes())?;
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} on {}: {}", self.workload, self.server, self.setting)?;
        let mut line = |label: &str, text: &str| writeln!(f, "  {label:<10} {text}");
        line("rate", &format!("{} /s", grouped(self.rate_per_s)))?;
        line(
            "operations",
            &format!("{} in {:.2} s", grouped(self.operations as f64), self.seconds),
        )?;
        if let (Some(sent), Some(received)) = (self.sent_bytes, self.received_bytes) {
            line("bytes", &format!("{} sent, {} received", bytes(sent), bytes(received)))?;
        }
        line("errors", &self.errors_text())?;
        if let Some(cpu) = self.client_cpu_s {
            line("client", &format!("{:.2} cores", cpu / self.seconds.max(1e-9)))?;
        }
        if let (Some(cpu), Some(resident)) = (self.server_cpu_s, self.server_resident_bytes) {
            let mut text = format!("{:.2} cores", cpu / self.seconds.max(1e-9));
            if let Some(each) = self.server_cpu_us_per_operation {
                let _ = write!(text, ", {each:.2} us for each operation");
            }
            let _ = write!(text, ", {} resident", bytes(resident));
            line("server", &text)?;
        }
        if !self.latency_us.is_empty() {
            writeln!(f)?;
            write_row(
                f,
                "latency",
                ["mean", "p50", "p90", "p99", "p99.9", "max"].map(String::from),
            )?;
        }
        for Timed { what, latency, .. } in &self.latency_us {
            let Latency { mean, p50, p90, p99, p999, max } = *latency;
            write_row(f, what, [mean, p50, p90, p99, p999, max].map(micros))?;
        }
        if !self.longest.is_empty() {
            writeln!(f, "\n  longest    sent at")?;
        }
        for Stalled { at_s, unix_ms, ms } in &self.longest {
            writeln!(f, "  {:>8}   {at_s:8.3} s   {}", micros(ms * 1000.0), time_of_day(*unix_ms))?;
        }
        Ok(())
    }
}

impl Report {
    fn errors_text(&self) -> String {
        let mut parts: Vec<String> =
            self.errors.iter().map(|(name, count)| format!("{count} x {name}")).collect();
        if self.lost_connections > 0 {
            parts.push(format!("{} connections lost", self.lost_connections));
        }
        if self.unanswered > 0 {
            parts.push(format!("{} requests without an answer", self.unanswered));
        }
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}

fn write_row(f: &mut fmt::Formatter<'_>, label: &str, cells: [String; 6]) -> fmt::Result {
    write!(f, "  {label:<10}")?;
    for cell in cells {
        write!(f, " {cell:>9}")?;
    }
    writeln!(f)
}

/// Formats microseconds in the unit that keeps three digits.
fn micros(us: f64) -> String {
    let (value, unit) = match us {
        us if us < 1000.0 => (us, "us"),
        us if us < 1_000_000.0 => (us / 1000.0, "ms"),
        us => (us / 1_000_000.0, "s"),
    };
    let decimals = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.decimals$} {unit}")
}

/// Formats the time of day as server logs do.
fn time_of_day(unix_ms: u64) -> String {
    let (s, ms) = (unix_ms / 1000 % 86_400, unix_ms % 1000);
    format!("{:02}:{:02}:{:02}.{ms:03} UTC", s / 3600, s / 60 % 60, s % 60)
}

fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        count if count < 1e3 => format!("{count} B"),
        count if count < 1e6 => format!("{:.1} kB", count / 1e3),
        count if count < 1e9 => format!("{:.1} MB", count / 1e6),
        count => format!("{:.2} GB", count / 1e9),
    }
}

/// Formats a number with thousands separators; small numbers have one decimal.
fn grouped(number: f64) -> String {
    if number < 100.0 && number.fract() != 0.0 {
        return format!("{number:.1}");
    }
    let digits = format!("{number:.0}");
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at) % 3 == 0 {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Report {
        let mut report = Report::new("stall", "h:1", "1 connection".to_owned());
        let mut histogram = Histogram::new();
        for us in 1..=100 {
            histogram.record(us * 1000);
        }
        histogram.record(2_500_000_000);
        report.timed("writes", &histogram);
        report.timed("reads", &Histogram::new());
        report.errors.insert(code_name(-101), 3);
        report.lost(1);
        report.rate(1_234_567, Duration::from_secs(10));
        let usage = Usage { cpu: Duration::from_secs(5), resident_bytes: 20_000_000 };
        report.used(Some(Duration::from_secs(4)), Some(usage));
        report.longest.push(Stalled { at_s: 1.25, unix_ms: 1_700_000_000_123, ms: 2500.0 });
        report
    }

    #[test]
    fn the_text_tells_everything_in_columns() {
        let expected = "\
stall on h:1: 1 connection
  rate       123,457 /s
  operations 1,234,567 in 10.00 s
  errors     3 x NoNode, 1 connections lost
  client     0.40 cores
  server     0.50 cores, 4.05 us for each operation, 20.0 MB resident

  latency         mean       p50       p90       p99     p99.9       max
  writes       24.8 ms   51.2 us   91.1 us    100 us    2.50 s    2.50 s

  longest    sent at
    2.50 s      1.250 s   22:13:20.123 UTC
";
        assert_eq!(sample().to_string(), expected);
    }

    #[test]
    fn the_json_has_what_the_text_has() {
        let json: serde_json::Value = serde_json::to_value(sample()).unwrap();
        assert_eq!(json["workload"], "stall");
        assert_eq!(json["rate_per_s"], 123_456.7);
        assert_eq!(json["errors"]["NoNode"], 3);
        assert_eq!(json["latency_us"][0]["what"], "writes");
        assert_eq!(json["latency_us"][0]["max"], 2_500_000.0);
        assert_eq!(json["longest"][0]["ms"], 2500.0);
        assert!(json.get("sent_bytes").is_none(), "what does not apply is left out");
        assert_eq!(json["latency_us"].as_array().unwrap().len(), 1, "nothing was read");
    }

    #[test]
    fn numbers_are_short_and_grouped() {
        assert_eq!(grouped(0.0), "0");
        assert_eq!(grouped(12.34), "12.3");
        assert_eq!(grouped(999.9), "1,000");
        assert_eq!(grouped(1_000_000.0), "1,000,000");
        assert_eq!(
            (micros(3.456), micros(999.0), micros(45_600.0)),
            ("3.46 us".into(), "999 us".into(), "45.6 ms".into())
        );
        assert_eq!(
            (bytes(12), bytes(1_500), bytes(3_000_000_000)),
            ("12 B".into(), "1.5 kB".into(), "3.00 GB".into())
        );
    }
}
