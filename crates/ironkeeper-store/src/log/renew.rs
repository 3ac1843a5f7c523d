//! Tail rewrite: makes the records that recovery has read durable.
//!
//! A process ends if its sync fails, or if it is killed before its sync. After a restart on the
//! same running machine the process reads its writes from the kernel's cache. But a kernel that
//! could not write a page may mark it clean: no later sync writes it, and the next power failure
//! loses it. A record that the server has voted with, or has acknowledged, would be lost.
//!
//! So recovery writes the end of the newest log again, in place. The bytes are the same, so an
//! interruption loses nothing; and the written pages are dirty, so the following sync writes them.
//! The amount is bounded: a file is synced before the next one is created, and at most
//! [`UNSYNCED_BYTES_MAX`](super::writer::UNSYNCED_BYTES_MAX) bytes, or one record, are written
//! without a sync.

use super::reader::{FileEnd, LogReader, Next};
use crate::disk::{Disk, DiskFile, read_full};
use crate::error::{At, StoreError};
use crate::store::Store;

const CHUNK: usize = 256 << 10;

impl<D: Disk> Store<D> {
    /// Makes the end of the newest log durable, regardless of earlier failed syncs. The records in
    /// it must not be relied on before this returns.
    pub(crate) fn renew_log_end(&self, end: &FileEnd) -> Result<(), StoreError> {
        let path = &end.path;
        let mut file = self.disk.open_to_write(path).at(path, "open the log file")?;
        let mut chunk = vec![0; CHUNK];
        let mut offset = end.from;
        while offset < end.to {
            let wanted = (end.to - offset).min(CHUNK as u64) as usize;
            let count = read_full(&file, &mut chunk[..wanted], offset).at(path, "read the log")?;
            if count == 0 {
                break;
            }
            file.write_at(&chunk[..count], offset).at(path, "write the log")?;
            offset += count as u64;
        }
        // The truncation of a torn tail must be durable as well. Setting the same length again may
        // have no effect, so the length is changed first.
        let len = file.len().at(path, "read the length of the log file")?;
        file.set_len(len + 1).at(path, "lengthen the log file")?;
        file.set_len(len).at(path, "cut the log file")?;
        self.check_end(end)?;
        file.sync_data().at(path, "sync the log file")
    }

    /// Reads the end again and compares it. Since the first reading the kernel may have dropped a
    /// page that it treated as clean, and then reads the content of the medium.
    fn check_end(&self, end: &FileEnd) -> Result<(), StoreError> {
        let mut reader = LogReader::open_at(&self.disk, &end.path, end.from)?;
        let mut last = None;
        while reader.position() < end.to
            && let Next::Record(record) = reader.next()?
        {
            last = Some(record.zxid);
        }
        if last == Some(end.last_zxid) && reader.position() == end.to {
            return Ok(());
        }
        let what = "records that were there a moment ago are not on the medium".to_owned();
        Err(StoreError::Damaged { file: end.path.clone(), offset: reader.position(), what })
    }
}
