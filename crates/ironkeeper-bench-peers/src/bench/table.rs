//! The rows of the table: their definitions, their requirements, and whether the requirements are
//! met.

use std::collections::HashMap;
use std::fmt;

use serde_json::{Value, json};

use crate::measured::median;

/// A server of the comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Side {
    Apache,
    /// Measured with ensembles only, for readers who choose between the systems.
    Etcd,
    /// Another build of Ironkeeper, measured instead of Apache.
    Before,
    Ironkeeper,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Side::Apache => "Apache ZooKeeper",
            Side::Etcd => "etcd",
            Side::Before => "the build before",
            Side::Ironkeeper => "Ironkeeper",
        })
    }
}

impl Side {
    /// All sides, in the order of the columns.
    const ALL: [Side; 4] = [Side::Apache, Side::Etcd, Side::Before, Side::Ironkeeper];

    /// Returns the heading of the column.
    pub fn short(self) -> &'static str {
        match self {
            Side::Apache => "Apache",
            Side::Etcd => "etcd",
            Side::Before => "before",
            Side::Ironkeeper => "Ironkeeper",
        }
    }
}

/// One line of the table.
#[derive(Debug)]
pub struct Row {
    pub id: &'static str,
    /// The name of the measurement for `--only`.
    part_of: &'static str,
    work: &'static str,
    unit: Unit,
    required: Required,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    PerSecond,
    Micros,
    Millis,
    Seconds,
    Bytes,
    Megabytes,
}

/// What Ironkeeper must reach relative to Apache. A ratio is Ironkeeper's figure divided by
/// Apache's figure of the same round.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Required {
    Nothing,
    RatioAtLeast(f64),
    RatioAtMost(f64),
    AtMost(f64),
}

use Required::{AtMost, Nothing, RatioAtLeast, RatioAtMost};
use Unit::{Bytes, Megabytes, Micros, Millis, PerSecond, Seconds};

#[rustfmt::skip]
const ROWS: [Row; 33] = [
    line("read-pipelined", "reads, 16 connections x 32 in flight", PerSecond, RatioAtLeast(12.0)),
    line("read-pipelined-cpu", "- server CPU for each", Micros, RatioAtMost(1.0 / 12.0)).of("read-pipelined"),
    line("read-64", "reads, 64 connections x 1", PerSecond, RatioAtLeast(1.4)),
    line("read-one", "one read at a time", PerSecond, RatioAtLeast(1.15)),
    line("write-pipelined", "writes (setData), 16 x 32", PerSecond, RatioAtLeast(5.0)),
    line("write-pipelined-cpu", "- server CPU for each", Micros, RatioAtMost(1.0 / 6.0)).of("write-pipelined"),
    line("create-pipelined", "creates, 16 x 32", PerSecond, RatioAtLeast(5.0)),
    line("create-pipelined-cpu", "- server CPU for each", Micros, RatioAtMost(1.0 / 6.0)).of("create-pipelined"),
    line("write-64", "writes, 64 x 1", PerSecond, RatioAtLeast(1.4)),
    line("write-one", "one write at a time", PerSecond, RatioAtLeast(1.0)),
    line("mixed", "90 % reads, 16 x 32", PerSecond, RatioAtLeast(5.0)),
    line("watch", "1,000 watchers of one node, set to last event", Millis, RatioAtMost(0.7)),
    line("sessions", "opening sessions", PerSecond, RatioAtLeast(2.0)),
    line("empty", "empty server, resident", Megabytes, AtMost(20.0 * 1e6)),
    line("memory", "memory for each znode, resident in all", Bytes, AtMost(270.0)),
    line("memory-heap", "- heap after a full collection", Bytes, Nothing).of("memory"),
    line("fill", "filling the big tree, creates", PerSecond, Nothing).of("memory"),
    line("startup", "ready again with the big tree on disk", Seconds, RatioAtMost(0.25)),
    line("startup-foreign", "- on the files Apache wrote", Seconds, Nothing).of("startup"),
    line("snapshot", "snapshot of the big tree", Seconds, Nothing),
    line("stall-without", "longest write, no snapshot", Millis, Nothing).of("snapshot"),
    line("stall-with", "longest write while snapshots are taken", Millis, Nothing).of("snapshot"),
    line("stall", "- stall a snapshot adds", Millis, AtMost(5.0)).of("snapshot"),
    line("ensemble-idle", "all members idle, resident", Megabytes, AtMost(60.0 * 1e6)),
    line("ensemble-read", "reads, 16 connections x 32 over all members", PerSecond, RatioAtLeast(10.0)),
    line("ensemble-read-cpu", "- CPU of all members for each", Micros, Nothing).of("ensemble-read"),
    line("ensemble-write", "writes, 16 x 32", PerSecond, RatioAtLeast(4.0)),
    line("ensemble-write-cpu", "- CPU of all members for each", Micros, RatioAtMost(1.0 / 5.0)).of("ensemble-write"),
    line("ensemble-write-64", "writes, 64 x 1", PerSecond, RatioAtLeast(2.0)),
    line("ensemble-write-one", "one write at a time", PerSecond, RatioAtLeast(1.2)),
    line("ensemble-mixed", "90 % reads, 16 x 32", PerSecond, RatioAtLeast(5.0)),
    line("ensemble-locks", "lock hand-overs, 100 contenders", PerSecond, RatioAtLeast(1.5)),
    line("ensemble-failover", "leader killed, until a write is acknowledged", Millis, RatioAtMost(0.5)),
];

