//! Reads the log for a learner that is behind.

use ironkeeper_proto::Zxid;

use super::range::LogRange;
use super::stream::LogStream;
use crate::catalog;
use crate::disk::Disk;
use crate::error::StoreError;
use crate::store::Store;

/// The transactions in the log that follow a given one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Whether the given transaction is in the log, or is the zxid of a snapshot that the log
    /// follows.
    pub found: bool,
    /// The transactions that follow it without a gap, as stored in the log.
    pub txns: Vec<(Zxid, Vec<u8>)>,
}

impl<D: Disk> Store<D> {
    /// Finds `after` in the log and reads up to the transaction that `until` returns. `until` is
    /// called before each record, because a writer may append at the same time.
    ///
    /// Returns `found == false` if the transactions exceed `bytes_max`, and if a purge has started
    /// to remove a file that was read: records at its end may be missing, and this would go
    /// unnoticed if the next file starts a later epoch.
    pub fn read_tail(
        &self,
        after: Zxid,
        bytes_max: u64,
        mut until: impl FnMut() -> Zxid,
    ) -> Result<LogTail, StoreError> {
        let mut stream = LogStream::live(&self.disk, &self.log_dir, LogRange::from(after))?;
        let mut tail = LogTail::default();
        let mut last = after;
        let mut bytes = 0;
        while let Some(located) = stream.next()? {
            let record = located.record;
            if record.zxid == after {
                tail.found = true;
                continue;
            }
            if !tail.found {
                let snapshots = catalog::snapshots(&self.disk, &self.snap_dir)?;
                tail.found = snapshots.iter().any(|snapshot| snapshot.zxid == after);
            }
            bytes += record.body.len() as u64;
            if !tail.found || !record.zxid.follows(last) || bytes > bytes_max {
                return Ok(LogTail::default());
            }
            if record.zxid > until() {
                break;
            }
            last = record.zxid;
            tail.txns.push((record.zxid, record.body.to_vec()));
        }
        if !stream.is_all_there()? {
            return Ok(LogTail::default());
        }
        Ok(tail)
    }
}
