//! Reader of one log file, from start to end.
//!
//! The only reader of the format: recovery, the synchronization of learners and the inspection
//! tools use it. It checks every length against the length of the file, and it reports where and
//! why it stops.

use std::path::{Path, PathBuf};

use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::Reader;
use ironkeeper_proto::log_record::{
    self, END_MARK, FILE_HEADER_LEN, RECORD_HEADER_LEN, RecordHeader,
};
use ironkeeper_proto::txn::TxnHeader;

use super::tail;
use super::writer::UNSYNCED_BYTES_MAX;
use crate::disk::{Disk, DiskFile, read_full};
use crate::error::{At, StoreError};

/// The number of bytes read at once. The buffer grows beyond it only for larger records.
const CHUNK: usize = 256 << 10;

/// A record with a correct checksum and end mark.
#[derive(Clone, Copy, Debug)]
pub struct LogRecord<'a> {
    /// The offset of its frame in the file.
    pub offset: u64,
    pub zxid: Zxid,
    /// The time at which the leader proposed the transaction, in milliseconds since 1970.
    pub time_ms: i64,
    /// Transaction header, record and digest, as servers send them to each other.
    pub body: &'a [u8],
}

/// The reason why there is no further record in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEnd {
    /// The file ends here, or only padding follows.
    Clean,
    /// A torn write: it was not durable when the writer stopped, and so it was not acknowledged.
    Torn { what: &'static str, dropped_bytes: u64 },
    /// Bytes that an interrupted write cannot have left.
    Damaged { what: String },
}

/// The result of [`LogReader::next`].
#[derive(Debug)]
pub enum Next<'a> {
    Record(LogRecord<'a>),
    /// The offset at which the next record would start.
    End {
        offset: u64,
        end: LogEnd,
    },
}

#[derive(Debug)]
pub struct LogReader<F> {
    file: F,
    path: PathBuf,
    file_len: u64,
    buffer: Vec<u8>,
    /// The file offset of the buffer's first byte.
    buffer_offset: u64,
    /// The number of bytes in the buffer that were read from the file.
    filled: usize,
    /// The number of bytes in the buffer that have been consumed.
    consumed: usize,
    header_seen: bool,
    /// The last record in the buffer.
    last: Last,
    /// Whether a writer may append to the file, so that its end cannot be classified.
    live: bool,
    /// The starts of two records, at least `UNSYNCED_BYTES_MAX` apart (at first both are the end of
    /// the file header). Everything that was written without a sync is after `marks[0]`.
    marks: [u64; 2],
}

/// A record in the buffer.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// The start and the length of its frame; the length is zero before the first record.
    start: usize,
    frame_len: usize,
    zxid: Zxid,
    time_ms: i64,
}

/// The position of the last records of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileEnd {
    pub path: PathBuf,
    /// Everything that was written without a sync is in `from..to`.
    pub from: u64,
    pub to: u64,
    pub last_zxid: Zxid,
}

impl<F: DiskFile> LogReader<F> {
    pub fn open<D: Disk<File = F>>(disk: &D, path: &Path) -> Result<LogReader<F>, StoreError> {
        let file = disk.open(path).at(path, "open the log file")?;
        let file_len = file.len().at(path, "read the length of the log file")?;
        Ok(LogReader {
            file,
            path: path.to_owned(),
            file_len,
            buffer: vec![0; CHUNK],
            buffer_offset: 0,
            filled: 0,
            consumed: 0,
            header_seen: false,
            last: Last { start: 0, frame_len: 0, zxid: Zxid::ZERO, time_ms: 0 },
            live: false,
            marks: [FILE_HEADER_LEN as u64; 2],
        })
    }

    /// Opens a file at the start of a record.
    pub(crate) fn open_at<D: Disk<File = F>>(
        disk: &D,
        path: &Path,
        offset: u64,
    ) -> Result<LogReader<F>, StoreError> {
        let mut reader = LogReader::open(disk, path)?;
        reader.buffer_offset = offset;
        reader.header_seen = offset > 0;
        Ok(reader)
    }

    /// Opens a file to which a writer may append. An unreadable record is treated as still being
    /// written.
    pub fn open_live<D: Disk<File = F>>(disk: &D, path: &Path) -> Result<LogReader<F>, StoreError> {
        let reader = LogReader::open(disk, path)?;
        Ok(LogReader { live: true, ..reader })
    }

    /// Discards the bytes that were read ahead, so that the next call reads what has been written
    /// since.
    pub fn refresh(&mut self) -> Result<(), StoreError> {
        self.filled = self.consumed;
        self.file_len = self.file.len().at(&self.path, "read the length of the log file")?;
        Ok(())
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the next record or the end. After an end every further call returns the same end,
    /// unless the file has been written to.
    #[expect(clippy::should_implement_trait, reason = "records borrow from the reader")]
    pub fn next(&mut self) -> Result<Next<'_>, StoreError> {
        if !self.header_seen {
            if let Some(end) = self.read_file_header()? {
                return Ok(Next::End { offset: 0, end });
            }
            self.header_seen = true;
        }
        let offset = self.position();
        let frame_len = match self.check_frame()? {
            Ok(frame_len) => frame_len,
            Err(end) => return Ok(Next::End { offset, end }),
        };
        let start = self.consumed;
        let body = &self.buffer[start + RECORD_HEADER_LEN..start + frame_len - 1];
        let header = match TxnHeader::decode(&mut Reader::new(body)) {
            Ok(header) => header,
            Err(error) => {
                let what = format!("a record with a right checksum has no header: {error}");
                return Ok(Next::End { offset, end: LogEnd::Damaged { what } });
            }
        };
        self.consumed += frame_len;
        self.last = Last { start, frame_len, zxid: header.zxid, time_ms: header.time };
        if offset - self.marks[1] >= UNSYNCED_BYTES_MAX as u64 {
            self.marks = [self.marks[1], offset];
        }
        Ok(Next::Record(self.last_record()))
    }

