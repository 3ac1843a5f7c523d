//! Appending to the log.
//!
//! The sketch: a record costs one copy into the batch and one Adler-32 of its body; a commit costs
//! one write and one fdatasync, whatever the number of records. Both calls happen in
//! [`LogWriter::commit`], so appending never waits and never fails for want of room.
//!
//! Two things make the fdatasync cheap. The file's length is set ahead in large steps (Apache's,
//! so that the sizes are the same), hence the length rarely changes. And blocks are written with
//! zeroes a little ahead of the records, hence most commits only overwrite blocks that the file
//! system has already mapped and need no commit of its journal. On ext4, with 6 KB per commit, that
//! takes a commit from 250 to 150 microseconds; a few zeroes more in every fortieth commit are
//! not to be seen. Reserving blocks without writing them (fallocate) does not help: the first write
//! to each still changes the mapping.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};

use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::log_record::{self, END_MARK, FILE_HEADER_LEN, RECORD_HEADER_LEN};

use crate::catalog;
use crate::disk::{Disk, DiskFile};
use crate::error::{At, StoreError};
use crate::store::StoreOptions;

/// The file grows when less than this is left of it, as Apache does it.
const GROW_MARGIN: u64 = 4096;
/// How far ahead of the records blocks are written.
const ZERO_AHEAD: usize = 256 << 10;
/// Commits larger than this pay for new blocks themselves: writing everything twice would cost more
/// than the journal does.
const ZERO_AHEAD_BATCH_MAX: usize = 128 << 10;
const BLOCK: u64 = 4096;
/// Capacity kept for the next batch. A rare giant is given back to the allocator.
const BATCH_CAPACITY_KEPT: usize = 4 << 20;
/// No more than this, or one record that is larger, is written without a sync. A commit of more takes several.
/// Recovery relies on it when it writes again what the last sync may have failed on.
pub(crate) const UNSYNCED_BYTES_MAX: usize = 4 << 20;

static ZEROES: [u8; ZERO_AHEAD + BLOCK as usize] = [0; ZERO_AHEAD + BLOCK as usize];

/// Writes the log. Owned by one thread.
///
/// [`append`](LogWriter::append) collects, [`commit`](LogWriter::commit) makes durable. When a commit
/// fails because the disk is full ([`StoreError::is_disk_full`]) nothing is lost or given up: the
/// batch is kept, the position has not moved, and the next commit writes the same bytes to the same
/// place, over whatever part had been written. If the process stops instead, recovery finds a prefix
/// of the batch, which was never promised to anybody. Any failed fsync is final: the writer refuses
/// all further work, because a later fsync can succeed without the lost pages. What the next process does
/// about them is told in `renew.rs`.
#[derive(Debug)]
pub struct LogWriter<D: Disk> {
    disk: D,
    dir: PathBuf,
    prealloc_bytes: u64,
    force_sync: bool,
    /// Framed records that are not durable yet, and file headers where new files begin.
    batch: Vec<u8>,
    /// How much of the batch has been written (less than all of it only after an error).
    written: usize,
    /// Where in the batch a new file begins, and the zxid that names it.
    new_files: VecDeque<(usize, Zxid)>,
    /// Where in the batch what was written before has to be synced first.
    syncs: VecDeque<usize>,
    /// What follows this in the batch becomes durable by one sync.
    unsynced_from: usize,
    /// Whether the next append begins a new file.
    roll: bool,
    current: Option<Current<D::File>>,
    /// Whether a file was made since the directory was last synced.
    dir_changed: bool,
    failed: bool,
}

#[derive(Debug)]
struct Current<F> {
    file: F,
    path: PathBuf,
    /// Where the next record goes.
    position: u64,
    /// The length that was set ahead.
    len: u64,
    /// Blocks below this offset have been written.
    zeroed_to: u64,
    unsynced: bool,
}

