//! Reading the log for somebody who is behind.

use ironkeeper_proto::Zxid;

use super::stream::{LogStream, follows};
use crate::catalog;
use crate::disk::Disk;
use crate::error::StoreError;
use crate::store::Store;

/// What the log had to say about a transaction and what follows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogTail {
    /// Whether the transaction is in the log, or is that of a snapshot which the log follows.
    pub found: bool,
    /// What follows it without a hole, each as it stands in the log.
    pub txns: Vec<(Zxid, Vec<u8>)>,
}

impl<D: Disk> Store<D> {
    /// Finds `after` in the log and reads on up to the transaction `until` gives, which is asked
    /// again before each record: a writer may be at work meanwhile. More than `bytes_max` is as good
    /// as nothing: then the answer is that nothing was found. So it is if a purge has begun to
    /// remove a file that was read: records at its end may be missing, and the first of the next
    /// file, if it is of a later epoch, would hide that.
    pub fn read_tail(
        &self,
        after: Zxid,
        bytes_max: u64,
        mut until: impl FnMut() -> Zxid,
    ) -> Result<LogTail, StoreError> {
        let mut stream = LogStream::from(&self.disk, &self.log_dir, after)?;
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
            if !tail.found || !follows(last, record.zxid) || bytes > bytes_max {
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