const fn line(id: &'static str, work: &'static str, unit: Unit, required: Required) -> Row {
    Row { id, part_of: id, work, unit, required }
}

impl Row {
    const fn of(self, part_of: &'static str) -> Row {
        Row { id: self.id, part_of, work: self.work, unit: self.unit, required: self.required }
    }
}

/// Returns the row with this id.
pub fn row(id: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.id == id)
}

/// Returns whether a name of `--only` belongs to the ensemble measurements.
pub fn is_of_ensembles(name: &str) -> bool {
    name.starts_with("ensemble-")
}

/// Returns the names that `--only` accepts.
pub fn names() -> Vec<&'static str> {
    let mut names: Vec<&str> = Vec::new();
    for row in &ROWS {
        if !names.contains(&row.part_of) {
            names.push(row.part_of);
        }
    }
    names
}

/// All figures: one for each row, side and round.
#[derive(Debug, Default)]
pub struct Measures {
    figures: HashMap<(&'static str, Side), Vec<f64>>,
    failures: Vec<String>,
}

impl Measures {
    /// Adds a figure in the base unit of the row: bytes, seconds, milliseconds or microseconds.
    pub fn add(&mut self, id: &'static str, side: Side, figure: f64) {
        debug_assert!(row(id).is_some(), "{id} is a row");
        self.figures.entry((id, side)).or_default().push(figure);
    }

    /// Records a failure for the final report; the remaining measurements of a long run continue.
    pub fn note_failure(&mut self, result: anyhow::Result<()>) {
        if let Err(why) = result {
            eprintln!("  failed: {why:#}");
            self.failures.push(format!("{why:#}"));
        }
    }

    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    fn median(&self, row: &Row, side: Side) -> Option<f64> {
        self.figures.get(&(row.id, side)).map(|figures| median(figures.iter().copied()))
    }

    /// Returns the median of the ratios of the rounds: an effect that slows down a whole round
    /// cancels out.
    fn ratio(&self, row: &Row) -> Option<f64> {
        let of = |side| self.figures.get(&(row.id, side));
        let (base, ours) = (of(self.base())?, of(Side::Ironkeeper)?);
        let rounds = base.iter().zip(ours).filter(|(base, _)| **base > 0.0);
        Some(median(rounds.map(|(base, ours)| ours / base))).filter(|ratio| ratio.is_finite())
    }

    /// Returns the side that ratios refer to: the build given by `--before`, or Apache.
    fn base(&self) -> Side {
        if self.has(Side::Before) { Side::Before } else { Side::Apache }
    }

    fn has(&self, side: Side) -> bool {
        self.figures.keys().any(|(_, of)| *of == side)
    }

    /// Returns whether the requirement is met; `None` if there is none or a figure is missing.
    fn met(&self, row: &Row) -> Option<bool> {
        match self.required(row) {
            Nothing => None,
            RatioAtLeast(least) => self.ratio(row).map(|ratio| ratio >= least),
            RatioAtMost(most) => self.ratio(row).map(|ratio| ratio <= most),
            AtMost(most) => self.median(row, Side::Ironkeeper).map(|ours| ours <= most),
        }
    }

    /// Returns the requirement of a row. Ratios to another build have none, because they vary with
    /// the machine; the reader assesses them.
    fn required(&self, row: &Row) -> Required {
        match row.required {
            RatioAtLeast(_) | RatioAtMost(_) if self.base() == Side::Before => Nothing,
            required => required,
        }
    }

    /// Returns the rows that have a figure.
    fn rows(&self) -> impl Iterator<Item = &'static Row> + '_ {
        let has = |row: &Row, side| self.median(row, side).is_some();
        ROWS.iter().filter(move |row| Side::ALL.iter().any(|side| has(row, *side)))
    }

