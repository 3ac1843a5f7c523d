//! Progress reports of the parts of a job, also of parts whose reporter has died.
//!
//! # On the tree
//! ```text
//! /progress/import           container
//!   known/anna               persistent: the last report: `running 40 100 reading the third file`
//!   alive/anna               ephemeral: the reporter's session is open
//! ```
//! A report consists of the state (`running`, `done`, `failed`), the amount that is done, the total
//! amount (or `-`), and a note.
//!
//! # Steps
//! 1. [`ProgressReporter::start`]: keep an ephemeral node, and write the first report.
//! 2. [`ProgressReporter::report`]: write the report, in the background. If reports arrive faster
//!    than they can be written, only the latest one is written.
//! 3. [`ProgressReporter::finish`] or [`ProgressReporter::fail`]: write the last report, which
//!    stays.
//! 4. [`ProgressBoard`]: follow all reports.
//!
//! # Guarantees
//! The reports of one reporter are seen in order; some may be skipped, but never the last one. A
//! report with the state `running` whose reporter has no ephemeral node counts as died
//! ([`Part::has_died`]). Each board receives one watch event per written report.
//!
//! # When things break
//! - The connection is lost: the latest report is written after the reconnect.
//! - The session has ended: the reporter counts as dead; [`ProgressReporter::finish`] fails. Start
//!   another reporter with a new client and the same name: it continues with its own reports.
//! - The reporter is dropped before `finish` or `fail`: it counts as dead.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use ironkeeper_client::Client;

use crate::cache::{CacheEvent, CacheEvents, TreeCache};
use crate::error::Result;
use crate::group::roster::{OwnEntry, entries};

/// The state of a part of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportState {
    /// The part is in progress, if its reporter is alive.
    Running,
    /// The part is done.
    Done,
    /// The part has failed.
    Failed,
}

/// The progress of a part of a job.
///
/// ```
/// use ironkeeper_recipes::group::{Report, ReportState};
///
/// let report: Report = "running 40 100 reading the third file".parse().unwrap();
/// assert_eq!((report.state, report.done, report.total), (ReportState::Running, 40, Some(100)));
/// assert_eq!(report.to_string(), "running 40 100 reading the third file");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The state of the part.
    pub state: ReportState,
    /// The amount that is done.
    pub done: u64,
    /// The total amount, if it is known.
    pub total: Option<u64>,
    /// Additional text.
    pub note: String,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            ReportState::Running => "running",
            ReportState::Done => "done",
            ReportState::Failed => "failed",
        };
        write!(f, "{state} {} ", self.done)?;
        match self.total {
            Some(total) => write!(f, "{total} {}", self.note),
            None => write!(f, "- {}", self.note),
        }
    }
}

/// The error for text that is not a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a report: expected `state done total note`")]
pub struct NoReport;

impl FromStr for Report {
    type Err = NoReport;

    fn from_str(text: &str) -> Result<Report, NoReport> {
        let mut words = text.splitn(4, ' ');
        let state = match words.next() {
            Some("running") => ReportState::Running,
            Some("done") => ReportState::Done,
            Some("failed") => ReportState::Failed,
            _ => return Err(NoReport),
        };
        let done = words.next().and_then(|word| word.parse().ok()).ok_or(NoReport)?;
        let total = match words.next().ok_or(NoReport)? {
            "-" => None,
            number => Some(number.parse().map_err(|_| NoReport)?),
        };
        Ok(Report { state, done, total, note: words.next().unwrap_or_default().to_owned() })
    }
}

/// A reporter of the progress of one part.
///
/// ```
/// use ironkeeper_client::Client;
/// use ironkeeper_recipes::group::{ProgressBoard, ProgressReporter};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let anna = ProgressReporter::start(&client, "/progress/import", "anna", Some(100)).await?;
///     for file in 1..=3 {
///         anna.report(file * 30, format!("file {file} is read")); // does not wait
///     }
///     anna.finish("all is read").await?;
///
///     let board = ProgressBoard::open(&client, "/progress/import").await?;
///     let anna = &board.parts()["anna"];
///     assert!(anna.is_ended());
///     assert_eq!(anna.report.note, "all is read");
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct ProgressReporter {
    entry: OwnEntry,
    report: Mutex<Report>,
}

impl ProgressReporter {
    /// Starts a reporter with a name and the total amount, if it is known. If the name is in use,
    /// waits until it is free.
    pub async fn start(
        client: &Client,
        path: &str,
        id: &str,
        total: Option<u64>,
    ) -> Result<ProgressReporter> {
        let report = Report { state: ReportState::Running, done: 0, total, note: String::new() };
        let entry = OwnEntry::enter(client, path, id, report.to_string().into(), "").await?;
        Ok(ProgressReporter { entry, report: Mutex::new(report) })
    }

