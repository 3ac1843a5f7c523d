//! The log as one sequence of records across its files.
//!
//! The stream detects missing records: each record must be the successor of the previous one, or
//! the first of a later epoch. A file that ends in a torn record is followed by a file that starts
//! with the zxid of the torn record, because its writer restarted.
//!
//! Apache 3.9 logs an error transaction for a request that it cannot decode with the zxid of the
//! previous transaction. Such a record changes nothing and is skipped.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::txn::TxnHeader;
use ironkeeper_proto::{OpCode, Zxid};

use super::range::LogRange;
use super::reader::{FileEnd, LogEnd, LogReader, LogRecord, Next};
use crate::catalog::{self, LogFile};
use crate::disk::Disk;
use crate::error::StoreError;

/// A cursor over the records of all files from a zxid on.
#[derive(Debug)]
pub struct LogStream<D: Disk> {
    disk: D,
    dir: PathBuf,
    /// Files that are not opened yet, oldest first.
    waiting: VecDeque<LogFile>,
    reader: Option<LogReader<D::File>>,
    /// The zxid in the name of the file that was opened last.
    opened: Option<Zxid>,
    /// The zxids in the names of all files that were opened.
    read: Vec<Zxid>,
    range: LogRange,
    /// Whether a record after the range was found.
    is_past_range: bool,
    /// The last record that was returned, or the zxid that the first one must follow.
    last: Option<Zxid>,
    /// Whether a writer may append at the same time.
    live: bool,
    torn: Option<Torn>,
}

/// An incomplete record.
#[derive(Clone, Debug)]
pub(crate) struct Torn {
    pub file: PathBuf,
    pub offset: u64,
    pub dropped_bytes: u64,
    pub what: &'static str,
    /// Whether the record is at the end of the newest file.
    pub newest: bool,
}

/// A record and its file.
#[derive(Debug)]
pub struct Located<'a> {
    pub file: &'a Path,
    pub record: LogRecord<'a>,
}

impl<D: Disk> LogStream<D> {
    /// Returns the records of the range, for recovery: no writer may append at the same time.
    pub(crate) fn at_rest(
        disk: &D,
        dir: &Path,
        range: LogRange,
    ) -> Result<LogStream<D>, StoreError> {
        LogStream::new(disk, dir, range, false)
    }

    /// Returns the records of the range, for a reader that runs beside a writer.
    pub(crate) fn live(disk: &D, dir: &Path, range: LogRange) -> Result<LogStream<D>, StoreError> {
        LogStream::new(disk, dir, range, true)
    }

    fn new(disk: &D, dir: &Path, range: LogRange, live: bool) -> Result<LogStream<D>, StoreError> {
        let mut files = catalog::logs(disk, dir)?;
        // The newest file that starts at or below the first wanted record contains it.
        let first = files.partition_point(|file| file.zxid <= range.from).saturating_sub(1);
        let waiting = files.split_off(first.min(files.len())).into();
        Ok(LogStream {
            disk: disk.clone(),
            dir: dir.to_owned(),
            waiting,
            reader: None,
            opened: None,
            read: Vec::new(),
            range,
            is_past_range: false,
            last: range.after,
            live,
            torn: None,
        })
    }

    /// Returns the next record, or `None` at the end of the range or of the log. A torn tail ends
    /// the stream like a clean one. After the end of the log, a stream beside a writer returns the
    /// records that were appended since.
    #[expect(clippy::should_implement_trait, reason = "records borrow from the stream")]
    pub fn next(&mut self) -> Result<Option<Located<'_>>, StoreError> {
        if !self.advance()? {
            return Ok(None);
        }
        let reader = self.reader.as_ref().expect("advance has found a record in it");
        Ok(Some(Located { file: reader.path(), record: reader.last_record() }))
    }

    /// Moves to the next wanted record. Returns `false` at the end.
    fn advance(&mut self) -> Result<bool, StoreError> {
        let mut refreshed = false;
        if self.is_past_range {
            return Ok(false);
        }
        loop {
            let Some(reader) = &mut self.reader else {
                let Some(file) = self.waiting.pop_front() else { return Ok(false) };
                self.opened = Some(file.zxid);
                self.read.push(file.zxid);
                self.reader = Some(if self.live {
                    LogReader::open_live(&self.disk, &file.path)?
                } else {
                    LogReader::open(&self.disk, &file.path)?
                });
                continue;
            };
            let (offset, end) = match reader.next()? {
                Next::Record(record) => {
                    if record.zxid < self.range.from {
                        continue;
                    }
                    if self.last == Some(record.zxid) && is_refusal(record.body) {
                        continue;
                    }
                    if let Some(last) = self.last
                        && !record.zxid.follows(last)
                    {
                        let (offset, found) = (record.offset, record.zxid);
                        let file = reader.path().to_owned();
                        return Err(StoreError::Gap { file, offset, before: last, found });
                    }
                    self.last = Some(record.zxid);
                    self.is_past_range = self.range.ends_before(&record);
                    return Ok(!self.is_past_range);
                }
                Next::End { offset, end } => (offset, end),
            };
            let newest = self.waiting.is_empty();
            if self.live && newest && !refreshed {
                // The writer may have appended since the last read, to this file or to a new one. A
                // file is complete before the next one appears, so the list of files is read before
                // the file.
                let files = catalog::logs(&self.disk, &self.dir)?;
                self.waiting =
                    files.into_iter().filter(|file| Some(file.zxid) > self.opened).collect();
                reader.refresh()?;
                refreshed = true;
                continue;
            }
            refreshed = false;
            match end {
                LogEnd::Clean => {}
                LogEnd::Damaged { what } => {
                    let file = reader.path().to_owned();
                    return Err(StoreError::Damaged { file, offset, what });
                }
                LogEnd::Torn { what, .. } if offset == 0 && !newest => {
                    let file = reader.path().to_owned();
                    return Err(StoreError::Damaged { file, offset, what: what.to_owned() });
                }
                LogEnd::Torn { what, dropped_bytes } => {
                    let file = reader.path().to_owned();
                    self.torn = Some(Torn { file, offset, dropped_bytes, what, newest });
                }
            }
            if newest {
                return Ok(false);
            }
            self.reader = None;
        }
    }

    /// Returns the position of the last records of the newest file, at the end of the stream.
    pub(crate) fn newest_end(&self) -> Option<FileEnd> {
        self.reader.as_ref()?.end()
    }

    /// Returns whether all files that were read so far still have their names. A purge renames a
    /// file before it truncates it, so a file that has its name was read completely.
    pub(crate) fn is_all_there(&self) -> Result<bool, StoreError> {
        let files = catalog::logs(&self.disk, &self.dir)?;
        Ok(self.read.iter().all(|zxid| files.iter().any(|file| file.zxid == *zxid)))
    }

    /// Returns the last incomplete record that was found, in any file.
    pub(crate) fn torn(&self) -> Option<&Torn> {
        self.torn.as_ref()
    }
}

/// Returns whether a record is an error transaction.
fn is_refusal(body: &[u8]) -> bool {
    TxnHeader::decode(&mut Reader::new(body)).is_ok_and(|header| header.op == OpCode::Error)
}
