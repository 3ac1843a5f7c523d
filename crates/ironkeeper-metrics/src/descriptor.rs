//! Rows that describe measurements, and the samples that are read through them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::histogram::{Distribution, Percentiles, Summary, Totals};
use crate::{LabelledCounter, LastMinMax};

/// What the value of a metric means over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Only increases, except for a reset.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Count, sum, minimum and maximum.
    Summary,
    /// A summary with percentiles.
    Distribution,
}

/// The unit of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unit {
    /// A number of things, which the help text names.
    Count,
    Bytes,
    Milliseconds,
    /// From 0 to 1.
    Ratio,
}

/// The description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Descriptor {
    /// The name as in Apache's metrics, without prefix.
    pub name: &'static str,
    pub kind: Kind,
    pub unit: Unit,
    /// One line for the reader of a dashboard.
    pub help: &'static str,
}

/// One row of a table: a metric of the measurements `S`.
#[derive(Debug)]
pub struct Metric<S: ?Sized + 'static> {
    pub descriptor: Descriptor,
    getter: Getter<S>,
    /// Whether a reset leaves the value.
    is_kept: bool,
}

#[derive(Debug)]
enum Getter<S: ?Sized + 'static> {
    Counter(fn(&S) -> &AtomicU64),
    /// A counter for each value of the label `key`.
    Labelled(fn(&S) -> &LabelledCounter),
    Summary(fn(&S) -> &Summary),
    Distribution(fn(&S) -> &Distribution),
    Sizes(fn(&S) -> &LastMinMax, fn(&LastMinMax) -> i64),
    /// Computed from the measurements; nothing to reset. Absent if `None`.
    Computed(fn(&S) -> Option<Reading>),
}

impl<S: ?Sized> Metric<S> {
    const fn new(
        name: &'static str,
        kind: Kind,
        unit: Unit,
        help: &'static str,
        getter: Getter<S>,
    ) -> Metric<S> {
        let descriptor = Descriptor { name, kind, unit, help };
        Metric { descriptor, getter, is_kept: false }
    }

    pub const fn counter(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        get: fn(&S) -> &AtomicU64,
    ) -> Metric<S> {
        Metric::new(name, Kind::Counter, unit, help, Getter::Counter(get))
    }

    /// A counter that Apache declares a gauge.
    pub const fn counting_gauge(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        get: fn(&S) -> &AtomicU64,
    ) -> Metric<S> {
        Metric::new(name, Kind::Gauge, unit, help, Getter::Counter(get))
    }

    /// One counter for each value of a label.
    pub const fn labelled_counter(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        get: fn(&S) -> &LabelledCounter,
    ) -> Metric<S> {
        Metric::new(name, Kind::Counter, unit, help, Getter::Labelled(get))
    }

    pub const fn summary(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        get: fn(&S) -> &Summary,
    ) -> Metric<S> {
        Metric::new(name, Kind::Summary, unit, help, Getter::Summary(get))
    }

    pub const fn distribution(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        get: fn(&S) -> &Distribution,
    ) -> Metric<S> {
        Metric::new(name, Kind::Distribution, unit, help, Getter::Distribution(get))
    }

    /// The last, minimum or maximum of some sizes, which `part` selects.
    pub const fn size(
        name: &'static str,
        help: &'static str,
        get: fn(&S) -> &LastMinMax,
        part: fn(&LastMinMax) -> i64,
    ) -> Metric<S> {
        Metric::new(name, Kind::Gauge, Unit::Bytes, help, Getter::Sizes(get, part))
    }

    /// A value that is computed when it is read. The metric is absent where `get` returns `None`.
    pub const fn gauge(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        get: fn(&S) -> Option<Reading>,
    ) -> Metric<S> {
        Metric::new(name, Kind::Gauge, unit, help, Getter::Computed(get))
    }

    /// A counter that is computed when it is read.
    pub const fn computed_counter(
        name: &'static str,
        unit: Unit,
        help: &'static str,
        get: fn(&S) -> Option<Reading>,
    ) -> Metric<S> {
        Metric::new(name, Kind::Counter, unit, help, Getter::Computed(get))
    }

    /// Excludes a metric from [`reset`].
    pub const fn kept(mut metric: Metric<S>) -> Metric<S> {
        metric.is_kept = true;
        metric
    }