impl<D: Disk> LogWriter<D> {
    /// Where the log files are.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn new(disk: D, dir: PathBuf, options: &StoreOptions) -> LogWriter<D> {
        LogWriter {
            disk,
            dir,
            prealloc_bytes: options.prealloc_bytes,
            force_sync: options.force_sync,
            batch: Vec::new(),
            written: 0,
            new_files: VecDeque::new(),
            syncs: VecDeque::new(),
            unsynced_from: 0,
            roll: true,
            current: None,
            dir_changed: false,
            failed: false,
        }
    }

    /// Adds a record to the batch. `body` is a whole transaction: header, record, digest.
    #[inline]
    pub fn append(&mut self, zxid: Zxid, body: &[u8]) -> Result<(), StoreError> {
        if self.failed {
            return Err(self.failure());
        }
        let Ok(len) = i32::try_from(body.len()) else {
            return Err(StoreError::RecordTooLarge { len: body.len() });
        };
        let frame_len = RECORD_HEADER_LEN + body.len() + 1;
        let unsynced = self.batch.len() - self.unsynced_from;
        if self.roll {
            self.roll = false;
            // The old file is synced before the new one is made.
            self.unsynced_from = self.batch.len();
            self.new_files.push_back((self.batch.len(), zxid));
            log_record::encode_file_header(&mut self.batch);
        } else if unsynced > 0 && unsynced + frame_len > UNSYNCED_BYTES_MAX {
            self.unsynced_from = self.batch.len();
            self.syncs.push_back(self.batch.len());
        }
        let checksum = i64::from(simd_adler32::adler32(&body));
        self.batch.reserve(frame_len);
        log_record::RecordHeader { checksum, len }.encode(&mut self.batch);
        self.batch.put_raw(body);
        self.batch.put_u8(END_MARK);
        Ok(())
    }

    /// Makes everything appended so far durable. Returns at once if there is nothing.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        if self.failed {
            return Err(self.failure());
        }
        if self.batch.is_empty() {
            return Ok(());
        }
        self.write_batch()?;
        if self.force_sync {
            let synced = self.sync();
            self.failed = synced.is_err();
            synced?;
        }
        self.batch.clear();
        self.batch.shrink_to(BATCH_CAPACITY_KEPT);
        self.written = 0;
        self.unsynced_from = 0;
        Ok(())
    }

    /// Lets the next append begin a new file. What is in the batch still goes to the old one.
    pub fn roll(&mut self) {
        self.roll = true;
    }

    /// Bytes of the file that the next append goes to, those not committed yet included.
    pub fn bytes_in_file(&self) -> u64 {
        if self.roll {
            return 0;
        }
        match self.new_files.back() {
            Some((start, _)) => (self.batch.len() - start) as u64,
            None => {
                let pending = (self.batch.len() - self.written) as u64;
                self.current.as_ref().map_or(0, |current| current.position + pending)
            }
        }
    }

    /// Bytes waiting for a commit.
    pub fn pending_bytes(&self) -> usize {
        self.batch.len() - self.written
    }

    fn write_batch(&mut self) -> Result<(), StoreError> {
        loop {
            let next_file = self.new_files.front().map(|(start, _)| *start);
            let next_sync = self.syncs.front().copied();
            let end = next_file.into_iter().chain(next_sync).min().unwrap_or(self.batch.len());
            if self.written < end {
                let current = self.current.as_mut().expect("a batch begins with a new file");
                current.write(&self.batch[self.written..end], self.prealloc_bytes)?;
                self.written = end;
            }
            if next_sync == Some(end) {
                self.sync_current()?;
                self.syncs.pop_front();
                continue;
            }
            if next_file.is_none() {
                return Ok(());
            }
            // The old file is complete. Its sync may not be forgotten, and a new one may not become
            // visible before it: recovery takes a torn tail only at the end of the newest file.
            self.sync_current()?;
            let Some((_, zxid)) = self.new_files.front() else { return Ok(()) };
            let path = self.dir.join(catalog::log_name(*zxid));
            let file = self.disk.create(&path).at(&path, "create the log file")?;
            let unsynced = true;
            self.current =
                Some(Current { file, path, position: 0, len: 0, zeroed_to: 0, unsynced });
            self.dir_changed = true;
            self.new_files.pop_front();
        }
    }

    /// Syncs what was written in the middle of a commit.
    fn sync_current(&mut self) -> Result<(), StoreError> {
        if let Some(current) = &mut self.current
            && current.unsynced
            && self.force_sync
        {
            let synced = current.sync();
            self.failed = synced.is_err();
            synced?;
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        if let Some(current) = &mut self.current {
            current.sync()?;
        }
        if self.dir_changed {
            self.disk.sync_dir(&self.dir).at(&self.dir, "sync the directory")?;
            self.dir_changed = false;
        }
        Ok(())
    }

    fn failure(&self) -> StoreError {
        let path = self.current.as_ref().map_or(&self.dir, |current| &current.path);
        StoreError::WriterFailed { path: path.clone() }
    }

    /// The file being written, if any.
    pub fn path(&self) -> Option<&Path> {
        self.current.as_ref().map(|current| current.path.as_path())
    }
}