    /// Returns the end of what has been read, or `None` before the first record.
    pub(crate) fn end(&self) -> Option<FileEnd> {
        let Last { frame_len, zxid: last_zxid, .. } = self.last;
        if frame_len == 0 {
            return None;
        }
        // The header is written together with the first records.
        let from = if self.marks[0] == FILE_HEADER_LEN as u64 { 0 } else { self.marks[0] };
        Some(FileEnd { path: self.path.clone(), from, to: self.position(), last_zxid })
    }

    /// Returns the record of the last call of [`LogReader::next`]. Meaningless before the first.
    pub(crate) fn last_record(&self) -> LogRecord<'_> {
        let Last { start, frame_len, zxid, time_ms } = self.last;
        let body = &self.buffer[start + RECORD_HEADER_LEN..start + frame_len - 1];
        LogRecord { offset: self.buffer_offset + start as u64, zxid, time_ms, body }
    }

    /// Returns the length of the whole frame if it is intact.
    fn check_frame(&mut self) -> Result<Result<usize, LogEnd>, StoreError> {
        let left = self.fill(RECORD_HEADER_LEN)?;
        if left.is_empty() {
            return Ok(Err(LogEnd::Clean));
        }
        if left.len() < RECORD_HEADER_LEN {
            return self.stop(RECORD_HEADER_LEN, "the frame of a record is cut short").map(Err);
        }
        let header = RecordHeader::decode(left).expect("twelve bytes hold a frame's head");
        if header.len == 0 && header.checksum == 0 {
            return self.stop(RECORD_HEADER_LEN, "no record").map(Err);
        }
        let body_len = match usize::try_from(header.len) {
            Ok(0) | Err(_) => {
                return self.stop(RECORD_HEADER_LEN, "impossible record length").map(Err);
            }
            Ok(body_len) => body_len,
        };
        let frame_len = RECORD_HEADER_LEN + body_len + 1;
        // Checked before memory is allocated for a length that is not verified.
        if frame_len as u64 > self.file_len.saturating_sub(self.position()) {
            return self.stop(frame_len, "the record is longer than the rest of the file").map(Err);
        }
        let frame = self.fill(frame_len)?;
        if frame.len() < frame_len {
            return self.stop(frame_len, "the record is cut short").map(Err);
        }
        let body = &frame[RECORD_HEADER_LEN..frame_len - 1];
        if frame[frame_len - 1] != END_MARK {
            return self.stop(frame_len, "a record without its end mark").map(Err);
        }
        if i64::from(simd_adler32::adler32(&body)) != header.checksum {
            return self.stop(frame_len, "wrong checksum").map(Err);
        }
        Ok(Ok(frame_len))
    }

    /// Classifies a frame that cannot be read.
    fn stop(&self, frame_len: usize, what: &'static str) -> Result<LogEnd, StoreError> {
        if self.live {
            return Ok(LogEnd::Torn { what, dropped_bytes: 0 });
        }
        tail::explain(&self.file, self.file_len, self.position(), frame_len as u64, what)
            .at(&self.path, "read the log")
    }

    /// Reads the file header. Returns the end if the header is missing.
    fn read_file_header(&mut self) -> Result<Option<LogEnd>, StoreError> {
        let head = self.fill(FILE_HEADER_LEN)?;
        if head.len() >= FILE_HEADER_LEN && head[..4] == log_record::MAGIC {
            self.consumed += FILE_HEADER_LEN;
            return Ok(None);
        }
        if self.live {
            let what = "the file header is not written yet";
            return Ok(Some(LogEnd::Torn { what, dropped_bytes: 0 }));
        }
        tail::explain_file_header(&self.file, self.file_len)
            .at(&self.path, "read the log")
            .map(Some)
    }

    /// Returns the offset of the next unread byte.
    pub fn position(&self) -> u64 {
        self.buffer_offset + self.consumed as u64
    }

    /// Returns at least `count` unread bytes, or all that are left in the file.
    fn fill(&mut self, count: usize) -> Result<&[u8], StoreError> {
        if self.filled - self.consumed < count {
            self.buffer.copy_within(self.consumed..self.filled, 0);
            self.filled -= self.consumed;
            self.buffer_offset += self.consumed as u64;
            self.consumed = 0;
            if self.buffer.len() < count {
                self.buffer.resize(count, 0);
            }
            let offset = self.buffer_offset + self.filled as u64;
            self.filled += read_full(&self.file, &mut self.buffer[self.filled..], offset)
                .at(&self.path, "read the log")?;
        }
        Ok(&self.buffer[self.consumed..self.filled])
    }
}