    fn sample(&self, source: &S, out: &mut Vec<Sample>) {
        let descriptor = self.descriptor;
        let reading =
            match &self.getter {
                Getter::Counter(get) => Reading::Count(get(source).load(Relaxed)),
                Getter::Labelled(get) => {
                    return out.extend(get(source).counts().into_iter().map(|(label, count)| {
                        Sample { descriptor, label: Some(label), reading: Reading::Count(count) }
                    }));
                }
                Getter::Summary(get) => Reading::Summary(get(source).totals()),
                Getter::Distribution(get) => Reading::Distribution(get(source).percentiles()),
                Getter::Sizes(get, part) => Reading::Integer(part(get(source))),
                Getter::Computed(get) => match get(source) {
                    Some(reading) => reading,
                    None => return,
                },
            };
        out.push(Sample { descriptor, label: None, reading });
    }

    fn reset(&self, source: &S) {
        if self.is_kept {
            return;
        }
        match &self.getter {
            Getter::Counter(get) => get(source).store(0, Relaxed),
            Getter::Labelled(get) => get(source).reset(),
            Getter::Summary(get) => get(source).reset(),
            Getter::Distribution(get) => get(source).reset(),
            Getter::Sizes(get, _) => get(source).reset(),
            Getter::Computed(_) => {}
        }
    }
}

/// The value of a metric at one moment.
#[derive(Clone, Debug, PartialEq)]
pub enum Reading {
    Count(u64),
    Integer(i64),
    Real(f64),
    Summary(Totals),
    Distribution(Percentiles),
}

/// A metric with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    pub descriptor: Descriptor,
    /// The value of the label `key`, of metrics that have one value for each.
    pub label: Option<String>,
    pub reading: Reading,
}

/// Reads all rows of a table, in order.
pub fn collect<S: ?Sized>(table: &[Metric<S>], source: &S) -> Vec<Sample> {
    let mut samples = Vec::with_capacity(table.len());
    table.iter().for_each(|metric| metric.sample(source, &mut samples));
    samples
}

/// Resets everything that a table describes, except for rows that are [kept](Metric::kept).
pub fn reset<S: ?Sized>(table: &[Metric<S>], source: &S) {
    table.iter().for_each(|metric| metric.reset(source));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Source {
        requests: AtomicU64,
        failures: AtomicU64,
        sizes: LastMinMax,
        took: Distribution,
        by_name: LabelledCounter,
    }

    const TABLE: &[Metric<Source>] = &[
        Metric::counting_gauge("requests", Unit::Count, "Requests", |source| &source.requests),
        Metric::kept(Metric::counter("failures", Unit::Count, "Failures", |source| {
            &source.failures
        })),
        Metric::size("last_size", "Last size", |source| &source.sizes, LastMinMax::last),
        Metric::distribution("took", Unit::Milliseconds, "Time", |source| &source.took),
        Metric::labelled_counter("by_name", Unit::Count, "By name", |source| &source.by_name),
        Metric::gauge("absent", Unit::Count, "Never there", |_| None),
        Metric::gauge("share", Unit::Ratio, "A share", |source| {
            Some(Reading::Real(source.failures.load(Relaxed) as f64 / 4.0))
        }),
    ];

    fn used() -> Source {
        let source = Source::default();
        source.requests.store(3, Relaxed);
        source.failures.store(1, Relaxed);
        source.sizes.note(7);
        source.took.add(5);
        ["b", "a"].iter().for_each(|name| source.by_name.add(name));
        source
    }

    fn printed(source: &Source) -> Vec<String> {
        let print = |sample: Sample| {
            let value = match sample.reading {
                Reading::Count(value) => value.to_string(),
                Reading::Integer(value) => value.to_string(),
                Reading::Real(value) => value.to_string(),
                Reading::Summary(totals) => totals.sum.to_string(),
                Reading::Distribution(values) => values.quantile(0.5).to_string(),
            };
            let label = sample.label.map(|label| format!("{{{label}}}")).unwrap_or_default();
            format!("{}{label} {value}", sample.descriptor.name)
        };
        collect(TABLE, source).into_iter().map(print).collect()
    }

    #[test]
    fn rows_are_read_in_order_and_absent_values_are_left_out() {
        assert_eq!(
            printed(&used()),
            [
                "requests 3",
                "failures 1",
                "last_size 7",
                "took 5",
                "by_name{a} 1",
                "by_name{b} 1",
                "share 0.25"
            ]
        );
        assert_eq!(TABLE[0].descriptor.kind, Kind::Gauge);
        assert_eq!(TABLE[3].descriptor.kind, Kind::Distribution);
    }

    #[test]
    fn a_reset_leaves_what_is_kept() {
        let source = used();
        reset(TABLE, &source);
        assert_eq!(
            printed(&source),
            ["requests 0", "failures 1", "last_size -1", "took 0", "share 0.25"]
        );
    }
}
