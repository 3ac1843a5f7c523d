//! Backup of the history of a standalone server that joins an ensemble.
//!
//! A standalone server that joins an ensemble adopts the leader's history, as every member does. If
//! a majority of empty servers elected a leader first, the standalone history is discarded,
//! including acknowledged writes. Apache discards it; this server first copies the files to a
//! directory from which a server can be started.

use std::io::Read;
use std::path::{Path, PathBuf};

use ironkeeper_proto::Zxid;

use crate::catalog;
use crate::disk::{Disk, DiskFile, Sequential};
use crate::epochs::CURRENT;
use crate::error::{At, StoreError};
use crate::store::{Store, VERSION_DIR, create_durably};

/// The prefix of the backup directories. A number follows, starting with 1.
const PREFIX: &str = "before-ensemble.";
/// The name of a mark that exists in the directory until all copies are complete.
const UNFINISHED: &str = "unfinished";
const CHUNK_LEN: usize = 1 << 20;

impl<D: Disk> Store<D> {
    /// Copies the files and returns the data directory of the copies.
    pub fn set_aside(&self) -> Result<PathBuf, StoreError> {
        let dir = self.unused_dir()?;
        let copies = dir.join(VERSION_DIR);
        create_durably(&self.disk, &copies)?;
        let mark = dir.join(UNFINISHED);
        self.disk.create(&mark).at(&mark, "create the file")?;
        self.disk.sync_dir(&dir).at(&dir, "sync the directory")?;
        let snapshots = catalog::snapshots(&self.disk, &self.snap_dir)?;
        let logs = catalog::logs(&self.disk, &self.log_dir)?;
        let files = snapshots.into_iter().map(|snapshot| snapshot.path);
        for path in files.chain(logs.into_iter().map(|log| log.path)) {
            if let Some(name) = path.file_name() {
                self.copy(&path, &copies.join(name))?;
            }
        }
        self.disk.sync_dir(&copies).at(&copies, "sync the directory")?;
        self.disk.remove(&mark).at(&mark, "remove the file")?;
        self.disk.sync_dir(&dir).at(&dir, "sync the directory")?;
        Ok(dir)
    }

    /// Returns whether there is a history and all of it was written before any leader: leaders
    /// count their epochs from 1, and a server that adopts a leader's history writes
    /// `currentEpoch`.
    pub fn has_standalone_history(&self) -> Result<bool, StoreError> {
        let none = Zxid::ZERO.epoch();
        if self.read_epoch(CURRENT)?.is_some_and(|current| current > none) {
            return Ok(false);
        }
        let snapshots = catalog::snapshots(&self.disk, &self.snap_dir)?;
        let logs = catalog::logs(&self.disk, &self.log_dir)?;
        let files = snapshots.iter().map(|snapshot| snapshot.zxid);
        // A new server has a snapshot of an empty tree with zxid 0.
        let mut written = files
            .chain(logs.iter().map(|log| log.zxid))
            .filter(|zxid| *zxid > Zxid::ZERO)
            .peekable();
        Ok(written.peek().is_some() && written.all(|zxid| zxid.epoch() == none))
    }

    /// Returns the first directory that does not exist or is incomplete.
    fn unused_dir(&self) -> Result<PathBuf, StoreError> {
        let mut number = 1;
        loop {
            let dir = self.snap_dir.with_file_name(format!("{PREFIX}{number}"));
            let mark = dir.join(UNFINISHED);
            let exists = |path: &PathBuf| self.disk.exists(path).at(path, "look for the file");
            if !exists(&dir)? || exists(&mark)? {
                return Ok(dir);
            }
            number += 1;
        }
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<(), StoreError> {
        let mut source = Sequential::new(self.disk.open(from).at(from, "open the file")?);
        let mut copy = self.disk.create(to).at(to, "create the file")?;
        let mut chunk = vec![0; CHUNK_LEN];
        let mut offset = 0;
        loop {
            let len = source.read(&mut chunk).at(from, "read the file")?;
            if len == 0 {
                return copy.sync_data().at(to, "sync the file");
            }
            copy.write_at(&chunk[..len], offset).at(to, "write the file")?;
            offset += len as u64;
        }
    }
}
