//! A data directory, opened.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::MAX_BUFFER_DEFAULT;

use crate::catalog;
use crate::disk::{Disk, DiskFile, LOCK_FILE};
use crate::error::{At, StoreError};
use crate::log::stream::LogStream;
use crate::log::writer::LogWriter;
use crate::snapshot::Compression;
use crate::snapshot::writer::{Origin, SnapshotWriter};

/// All files live in this directory below the configured ones.
pub(crate) const VERSION_DIR: &str = "version-2";

/// Where the files are: `dataDir` and `dataLogDir` of the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirs {
    pub snap_dir: PathBuf,
    pub log_dir: PathBuf,
}

impl Dirs {
    /// Snapshots and logs in one place.
    pub fn single(dir: impl Into<PathBuf>) -> Dirs {
        let dir = dir.into();
        Dirs { log_dir: dir.clone(), snap_dir: dir }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreOptions {
    /// The step in which log files grow (`preAllocSize`); zero to let them grow by themselves.
    pub prealloc_bytes: u64,
    /// Whether a commit waits for the medium (`forceSync`).
    pub force_sync: bool,
    /// Of snapshots to be written (`snapshot.compression.method`).
    pub compression: Compression,
    /// The longest string or buffer in a snapshot: `jute.maxbuffer` plus its extra size.
    pub field_max: usize,
    /// Whether a log without any snapshot may be replayed onto an empty tree
    /// (`snapshot.trust.empty`).
    pub trust_empty: bool,
    /// Whether missing directories are made (`datadir.autocreate`).
    pub auto_create: bool,
    /// Whether an empty directory is the beginning of a new database (`db.autocreate`).
    pub db_auto_create: bool,
    /// Whether snapshots carry the digest of the tree (`digest.enabled`).
    pub write_digest: bool,
    /// Whether snapshots carry the last zxid (`serializeLastProcessedZxid.enabled`).
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

/// A data directory that is ours as long as this lives. Clones share it: the log, the snapshots and
/// the epoch files are written by different threads, each of which owns its kind of file.
#[derive(Debug)]
pub struct Store<D: Disk> {
    pub(crate) disk: D,
    /// `version-2` below `dataDir`: snapshots and epochs.
    pub(crate) snap_dir: PathBuf,
    /// `version-2` below `dataLogDir`: logs.
    pub(crate) log_dir: PathBuf,
    /// Whoever puts this file there wants an empty directory to become a database.
    pub(crate) initialize_file: PathBuf,
    pub(crate) options: StoreOptions,
    locks: Arc<Vec<D::Lock>>,
    /// How many trees of leaders were begun. Two may be of the same transaction: one whose leader was lost is
    /// given up whenever its thread gets to it, perhaps after the next has begun.
    incoming: Arc<AtomicU64>,
}

// A derived implementation would ask for locks that can be cloned.
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
    /// Makes or checks the directories, takes hold of them, and clears away what a crash has left half
    /// written or half removed.
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
            // Also if it is there: the last process may have ended between making it and this.
            sync_parent(&disk, dir)?;
        }
        let mut locks = vec![lock(&disk, &snap_dir)?];
        if separate {
            locks.push(lock(&disk, &log_dir)?);
            refuse_prefix(&disk, &snap_dir, catalog::LOG_PREFIX, "transaction log", "snapshots")?;
            refuse_prefix(&disk, &log_dir, catalog::SNAPSHOT_PREFIX, "snapshot", "logs")?;
        }
        // Apache would load a finished `snapshot.<zxid>.tmp`. We do not need to: our own leftovers
        // are covered by the log, and a learner that was being sent one asks its leader again.
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

    /// The directory of snapshots and epoch files.
    pub fn snap_dir(&self) -> &Path {
        &self.snap_dir
    }

    /// The directory of transaction logs.
    pub fn log_dir(&self) -> &Path {
        &self.log_dir
    }

    /// A writer whose first append makes a new file. There must be only one at a time.
    pub fn log_writer(&self) -> LogWriter<D> {
        LogWriter::new(self.disk.clone(), self.log_dir.clone(), &self.options)
    }

    /// Begins the snapshot that contains every transaction up to `zxid`.
    pub fn snapshot_writer(&self, zxid: Zxid) -> Result<SnapshotWriter<D>, StoreError> {
        SnapshotWriter::create(self.disk.clone(), &self.snap_dir, zxid, &self.options, Origin::Own)
    }

    /// Begins a snapshot that a leader is sending, kept apart from those written here until it is
    /// finished.
    pub fn incoming_snapshot_writer(&self, zxid: Zxid) -> Result<SnapshotWriter<D>, StoreError> {
        SnapshotWriter::create(
            self.disk.clone(),
            &self.snap_dir,
            zxid,
            &self.options,
            Origin::Leader(self.incoming.fetch_add(1, Ordering::Relaxed)),
        )
    }

    /// The log's records from `zxid` on, that one included if it is there. Reads what is in the
    /// files at this time, also while a writer appends to them.
    pub fn read_log_from(&self, zxid: Zxid) -> Result<LogStream<D>, StoreError> {
        LogStream::from(&self.disk, &self.log_dir, zxid)
    }

    /// The bytes in the snapshot and in the log directory, as Apache counts them: lengths of files,
    /// whether the blocks behind them exist or not.
    pub fn dir_sizes(&self) -> Result<(u64, u64), StoreError> {
        Ok((dir_bytes(&self.disk, &self.snap_dir)?, dir_bytes(&self.disk, &self.log_dir)?))
    }

    /// The length of the newest snapshot; zero if there is none.
    pub fn newest_snapshot_bytes(&self) -> Result<u64, StoreError> {
        let snapshots = catalog::snapshots(&self.disk, &self.snap_dir)?;
        Ok(snapshots.first().map_or(0, |snapshot| snapshot.len))
    }

    /// Room left where snapshots and where logs are written.
    pub fn free_bytes(&self) -> Result<(u64, u64), StoreError> {
        let free = |dir: &Path| self.disk.free_bytes(dir).at(dir, "ask for the free space");
        Ok((free(&self.snap_dir)?, free(&self.log_dir)?))
    }
}

/// A directory that vanishes in a crash takes acknowledged transactions along, so every new one is
/// made durable in its parent before the next is made in it.
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
        // It may be ours, from an attempt that failed. If we are not allowed to look at its parent, it is not.
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

/// The process that holds the lock of a directory, if its file tells.
fn lock_holder<D: Disk>(disk: &D, dir: &Path) -> Option<u32> {
    let mut text = [0; 16];
    let file = disk.open(&dir.join(LOCK_FILE)).ok()?;
    let len = file.read_at(&mut text, 0).ok()?;
    std::str::from_utf8(&text[..len]).ok()?.trim().parse().ok()
}

/// Refuses a directory that holds snapshots or logs itself: it is a `version-2`, and beginning an
/// empty database in it would hide the one that is there.
fn refuse_version_dir<D: Disk>(disk: &D, dir: &Path, key: &'static str) -> Result<(), StoreError> {
    // A directory that does not exist or cannot be listed is judged by what follows.
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
            // The lock is the one file that Apache would not have.
            if entry.name != LOCK_FILE {
                total += entry.len;
            }
        }
    }
    Ok(total)
}
