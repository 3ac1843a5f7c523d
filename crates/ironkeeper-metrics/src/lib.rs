//! Counters, summaries and histograms, and the descriptors by which they are named, read and reset.
//!
//! A component keeps its measurements in a struct of atomics and describes them in a table of
//! [`Metric`] rows: name, kind, unit, help and getter. The table is the only list: [`collect`]
//! reads every row into [`Sample`]s, which renderers print (`mntr` today), and [`reset`] resets
//! what the rows point to. Recording does not use the table, so a request costs the same atomic
//! additions with or without it.
//!
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
//!
//! use ironkeeper_metrics::{Metric, Reading, Summary, Unit, collect, reset};
//!
//! #[derive(Default)]
//! struct Disk {
//!     errors: AtomicU64,
//!     fsync: Summary,
//! }
//!
//! const METRICS: &[Metric<Disk>] = &[
//!     Metric::counter("errors", Unit::Count, "Failed operations", |disk| &disk.errors),
//!     Metric::summary("fsynctime", Unit::Milliseconds, "Duration of a sync", |disk| &disk.fsync),
//! ];
//!
//! let disk = Disk::default();
//! disk.errors.fetch_add(2, Relaxed);
//! let samples = collect(METRICS, &disk);
//! assert_eq!(samples[0].descriptor.name, "errors");
//! assert_eq!(samples[0].reading, Reading::Count(2));
//! reset(METRICS, &disk);
//! assert_eq!(disk.errors.load(Relaxed), 0);
//! ```
//!
//! This crate has no clock, no I/O and no registry: the owner of the measurements passes them to
//! the functions.

mod descriptor;
mod extremes;
mod histogram;
mod labelled;

pub use descriptor::{Descriptor, Kind, Metric, Reading, Sample, Unit, collect, reset};
pub use extremes::LastMinMax;
pub use histogram::{Distribution, Percentiles, Summary, Totals, four_decimals};
pub use labelled::LabelledCounter;