    /// Returns whether all measurements succeeded and all requirements are met.
    pub fn all_met(&self) -> bool {
        self.failures.is_empty() && self.rows().all(|row| self.met(row) != Some(false))
    }

    pub fn to_markdown(&self) -> String {
        let is_shown =
            |side: &Side| *side == self.base() || *side == Side::Ironkeeper || self.has(*side);
        let sides: Vec<Side> = Side::ALL.into_iter().filter(is_shown).collect();
        let mut head = vec!["work".to_owned()];
        head.extend(sides.iter().map(|side| side.short().to_owned()));
        head.extend(["ratio", "required", "met"].map(String::from));
        // The figures of the sides and the ratio are right-aligned.
        let is_figure = |at: usize| (1..=sides.len() + 1).contains(&at);
        let mut lines = vec![head];
        for row in self.rows() {
            let figure = |side: &Side| {
                self.median(row, *side).map_or("-".to_owned(), |figure| row.unit.show(figure))
            };
            let mut line = vec![row.work.to_owned()];
            line.extend(sides.iter().map(figure));
            line.push(self.ratio(row).map_or("-".to_owned(), show_ratio));
            line.push(self.required(row).show(row.unit));
            line.push(match self.met(row) {
                Some(true) => "yes".to_owned(),
                Some(false) => "**no**".to_owned(),
                None => "-".to_owned(),
            });
            lines.push(line);
        }
        let widths: Vec<usize> = (0..lines[0].len())
            .map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or(0))
            .collect();
        let mut text = String::new();
        for (number, line) in lines.iter().enumerate() {
            for (at, (cell, width)) in line.iter().zip(&widths).enumerate() {
                text += &if is_figure(at) {
                    format!("| {cell:>width$} ")
                } else {
                    format!("| {cell:<width$} ")
                };
            }
            text += "|\n";
            if number == 0 {
                for (at, width) in widths.iter().enumerate() {
                    let end = if is_figure(at) { ":" } else { "-" };
                    text += &format!("| {}{end} ", "-".repeat(width - 1));
                }
                text += "|\n";
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    pub fn to_json(&self, note: &[String]) -> Value {
        let rows: Vec<Value> = self
            .rows()
            .map(|row| {
                let rounds = |side| self.figures.get(&(row.id, side)).cloned().unwrap_or_default();
                json!({
                    "id": row.id,
                    "work": row.work,
                    "unit": row.unit.name(),
                    "apache": self.median(row, Side::Apache),
                    "etcd": self.median(row, Side::Etcd),
                    "before": self.median(row, Side::Before),
                    "ironkeeper": self.median(row, Side::Ironkeeper),
                    "ratio": self.ratio(row),
                    "required": self.required(row).show(row.unit),
                    "met": self.met(row),
                    "rounds": {
                        "apache": rounds(Side::Apache),
                        "etcd": rounds(Side::Etcd),
                        "before": rounds(Side::Before),
                        "ironkeeper": rounds(Side::Ironkeeper),
                    },
                })
            })
            .collect();
        json!({ "machine": note, "rows": rows, "failures": self.failures })
    }
}

impl Required {
    fn show(self, unit: Unit) -> String {
        match self {
            Nothing => "-".to_owned(),
            RatioAtLeast(least) => format!("at least {least}x"),
            RatioAtMost(most) if most <= 0.2 => format!("at most 1/{:.0}", 1.0 / most),
            RatioAtMost(most) => format!("at most {most}x"),
            AtMost(most) => format!("at most {}", unit.show(most)),
        }
    }
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            PerSecond => "1/s",
            Micros => "us",
            Millis => "ms",
            Seconds => "s",
            Bytes | Megabytes => "bytes",
        }
    }

