//! Recovery: the newest valid snapshot, then the log after it.

use std::path::{Path, PathBuf};

use ironkeeper_proto::snapshot_record::{SnapshotDigest, SnapshotNode};
use ironkeeper_proto::txn::FullTxn;
use ironkeeper_proto::{AclVec, SessionId, Zxid};

use crate::catalog;
use crate::disk::{Disk, DiskFile};
use crate::error::{At, StoreError};
use crate::log::range::LogRange;
use crate::log::stream::LogStream;
use crate::store::Store;

/// The receiver of recovered records: one snapshot, then the transactions after it.
pub trait Visitor {
    /// A snapshot starts. The visitor must discard what an earlier attempt delivered.
    fn snapshot_start(&mut self, zxid: Zxid, file: &Path);
    fn session(&mut self, id: SessionId, timeout_ms: i32);
    fn acl(&mut self, id: i64, list: AclVec<'_>);
    /// Parents precede their children. After an error recovery tries an older snapshot.
    fn node(&mut self, node: &SnapshotNode<'_>) -> Result<(), String>;
    /// The snapshot was read completely and every checksum is correct.
    fn snapshot_end(&mut self, zxid: Zxid, digest: Option<SnapshotDigest>) -> Result<(), String>;
    /// A transaction of the log, decoded and as raw bytes. An error ends recovery.
    fn txn(&mut self, txn: &FullTxn<'_>, raw: &[u8]) -> Result<(), String>;
}

/// The files that recovery found and what it did to them.
#[derive(Clone, Debug)]
pub struct RecoveryReport {
    /// The zxid of the last transaction. -1 if there is no database and none may be created
    /// (`db.autocreate` is off and there is no `initialize` file): such a server takes part in
    /// elections only after a leader has sent it a snapshot.
    pub last_zxid: Zxid,
    /// The snapshot that was loaded.
    pub snapshot: Option<(Zxid, PathBuf)>,
    /// The number of transactions replayed from the log.
    pub txns: u64,
    /// An incomplete write that was dropped. It had not been acknowledged.
    pub torn_tail: Option<TornTail>,
    /// Newer snapshots that were rejected, with the reason.
    pub refused_snapshots: Vec<(PathBuf, String)>,
    /// Whether the directory was empty: the caller must write `snapshot.0` before anything else.
    pub fresh: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TornTail {
    pub file: PathBuf,
    /// The offset of the incomplete record.
    pub offset: u64,
    /// The number of bytes from `offset` to the last byte that was written.
    pub dropped_bytes: u64,
    pub reason: String,
}

impl<D: Disk> Store<D> {
    /// Passes the newest valid snapshot and every later transaction to `visitor`.
    ///
    /// When this function returns, everything it found is durable and a torn tail is truncated, so
    /// the next server that reads the files, Apache's included, finds a clean log.
    pub fn recover(&self, visitor: &mut dyn Visitor) -> Result<RecoveryReport, StoreError> {
        let mut refused = Vec::new();
        let snapshot = self.load_snapshot(visitor, &mut refused)?;
        let Some((snapshot_zxid, snapshot_path)) = snapshot else {
            return self.recover_without_snapshot(visitor, refused);
        };
        let mut report = self.replay(visitor, snapshot_zxid)?;
        report.snapshot = Some((snapshot_zxid, snapshot_path));

        // A local snapshot contains only transactions that are in the log, so an older snapshot and
        // the log reach at least its zxid. If they do not, the newer snapshot came from a leader.
        for (file, zxid, reason) in &refused {
            if *zxid > report.last_zxid {
                let (file, reason) = (file.clone(), reason.clone());
                let reached = report.last_zxid;
                return Err(StoreError::SnapshotLost { file, reason, reached });
            }
        }
        report.refused_snapshots =
            refused.into_iter().map(|(file, _, reason)| (file, reason)).collect();
        Ok(report)
    }

    fn load_snapshot(
        &self,
        visitor: &mut dyn Visitor,
        refused: &mut Vec<(PathBuf, Zxid, String)>,
    ) -> Result<Option<(Zxid, PathBuf)>, StoreError> {
        let mut stumps_of_nothing = true;
        for snapshot in self.snapshots()? {
            let path = snapshot.path.clone();
            let reason = match catalog::looks_whole(&self.disk, &snapshot)? {
                Err(what) => {
                    stumps_of_nothing &= snapshot.zxid == Zxid::ZERO;
                    what.to_owned()
                }
                Ok(()) => {
                    match self.read_snapshot(&snapshot, visitor) {
                        Ok(_) => {
                            // Apache does not sync its snapshots, so this one is synced before it
                            // is relied on.
                            let mut file = self.disk.open(&path).at(&path, "open the snapshot")?;
                            file.sync_data().at(&path, "sync the snapshot")?;
                            return Ok(Some((snapshot.zxid, path)));
                        }
                        Err(error) => {
                            stumps_of_nothing = false;
                            // The caller prints the file next to the reason, so the prefix is
                            // removed.
                            let text = error.to_string();
                            let file = format!("{}: ", path.display());
                            text.strip_prefix(&file).unwrap_or(&text).to_owned()
                        }
                    }
                }
            };
            refused.push((path, snapshot.zxid, reason));
        }
        // Apache first writes `snapshot.0`, and a crash can leave an incomplete file of that name.
        // Its content was an empty tree; any other snapshot had content.
        if !refused.is_empty() && !stumps_of_nothing {
            let refused = refused.drain(..).map(|(file, _, reason)| (file, reason)).collect();
            return Err(StoreError::NoValidSnapshot { dir: self.snap_dir.clone(), refused });
        }
        Ok(None)
    }

    fn recover_without_snapshot(
        &self,
        visitor: &mut dyn Visitor,
        refused: Vec<(PathBuf, Zxid, String)>,
    ) -> Result<RecoveryReport, StoreError> {
        let mut all = LogStream::at_rest(&self.disk, &self.log_dir, LogRange::all())?;
        let first = all.next()?.map(|located| located.file.to_owned());
        let mut report = match first {
            Some(log) if !self.options.trust_empty => {
                return Err(StoreError::LogWithoutSnapshot { log });
            }
            _ => self.replay(visitor, Zxid::ZERO)?,
        };
        report.refused_snapshots =
            refused.into_iter().map(|(file, _, reason)| (file, reason)).collect();
        if report.txns > 0 {
            return Ok(report);
        }
        report.fresh = true;
        let marker = &self.initialize_file;
        if self.disk.exists(marker).at(marker, "look for the file")? {
            self.disk.remove(marker).at(marker, "remove the file")?;
        } else if !self.options.db_auto_create {
            report.last_zxid = Zxid(-1);
        }
        Ok(report)
    }

    fn replay(&self, visitor: &mut dyn Visitor, base: Zxid) -> Result<RecoveryReport, StoreError> {
        let mut stream = LogStream::at_rest(&self.disk, &self.log_dir, LogRange::after(base))?;
        let mut last_zxid = base;
        let mut txns = 0;
        while let Some(located) = stream.next()? {
            let record = located.record;
            let rejected = |what: String| StoreError::Rejected {
                file: located.file.to_owned(),
                offset: record.offset,
                what: format!("transaction {}: {what}", record.zxid),
            };
            let txn = FullTxn::decode(record.body).map_err(|error| rejected(error.to_string()))?;
            visitor.txn(&txn, record.body).map_err(rejected)?;
            last_zxid = record.zxid;
            txns += 1;
        }
        let mut torn_tail = None;
        // A torn tail in an older file was dropped by the process that started the next file.
        if let Some(torn) = stream.torn().filter(|torn| torn.newest) {
            self.cut_torn_tail(&torn.file, torn.offset)?;
            torn_tail = Some(TornTail {
                file: torn.file.clone(),
                offset: torn.offset,
                dropped_bytes: torn.dropped_bytes,
                reason: torn.what.to_owned(),
            });
        }
        // The replayed records count as durable from now on, so they are synced before they are
        // relied on. The names are synced too: the previous process may have ended between a rename
        // and the sync of its directory.
        if let Some(end) = stream.newest_end() {
            self.renew_log_end(&end)?;
        }
        for dir in [&self.log_dir, &self.snap_dir] {
            self.disk.sync_dir(dir).at(dir, "sync the directory")?;
        }
        Ok(RecoveryReport {
            last_zxid,
            snapshot: None,
            txns,
            torn_tail,
            refused_snapshots: Vec::new(),
            fresh: false,
        })
    }

    /// Truncates an incomplete record. A file without a complete header is removed: its name has a
    /// zxid that may never be used, and the file would remain between good files.
    fn cut_torn_tail(&self, path: &Path, offset: u64) -> Result<(), StoreError> {
        if offset == 0 {
            self.disk.remove(path).at(path, "remove the empty log file")?;
            return self.disk.sync_dir(&self.log_dir).at(&self.log_dir, "sync the directory");
        }
        let mut file = self.disk.open_to_write(path).at(path, "open the log file")?;
        file.set_len(offset).at(path, "cut the log file")?;
        file.sync_data().at(path, "sync the log file")
    }
}