impl<F: DiskFile> Current<F> {
    fn write(&mut self, bytes: &[u8], prealloc_bytes: u64) -> Result<(), StoreError> {
        let end = self.position + bytes.len() as u64;
        let len = grown_len(end, self.len, prealloc_bytes);
        if len != self.len {
            self.file.set_len(len).at(&self.path, "lengthen the log file")?;
            self.len = len;
        }
        self.unsynced = true;
        self.file.write_at(bytes, self.position).at(&self.path, "write the log")?;
        self.position = end;
        if end > self.zeroed_to && bytes.len() <= ZERO_AHEAD_BATCH_MAX {
            self.zero_ahead()?;
        }
        Ok(())
    }

    /// Writes zeroes behind the last record, up to a block's end and never beyond the file's.
    fn zero_ahead(&mut self) -> Result<(), StoreError> {
        let end = (self.position + ZERO_AHEAD as u64).next_multiple_of(BLOCK).min(self.len);
        if end <= self.position {
            return Ok(());
        }
        let count = (end - self.position) as usize;
        let zeroed = self.file.write_at(&ZEROES[..count], self.position);
        match zeroed.at(&self.path, "write the log") {
            Ok(()) => self.zeroed_to = end,
            // The records themselves found room. When they no longer do, the commit will say so.
            Err(error) if error.is_disk_full() => self.zeroed_to = u64::MAX,
            Err(error) => return Err(error),
        }
        Ok(())
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.file.sync_data().at(&self.path, "sync the log file")?;
        self.unsynced = false;
        Ok(())
    }
}

/// The length of a file whose records end at `position`: the header and as many steps as it takes
/// to keep the margin.
fn grown_len(position: u64, len: u64, step: u64) -> u64 {
    if step == 0 || (len > 0 && position + GROW_MARGIN < len) {
        return len;
    }
    let records = (position + GROW_MARGIN).saturating_sub(FILE_HEADER_LEN as u64);
    FILE_HEADER_LEN as u64 + (records / step + 1) * step
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_grow_as_apache_lets_them_grow() {
        const STEP: u64 = 64 << 20;
        assert_eq!(grown_len(16, 0, STEP), 67_108_880);
        assert_eq!(grown_len(5000, 67_108_880, STEP), 67_108_880);
        assert_eq!(grown_len(67_108_880 - 4097, 67_108_880, STEP), 67_108_880);
        assert_eq!(grown_len(67_108_880 - 4096, 67_108_880, STEP), 67_108_880 + STEP);
        assert_eq!(grown_len(67_108_880 + 5 * STEP, 67_108_880, STEP), 67_108_880 + 6 * STEP);
        assert_eq!(grown_len(67_108_881, 0, 0), 0);
    }
}
