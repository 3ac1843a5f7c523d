//! Truncation: the log is cut after a zxid because the leader does not have the later transactions.
//!
//! A crash at any moment is safe, because the removal goes from the newest to the oldest: first the
//! snapshots above the zxid, then whole log files, newest first and each made durable before the
//! next, then the file that is cut. Every intermediate state is a valid, only longer, history.

use ironkeeper_proto::Zxid;

use super::range::LogRange;
use super::reader::{LogEnd, LogReader, Next};
use super::stream::LogStream;
use crate::catalog;
use crate::disk::{Disk, DiskFile};
use crate::error::{At, StoreError};
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Removes every transaction above `zxid` from the log, and every snapshot above it.
    ///
    /// The state at `zxid` must be recoverable: a snapshot at or below it, and the log from there
    /// up to exactly that transaction. Otherwise nothing is changed. An existing
    /// [`LogWriter`](crate::LogWriter) must be dropped first.
    pub fn truncate_log(&self, zxid: Zxid) -> Result<(), StoreError> {
        let cannot = |what| StoreError::CannotTruncate { dir: self.log_dir.clone(), zxid, what };
        let snapshots = catalog::snapshots(&self.disk, &self.snap_dir)?;
        let mut base = None;
        for snapshot in snapshots.iter().filter(|snapshot| snapshot.zxid <= zxid) {
            if catalog::looks_whole(&self.disk, snapshot)?.is_ok() {
                base = Some(snapshot.zxid);
                break;
            }
        }
        let base = match base {
            Some(base) => base,
            None if self.options.trust_empty && zxid >= Zxid::ZERO => Zxid::ZERO,
            None => return Err(cannot("no snapshot is as old as that")),
        };

        let mut reached = base;
        let mut records = LogStream::at_rest(&self.disk, &self.log_dir, LogRange::after(base))?;
        loop {
            match records.next() {
                Ok(Some(located)) if located.record.zxid <= zxid => {
                    reached = located.record.zxid;
                }
                Ok(_) => break,
                // Everything after `zxid` is removed, so a gap there does not matter.
                Err(StoreError::Gap { found, .. }) if reached == zxid && found > zxid => break,
                Err(StoreError::Gap { .. }) if reached < zxid => {
                    return Err(cannot("the log does not lead there from the snapshot before"));
                }
                Err(error) => return Err(error),
            }
        }
        if reached != zxid {
            return Err(cannot("the log does not hold that transaction"));
        }

        for snapshot in snapshots.iter().filter(|snapshot| snapshot.zxid > zxid) {
            let path = &snapshot.path;
            self.disk.remove(path).at(path, "remove the snapshot")?;
        }
        self.disk.sync_dir(&self.snap_dir).at(&self.snap_dir, "sync the directory")?;
        self.cut_log_above(zxid)
    }

    /// Removes every record above `zxid`, the newest first.
    pub(crate) fn cut_log_above(&self, zxid: Zxid) -> Result<(), StoreError> {
        let logs = catalog::logs(&self.disk, &self.log_dir)?;
        let kept = logs.partition_point(|log| log.zxid <= zxid);
        for log in logs[kept..].iter().rev() {
            self.disk.remove(&log.path).at(&log.path, "remove the log file")?;
            self.disk.sync_dir(&self.log_dir).at(&self.log_dir, "sync the directory")?;
        }
        let Some(last) = logs[..kept].last() else { return Ok(()) };
        let mut reader = LogReader::open(&self.disk, &last.path)?;
        let cut = loop {
            match reader.next()? {
                Next::Record(record) if record.zxid <= zxid => {}
                Next::Record(record) => break record.offset,
                Next::End { end: LogEnd::Damaged { what }, offset } => {
                    return Err(StoreError::Damaged { file: last.path.clone(), offset, what });
                }
                Next::End { .. } => return Ok(()),
            }
        };
        let path = &last.path;
        let mut file = self.disk.open_to_write(path).at(path, "open the log file")?;
        file.set_len(cut).at(path, "cut the log file")?;
        file.sync_data().at(path, "sync the log file")
    }
}
