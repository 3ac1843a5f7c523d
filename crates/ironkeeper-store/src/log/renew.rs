//! Making sure that what was read is what is on the medium.
//!
//! A process whose sync fails ends, and so does one that is killed before its sync. Started again on the same
//! running machine it finds what it has written, for it reads it from the kernel's cache. But a kernel that could
//! not write a page may call it clean all the same: no later sync writes it, and the next loss of power takes it.
//! A record that was voted with, or acknowledged, would be gone.
//!
//! So recovery writes the end of the newest log once more, in place. The bytes are the same, hence nothing is lost
//! if that is interrupted; and written pages are dirty, hence the sync behind them tells the truth. How much is at
//! stake is known: a file is synced before the next one is begun, and no more than
//! [`UNSYNCED_BYTES_MAX`](super::writer::UNSYNCED_BYTES_MAX) bytes, or one record, are written without a sync.

use super::reader::{FileEnd, LogReader, Next};
use crate::disk::{Disk, DiskFile, read_full};
use crate::error::{At, StoreError};
use crate::store::Store;

const CHUNK: usize = 256 << 10;

impl<D: Disk> Store<D> {
    /// Makes the end of the newest log durable, whatever became of earlier attempts. Nothing that was read from
    /// it may be relied on before.
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
        // A log that was cut must stay so. To set a length that is already there may do nothing.
        let len = file.len().at(path, "read the length of the log file")?;
        file.set_len(len + 1).at(path, "lengthen the log file")?;
        file.set_len(len).at(path, "cut the log file")?;
        self.check_end(end)?;
        file.sync_data().at(path, "sync the log file")
    }

    /// Between the first reading and the second the kernel may have dropped a page that it took for clean, and
    /// found something else on the medium.
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