    /// Returns the name of this reporter.
    pub fn id(&self) -> &str {
        self.entry.id()
    }

    /// Reports the amount that is done, in the background.
    pub fn report(&self, done: u64, note: impl Into<String>) {
        self.change(|report| {
            report.done = done;
            report.note = note.into();
        });
    }

    /// Waits until the last report has been written.
    pub async fn flush(&self) -> Result<()> {
        self.entry.known().written().await
    }

    /// Reports that the part is done. If the total amount is known, the amount that is done becomes
    /// the total.
    pub async fn finish(self, note: impl Into<String>) -> Result<()> {
        self.change(|report| {
            report.state = ReportState::Done;
            report.done = report.total.unwrap_or(report.done);
            report.note = note.into();
        });
        self.end().await
    }

    /// Reports that the part has failed.
    pub async fn fail(self, note: impl Into<String>) -> Result<()> {
        self.change(|report| {
            report.state = ReportState::Failed;
            report.note = note.into();
        });
        self.end().await
    }

    async fn end(self) -> Result<()> {
        self.flush().await?;
        self.entry.end().await
    }

    /// Changes the report and queues its write, both under the lock, so that reports are written in
    /// order.
    fn change(&self, change: impl FnOnce(&mut Report)) {
        // Under the lock only the conversion of a note can panic, which leaves the report
        // consistent.
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut report);
        self.entry.known().want_data(report.to_string());
    }
}

/// A part of a job, as seen by other clients.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// The last report of the part.
    pub report: Report,
    /// Whether the ephemeral node of the reporter exists.
    pub is_alive: bool,
}

impl Part {
    /// Returns whether the reporter died before the part was done or had failed.
    pub fn has_died(&self) -> bool {
        self.report.state == ReportState::Running && !self.is_alive
    }

    /// Returns whether no further report is expected: the part is done, has failed, or has died.
    pub fn is_ended(&self) -> bool {
        self.report.state != ReportState::Running || !self.is_alive
    }
}

/// All reports on a path, followed in the background.
#[derive(Debug)]
pub struct ProgressBoard {
    cache: TreeCache,
}

impl ProgressBoard {
    /// Reads all reports, and follows them in the background.
    pub async fn open(client: &Client, path: &str) -> Result<ProgressBoard> {
        let cache = TreeCache::start(client, path);
        cache.initialized().await?;
        Ok(ProgressBoard { cache })
    }

    /// Returns all parts by their names, without nodes whose data is not a report.
    pub fn parts(&self) -> BTreeMap<String, Part> {
        let part = |known: &[u8], is_alive| {
            let report = std::str::from_utf8(known).ok()?.parse().ok()?;
            Some(Part { report, is_alive })
        };
        entries(&self.cache)
            .into_iter()
            .filter_map(|(id, entry)| Some((id, part(&entry.known?, entry.alive.is_some())?)))
            .collect()
    }

    /// Returns the sums of the done and total amounts of all parts whose total amount is known.
    pub fn overall(&self) -> (u64, u64) {
        let parts = self.parts();
        let known = parts.values().filter_map(|part| Some((part.report.done, part.report.total?)));
        known.fold((0, 0), |(done, total), (more, of)| {
            (u64::saturating_add(done, more), u64::saturating_add(total, of))
        })
    }

    /// Returns the present parts, and all changes of them from now on.
    pub fn changes(&self) -> PartChanges<'_> {
        PartChanges { board: self, events: self.cache.events(), told: BTreeMap::new() }
    }

    /// Waits until at least `count` parts exist and all parts have ended, and returns them. Returns
    /// an error if the session ends.
    pub async fn ended(&self, count: usize) -> Result<BTreeMap<String, Part>> {
        let mut events = self.cache.events();
        loop {
            let parts = self.parts();
            if parts.len() >= count && parts.values().all(Part::is_ended) {
                return Ok(parts);
            }
            if let Some(CacheEvent::Ended(why)) = events.next().await {
                return Err(why);
            }
        }
    }
}

/// The stream of changes on a [`ProgressBoard`].
#[derive(Debug)]
pub struct PartChanges<'a> {
    board: &'a ProgressBoard,
    events: CacheEvents,
    told: BTreeMap<String, Part>,
}

impl PartChanges<'_> {
    /// Returns the next part that is new or has changed, with its name; `None` when the session has
    /// ended.
    pub async fn next(&mut self) -> Option<(String, Part)> {
        loop {
            let parts = self.board.parts();
            self.told.retain(|id, _| parts.contains_key(id));
            if let Some((id, part)) = parts.into_iter().find(|(id, p)| self.told.get(id) != Some(p))
            {
                self.told.insert(id.clone(), part.clone());
                return Some((id, part));
            }
            match self.events.next().await? {
                CacheEvent::Ended(_) => return None,
                _ => continue,
            }
        }
    }
}