    fn show(self, figure: f64) -> String {
        match self {
            PerSecond => format!("{}/s", grouped(figure)),
            Micros => format!("{figure:.2} us"),
            Millis => format!("{figure:.1} ms"),
            Seconds => format!("{figure:.2} s"),
            Bytes => format!("{figure:.0} B"),
            Megabytes => format!("{:.1} MB", figure / 1e6),
        }
    }
}

/// Formats a ratio with three significant digits.
fn show_ratio(ratio: f64) -> String {
    let decimals = if ratio < 0.1 {
        3
    } else if ratio < 10.0 {
        2
    } else {
        1
    };
    format!("{ratio:.decimals$}x")
}

fn grouped(number: f64) -> String {
    let digits = format!("{number:.0}");
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Measures {
        let mut measures = Measures::default();
        // In one round both servers were twice as fast.
        for (apache, ours) in
            [(70_000.0, 600_000.0), (180_000.0, 2_700_000.0), (80_000.0, 1_200_000.0)]
        {
            measures.add("read-pipelined", Side::Apache, apache);
            measures.add("read-pipelined", Side::Ironkeeper, ours);
        }
        measures.add("read-pipelined-cpu", Side::Apache, 18.0);
        measures.add("read-pipelined-cpu", Side::Ironkeeper, 2.0);
        measures.add("empty", Side::Ironkeeper, 5.25e6);
        measures.add("fill", Side::Apache, 1234.0);
        measures
    }

    #[test]
    fn the_table_shows_medians_ratios_and_what_is_met() {
        let expected = "\
| work                                 |   Apache |  Ironkeeper | ratio | required        | met    |
| ------------------------------------ | -------: | ----------: | ----: | --------------- | ------ |
| reads, 16 connections x 32 in flight | 80,000/s | 1,200,000/s | 15.0x | at least 12x    | yes    |
| - server CPU for each                | 18.00 us |     2.00 us | 0.11x | at most 1/12    | **no** |
| empty server, resident               |        - |      5.2 MB |     - | at most 20.0 MB | yes    |
| filling the big tree, creates        |  1,234/s |           - |     - | -               | -      |";
        assert_eq!(sample().to_markdown(), expected);
        assert!(!sample().all_met());
    }

    #[test]
    fn etcd_has_a_column_where_it_was_measured() {
        let mut measures = Measures::default();
        measures.add("ensemble-write-one", Side::Etcd, 500.0);
        measures.add("ensemble-write-one", Side::Ironkeeper, 1000.0);
        let expected = "\
| work                | Apache |  etcd | Ironkeeper | ratio | required      | met |
| ------------------- | -----: | ----: | ---------: | ----: | ------------- | --- |
| one write at a time |      - | 500/s |    1,000/s |     - | at least 1.2x | -   |";
        assert_eq!(measures.to_markdown(), expected);
    }

    #[test]
    fn ratios_are_to_the_build_before_where_there_is_one() {
        let mut measures = Measures::default();
        for (before, ours) in [(100.0, 50.0), (100.0, 110.0), (100.0, 120.0)] {
            measures.add("read-64", Side::Before, before);
            measures.add("read-64", Side::Ironkeeper, ours);
        }
        let expected = "\
| work                      | before | Ironkeeper | ratio | required | met |
| ------------------------- | -----: | ---------: | ----: | -------- | --- |
| reads, 64 connections x 1 |  100/s |      110/s | 1.10x | -        | -   |";
        assert_eq!(measures.to_markdown(), expected);
    }

    #[test]
    fn what_cannot_be_told_is_not_missed() {
        let mut measures = Measures::default();
        measures.add("read-64", Side::Ironkeeper, 1.0);
        assert!(measures.all_met());
        measures.add("memory", Side::Ironkeeper, 271.0);
        assert!(!measures.all_met());
    }

    #[test]
    fn a_failure_is_never_a_success() {
        let mut measures = Measures::default();
        measures.note_failure(Ok(()));
        assert!(measures.all_met());
        measures.note_failure(Err(anyhow::anyhow!("no server").context("round 1")));
        assert!(!measures.all_met());
        assert_eq!(measures.failures(), ["round 1: no server"]);
    }

    #[test]
    fn the_json_keeps_every_round() {
        let json = sample().to_json(&["a machine".to_owned()]);
        assert_eq!(json["rows"][0]["apache"], 80_000.0);
        assert_eq!(json["rows"][0]["rounds"]["apache"].as_array().unwrap().len(), 3);
        assert_eq!(json["rows"][0]["met"], true);
        assert_eq!(json["rows"][2]["ratio"], Value::Null);
        assert_eq!(json["machine"][0], "a machine");
    }

    #[test]
    fn rows_have_names_of_their_own_and_belong_to_a_row() {
        for row in &ROWS {
            assert_eq!(ROWS.iter().filter(|other| other.id == row.id).count(), 1, "{}", row.id);
            assert!(ROWS.iter().any(|other| other.id == row.part_of), "{}", row.part_of);
        }
        assert!(names().contains(&"read-pipelined") && !names().contains(&"read-pipelined-cpu"));
    }

    #[test]
    fn an_even_number_of_rounds_has_a_median_between() {
        let mut measures = Measures::default();
        measures.add("read-one", Side::Apache, 1.0);
        measures.add("read-one", Side::Apache, 2.0);
        assert_eq!(measures.median(row("read-one").unwrap(), Side::Apache), Some(1.5));
    }
}
