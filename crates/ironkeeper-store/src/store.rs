//! An open data directory.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::MAX_BUFFER_DEFAULT;

use crate::catalog::{self, SnapshotFile};
use crate::disk::{Disk, DiskFile, LOCK_FILE};
use crate::error::{At, StoreError};
use crate::log::range::LogRange;
use crate::log::stream::LogStream;
use crate::log::writer::LogWriter;
use crate::recover::Visitor;
use crate::snapshot::Compression;
use crate::snapshot::reader::{SnapshotSummary, read_snapshot_file};
use crate::snapshot::writer::{Origin, SnapshotWriter};

/// The subdirectory of the configured directories that contains all files.
pub(crate) const VERSION_DIR: &str = "version-2";

/// The directories of the files: `dataDir` and `dataLogDir` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    pub snap_dir: PathBuf,
    pub log_dir: PathBuf,
}

impl Dirs {
    /// Returns `Dirs` with snapshots and logs in one directory.
    pub fn single(dir: impl Into<PathBuf>) -> Dirs {
        let dir = dir.into();
        Dirs { log_dir: dir.clone(), snap_dir: dir }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The step by which log files grow (`preAllocSize`). Zero disables preallocation.
    pub prealloc_bytes: u64,
    /// Whether a commit waits for the medium (`forceSync`).
    pub force_sync: bool,
    /// The compression of new snapshots (`snapshot.compression.method`).
    pub compression: Compression,
    /// The maximal length of a string or buffer in a snapshot: `jute.maxbuffer` plus its extra
    /// size.
    pub field_max: usize,
    /// Whether a log without any snapshot may be replayed onto an empty tree
    /// (`snapshot.trust.empty`).
    pub trust_empty: bool,
    /// Whether missing directories are created (`datadir.autocreate`).
    pub auto_create: bool,
    /// Whether an empty directory is treated as a new database (`db.autocreate`).
    pub db_auto_create: bool,
    /// Whether snapshots contain the digest of the tree (`digest.enabled`).
    pub write_digest: bool,
    /// Whether snapshots contain the last zxid (`serializeLastProcessedZxid.enabled`).
    pub write_last_zxid: bool,
}

impl Default for StoreOptions {
    fn default() -> StoreOptions {
        StoreOptions {
            prealloc_bytes: 64 << 20,
            force_sync: true,
            compression: Compression::None,
            field_max: 2 * MAX_BUFFER_DEFAULT,
            trust_empty: false,
            auto_create: true,
            db_auto_create: true,
            write_digest: true,
            write_last_zxid: true,
        }
    }
}

/// A data directory, locked while this value or a clone exists. Different threads use the clones to
/// write the log, the snapshots and the epoch files; each kind of file has one writing thread.
#[derive(Debug)]
pub struct Store<D: Disk> {
    pub(crate) disk: D,
    /// `version-2` in `dataDir`: snapshots and epochs.
    pub(crate) snap_dir: PathBuf,
    /// `version-2` in `dataLogDir`: logs.
    pub(crate) log_dir: PathBuf,
    /// If this file exists, an empty directory becomes a new database even without `db.autocreate`.
    pub(crate) initialize_file: PathBuf,
    pub(crate) options: StoreOptions,
    locks: Arc<Vec<D::Lock>>,
    /// The number of leaders' snapshots that were started. Two may have the same zxid: after the
    /// loss of a leader its snapshot is abandoned by the thread that writes it, possibly after the
    /// next one has started.
    incoming: Arc<AtomicU64>,
}

// A derived implementation would require locks that can be cloned.
impl<D: Disk> Clone for Store<D> {
    fn clone(&self) -> Store<D> {
        Store {
            disk: self.disk.clone(),
            snap_dir: self.snap_dir.clone(),
            log_dir: self.log_dir.clone(),
            initialize_file: self.initialize_file.clone(),
            options: self.options.clone(),
            locks: Arc::clone(&self.locks),
            incoming: Arc::clone(&self.incoming),
        }
    }
}

impl<D: Disk> Store<D> {
    /// Creates or checks the directories, locks them, and deletes files that a crash left
    /// incomplete or half removed.
    pub fn open(disk: D, dirs: Dirs, options: StoreOptions) -> Result<Store<D>, StoreError> {
        let Dirs { snap_dir, log_dir } = dirs;
        let initialize_file = log_dir.join("initialize");
        let separate = snap_dir != log_dir;
        refuse_version_dir(&disk, &snap_dir, "dataDir")?;
        if separate {
            refuse_version_dir(&disk, &log_dir, "dataLogDir")?;
        }
        let snap_dir = snap_dir.join(VERSION_DIR);
        let log_dir = log_dir.join(VERSION_DIR);
        for dir in [&snap_dir, &log_dir] {
            if !disk.exists(dir).at(dir, "look for the directory")? {
                if !options.auto_create {
                    return Err(StoreError::MissingDirectory { path: dir.clone() });
                }
                create_durably(&disk, dir)?;
            }
            // Also if the directory exists: the previous process may have ended between creating it
            // and the sync.
            sync_parent(&disk, dir)?;
        }
        let mut locks = vec![lock(&disk, &snap_dir)?];
        if separate {
            locks.push(lock(&disk, &log_dir)?);
            refuse_prefix(&disk, &snap_dir, catalog::LOG_PREFIX, "transaction log", "snapshots")?;
            refuse_prefix(&disk, &log_dir, catalog::SNAPSHOT_PREFIX, "snapshot", "logs")?;
        }
        // Apache would load a complete `snapshot.<zxid>.tmp`. This is not needed: a snapshot of
        // this server is covered by the log, and a learner requests an interrupted snapshot again
        // from its leader.
        for (_, path) in catalog::unfinished_snapshots(&disk, &snap_dir)? {
            disk.remove(&path).at(&path, "remove the unfinished snapshot")?;
        }
        for dir in [&snap_dir, &log_dir] {
            for path in catalog::doomed(&disk, dir)? {
                disk.remove(&path).at(&path, "remove the old file")?;
            }
        }
        let locks = Arc::new(locks);
        let incoming = Arc::default();
        Ok(Store { disk, snap_dir, log_dir, initialize_file, options, locks, incoming })
    }

