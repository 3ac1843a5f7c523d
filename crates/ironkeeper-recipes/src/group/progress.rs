//! Progress reports: how far each part of a job has come, also of those who died on the way.
//!
//! # On the tree
//! ```text
//! /progress/import           container
//!   known/anna               persistent: her last report: `running 40 100 reading the third file`
//!   alive/anna               ephemeral: she works on it
//! ```
//! A report is a word for the state (`running`, `done`, `failed`), how much is done, of how much (or `-`),
//! and a note.
//!
//! # Steps
//! 1. [`ProgressReporter::start`]: keep an ephemeral node, and write the first report.
//! 2. [`ProgressReporter::report`]: write the report, in the background. If reports come faster than they
//!    can be written, the latest one is.
//! 3. [`ProgressReporter::finish`] or [`ProgressReporter::fail`]: write the last report, which stays.
//! 4. [`ProgressBoard`]: follow all reports.
//!
//! # Guarantees
//! Reports of one reporter are seen in their order, some left out; the last one always is seen. A
//! report that says `running` without a living reporter is told as one that died. One watch event per
//! report that is written, at everybody who looks on.
//!
//! # When things break
//! - Disconnected: the latest report is written after the reconnect.
//! - Session over: the reporter counts as dead; [`ProgressReporter::finish`] fails. Start another one with a
//!   new client, under the same name: it goes on with its own reports.
//! - Dropped without an end: as if it had died.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

use ironkeeper_client::Client;

use crate::cache::{CacheEvent, CacheEvents, TreeCache};
use crate::error::Result;
use crate::group::roster::{OwnEntry, entries};

/// How a part of a job stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportState {
    /// It is worked on, if its reporter lives.
    Running,
    /// It is done.
    Done,
    /// It has failed.
    Failed,
}

/// How far a part of a job has come.
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
    /// How it stands.
    pub state: ReportState,
    /// How much is done.
    pub done: u64,
    /// Of how much, if that is known.
    pub total: Option<u64>,
    /// What else there is to say.
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

/// The text is not a report.
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

/// One that reports how far it has come.
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
    /// Begins to report under a name, of how much there is to do if that is known. If the name is in use,
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

    /// Our name.
    pub fn id(&self) -> &str {
        self.entry.id()
    }

    /// Reports how much is done, in the background.
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

    /// Reports that it is done. All of it is, if it was said how much there is.
    pub async fn finish(self, note: impl Into<String>) -> Result<()> {
        self.change(|report| {
            report.state = ReportState::Done;
            report.done = report.total.unwrap_or(report.done);
            report.note = note.into();
        });
        self.end().await
    }

    /// Reports that it has failed.
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

    /// Changes the report and has it written, both under the lock: reports are written in their order.
    fn change(&self, change: impl FnOnce(&mut Report)) {
        // Nothing under the lock can panic but the conversion of a note, which leaves the rest right.
        let mut report = self.report.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut report);
        self.entry.known().want_data(report.to_string());
    }
}

/// A part of a job, as seen by others.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Part {
    /// Its last report.
    pub report: Report,
    /// Whether its reporter lives.
    pub is_alive: bool,
}

impl Part {
    /// Whether its reporter died before it was done or had failed.
    pub fn has_died(&self) -> bool {
        self.report.state == ReportState::Running && !self.is_alive
    }

    /// Whether nothing more is to be expected: it is done, has failed, or has died.
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
    /// Reads all reports, and follows them.
    pub async fn open(client: &Client, path: &str) -> Result<ProgressBoard> {
        let cache = TreeCache::start(client, path);
        cache.initialized().await?;
        Ok(ProgressBoard { cache })
    }

    /// All parts by their names. What somebody else has written there and is no report is left out.
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

    /// How much is done, of how much, over all parts that say how much there is.
    pub fn overall(&self) -> (u64, u64) {
        let parts = self.parts();
        let known = parts.values().filter_map(|part| Some((part.report.done, part.report.total?)));
        known.fold((0, 0), |(done, total), (more, of)| {
            (u64::saturating_add(done, more), u64::saturating_add(total, of))
        })
    }

    /// The parts of the present, and all changes of them from now on.
    pub fn changes(&self) -> PartChanges<'_> {
        PartChanges { board: self, events: self.cache.events(), told: BTreeMap::new() }
    }

    /// Waits until so many parts are there and all parts are ended, and tells them. An error when the
    /// session is over.
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

/// The changes on a [`ProgressBoard`].
#[derive(Debug)]
pub struct PartChanges<'a> {
    board: &'a ProgressBoard,
    events: CacheEvents,
    told: BTreeMap<String, Part>,
}

impl PartChanges<'_> {
    /// The next part that is new or another than before, with its name; `None` when the session is over.
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
