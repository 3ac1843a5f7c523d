//! Going back: the log is cut behind a zxid because the leader never heard of what follows.
//!
//! Safe against a crash at any moment, because the order is from the newest to the oldest: first the
//! snapshots that are too new, then whole files of the log, newest first and each made durable before
//! the next, then the file with the cut. Every intermediate state is a correct, only longer, history.

use ironkeeper_proto::Zxid;

use super::stream::LogStream;
use crate::catalog;
use crate::disk::{Disk, DiskFile};
use crate::error::{At, StoreError};
use crate::store::Store;

impl<D: Disk> Store<D> {
    /// Removes every transaction above `zxid` from the log, and every snapshot above it.
    ///
    /// The state at `zxid` must be there to go back to: a snapshot at or below it, and the log from
    /// there up to just that transaction. Otherwise nothing is touched. A
    /// [`LogWriter`](crate::LogWriter) made before must be dropped first.
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
        let mut cut = None;
        let mut records = LogStream::after(&self.disk, &self.log_dir, base)?;
        loop {
            match records.next() {
                Ok(Some(located)) if located.record.zxid <= zxid => {
                    reached = located.record.zxid;
                }
                Ok(Some(located)) => {
                    cut = Some((located.file.to_owned(), located.record.offset));
                    break;
                }
                Ok(None) => break,
                // Whatever follows the place to go back to goes, gap or not.
                Err(StoreError::Gap { file, offset, found, .. })
                    if reached == zxid && found > zxid =>
                {
                    cut = Some((file, offset));
                    break;
                }
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
        let logs = catalog::logs(&self.disk, &self.log_dir)?;
        for log in logs.iter().rev().filter(|log| log.zxid > zxid) {
            self.disk.remove(&log.path).at(&log.path, "remove the log file")?;
            self.disk.sync_dir(&self.log_dir).at(&self.log_dir, "sync the directory")?;
        }
        // The file whose first record was too new is gone already.
        if let Some((path, offset)) = cut
            && self.disk.exists(&path).at(&path, "look for the log file")?
        {
            let mut file = self.disk.open_to_write(&path).at(&path, "open the log file")?;
            file.set_len(offset).at(&path, "cut the log file")?;
            file.sync_data().at(&path, "sync the log file")?;
        }
        Ok(())
    }
}