    pub fn options(&self) -> &StoreOptions {
        &self.options
    }

    /// Returns the directory of snapshots and epoch files.
    pub fn snap_dir(&self) -> &Path {
        &self.snap_dir
    }

    /// Returns the directory of transaction logs.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// Creates a writer whose first append creates a new file. At most one may exist at a time.
    pub fn log_writer(&self) -> LogWriter<D> {
        LogWriter::new(self.disk.clone(), self.log_dir.clone(), &self.options)
    }

    /// Starts the snapshot that contains every transaction up to `zxid`.
    pub fn snapshot_writer(&self, zxid: Zxid) -> Result<SnapshotWriter<D>, StoreError> {
        SnapshotWriter::create(self.disk.clone(), &self.snap_dir, zxid, &self.options, Origin::Own)
    }

    /// Starts a snapshot that a leader is sending. It has a separate name until it is finished.
    pub fn incoming_snapshot_writer(&self, zxid: Zxid) -> Result<SnapshotWriter<D>, StoreError> {
        SnapshotWriter::create(
            self.disk.clone(),
            &self.snap_dir,
            zxid,
            &self.options,
            Origin::Leader(self.incoming.fetch_add(1, Ordering::Relaxed)),
        )
    }

    /// Returns the records of a part of the log. A writer may append at the same time.
    pub fn read_log(&self, range: LogRange) -> Result<LogStream<D>, StoreError> {
        LogStream::live(&self.disk, &self.log_dir, range)
    }

    /// Returns the snapshots, newest first.
    pub fn snapshots(&self) -> Result<Vec<SnapshotFile>, StoreError> {
        catalog::snapshots(&self.disk, &self.snap_dir)
    }

    /// Passes the records of a snapshot to `visitor`, which must discard them if this function
    /// fails: the checksum is verified at the end.
    pub fn read_snapshot(
        &self,
        snapshot: &SnapshotFile,
        visitor: &mut dyn Visitor,
    ) -> Result<SnapshotSummary, StoreError> {
        read_snapshot_file(&self.disk, &snapshot.path, self.options.field_max, visitor)
    }

    /// Returns the number of bytes in the snapshot directory and in the log directory. As in Apache
    /// they are lengths of files, whether blocks are allocated or not.
    pub fn dir_sizes(&self) -> Result<(u64, u64), StoreError> {
        Ok((dir_bytes(&self.disk, &self.snap_dir)?, dir_bytes(&self.disk, &self.log_dir)?))
    }

    /// Returns the length of the newest snapshot, or zero if there is none.
    pub fn newest_snapshot_bytes(&self) -> Result<u64, StoreError> {
        Ok(self.snapshots()?.first().map_or(0, |snapshot| snapshot.len))
    }

    /// Returns the free space of the snapshot directory and of the log directory.
    pub fn free_bytes(&self) -> Result<(u64, u64), StoreError> {
        let free = |dir: &Path| self.disk.free_bytes(dir).at(dir, "ask for the free space");
        Ok((free(&self.snap_dir)?, free(&self.log_dir)?))
    }
}

/// Creates a directory and its missing parents, and syncs each one in its parent before it creates
/// the next. A directory that is lost in a crash takes acknowledged transactions with it.
pub(crate) fn create_durably<D: Disk>(disk: &D, dir: &Path) -> Result<(), StoreError> {
    let mut missing = Vec::new();
    let mut ancestor = Some(dir);
    while let Some(path) = ancestor {
        if path.as_os_str().is_empty() || disk.exists(path).at(path, "look for the directory")? {
            break;
        }
        missing.push(path);
        ancestor = path.parent();
    }
    if let Some(there) = missing.last().and_then(|path| path.parent())
        && there.parent().is_some()
    {
        // An earlier, failed attempt may have created it. If this process may not open its parent,
        // it did not, so the error is ignored.
        let _ = sync_parent(disk, there);
    }
    for path in missing.into_iter().rev() {
        disk.create_dir_all(path).at(path, "create the directory")?;
        sync_parent(disk, path)?;
    }
    Ok(())
}

fn sync_parent<D: Disk>(disk: &D, path: &Path) -> Result<(), StoreError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    disk.sync_dir(parent).at(parent, "sync the directory")
}

fn lock<D: Disk>(disk: &D, dir: &Path) -> Result<D::Lock, StoreError> {
    disk.lock(dir).map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock => {
            StoreError::Locked { path: dir.to_owned(), pid: lock_holder(disk, dir) }
        }
        _ => StoreError::Io { path: dir.to_owned(), action: "lock the directory", cause },
    })
}

/// Returns the process that holds the lock of a directory, if the lock file contains it.
fn lock_holder<D: Disk>(disk: &D, dir: &Path) -> Option<u32> {
    let mut text = [0; 16];
    let file = disk.open(&dir.join(LOCK_FILE)).ok()?;
    let len = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

/// Rejects a directory that contains snapshots or logs itself: it is a `version-2` directory, and
/// an empty database in it would hide the existing one.
fn refuse_version_dir<D: Disk>(disk: &D, dir: &Path, key: &'static str) -> Result<(), StoreError> {
    // The caller reports a directory that does not exist or cannot be listed.
    let Ok(entries) = disk.list(dir) else { return Ok(()) };
    match entries.iter().find(|entry| !entry.is_dir && catalog::is_data_file(&entry.name)) {
        Some(entry) => {
            Err(StoreError::IsVersionDir { dir: dir.to_owned(), file: entry.name.clone(), key })
        }
        None => Ok(()),
    }
}

fn refuse_prefix<D: Disk>(
    disk: &D,
    dir: &Path,
    prefix: &str,
    kind: &'static str,
    expected: &'static str,
) -> Result<(), StoreError> {
    let entries = disk.list(dir).at(dir, "list the directory")?;
    match entries.iter().find(|entry| entry.name.starts_with(prefix)) {
        Some(entry) => Err(StoreError::Misplaced { file: dir.join(&entry.name), kind, expected }),
        None => Ok(()),
    }
}

fn dir_bytes<D: Disk>(disk: &D, dir: &Path) -> Result<u64, StoreError> {
    let mut total = 0;
    let mut waiting = vec![dir.to_owned()];
    while let Some(dir) = waiting.pop() {
        for entry in disk.list(&dir).at(&dir, "list the directory")? {
            if entry.is_dir {
                waiting.push(dir.join(&entry.name));
            }
            // Apache does not have the lock file.
            if entry.name != LOCK_FILE {
                total += entry.len;
            }
        }
    }
    Ok(total)
}
