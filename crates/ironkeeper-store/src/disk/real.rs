//! The file system of the operating system.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::Path;

use super::{Disk, DiskFile, Entry, LOCK_FILE, syscalls};

/// The mode of new files: only the owner of the process has access. An existing file keeps its
/// mode.
const FILE_MODE: u32 = 0o600;
const DIR_MODE: u32 = 0o700;

#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
pub struct RealFile(File);

/// A locked directory: its lock file, and the directory itself if the file system can lock it.
#[derive(Debug)]
pub struct RealLock {
    locked: Vec<File>,
}

impl Drop for RealLock {
    /// Unlocks explicitly instead of relying on the close: a child process that another thread is
    /// starting has inherited the open files, and would hold the lock until its exec.
    fn drop(&mut self) {
        for file in &self.locked {
            // If this fails, closing the file unlocks it.
            let _ = file.unlock();
        }
    }
}

impl RealLock {
    /// Locks the directory and its lock file. The lock on the directory excludes other processes
    /// even if the lock file is removed. Not every file system supports it (NFS turns it into a
    /// record lock, which needs a file open for writing), so the file is locked as well. The file
    /// also contains the id of the process that holds the lock.
    fn take(
        dir: &Path,
        lock_dir: impl Fn(&File) -> Result<(), TryLockError>,
    ) -> io::Result<RealLock> {
        let mut lock = RealLock { locked: Vec::new() };
        let this = File::open(dir)?;
        match lock_dir(&this) {
            Ok(()) => lock.locked.push(this),
            Err(TryLockError::WouldBlock) => return Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) if cannot_lock_directories(&error) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(FILE_MODE);
        let file = options.open(dir.join(LOCK_FILE))?;
        file.try_lock().map_err(io::Error::from)?;
        // The process id is for the error message of the next process. The lock does not need it,
        // so a failure (a full disk, for instance) is ignored.
        let pid = format!("{}\n", std::process::id());
        let _ = file.set_len(0).and_then(|()| file.write_all_at(pid.as_bytes(), 0));
        lock.locked.push(file);
        Ok(lock)
    }
}

/// Returns whether the file system cannot lock directories at all, as opposed to a lock that is
/// held by another process.
fn cannot_lock_directories(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::EBADF
                | libc::EINVAL
                | libc::EISDIR
                | libc::ENOLCK
                | libc::ENOSYS
                | libc::EOPNOTSUPP
        )
    )
}

impl Disk for RealDisk {
    type File = RealFile;
    type Lock = RealLock;

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Another process may remove a file while the directory is listed.
            let metadata = match entry.metadata() {
                Ok(metadata) => metadata,
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => return Err(error),
            };
            let is_dir = metadata.is_dir();
            entries.push(Entry { name, len: if is_dir { 0 } else { metadata.len() }, is_dir });
        }
        Ok(entries)
    }

    fn open(&self, path: &Path) -> io::Result<RealFile> {
        Ok(RealFile(File::open(path)?))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<RealFile> {
        Ok(RealFile(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn create(&self, path: &Path) -> io::Result<RealFile> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true).mode(FILE_MODE);
        Ok(RealFile(options.open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        syscalls::free_bytes(&File::open(dir)?)
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(DIR_MODE).create(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, dir: &Path) -> io::Result<RealLock> {
        RealLock::take(dir, File::try_lock)
    }
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, offset)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn write_back(&mut self, offset: u64, len: u64) -> io::Result<()> {
        syscalls::write_back(&self.0, offset, len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_locked(dir: &Path) -> bool {
        match RealDisk.lock(dir) {
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => true,
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn a_lock_is_given_back_though_a_child_being_started_has_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let lock = RealDisk.lock(dir.path()).unwrap();
        // Shares the open files, as a child process does between fork and exec.
        let inherited: Vec<File> =
            lock.locked.iter().map(|file| file.try_clone().unwrap()).collect();
        assert!(is_locked(dir.path()));
        drop(lock);
        assert!(!is_locked(dir.path()));
        drop(inherited);
    }

    #[test]
    fn a_removed_lock_file_does_not_free_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let lock = RealDisk.lock(dir.path()).unwrap();
        fs::remove_file(dir.path().join(LOCK_FILE)).unwrap();
        assert!(is_locked(dir.path()));
        drop(lock);
        assert!(!is_locked(dir.path()));
    }

    #[test]
    fn where_directories_cannot_be_locked_the_file_is() {
        let dir = tempfile::tempdir().unwrap();
        let refuses =
            |_: &File| Err(TryLockError::Error(io::Error::from_raw_os_error(libc::EBADF)));
        let lock = RealLock::take(dir.path(), refuses).unwrap();
        let second = RealLock::take(dir.path(), refuses).unwrap_err();
        assert_eq!(second.kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        RealLock::take(dir.path(), refuses).unwrap();
        let fails = |_: &File| Err(TryLockError::Error(io::Error::from_raw_os_error(libc::EIO)));
        assert!(RealLock::take(dir.path(), fails).is_err(), "an error of the disk is one");
    }

    #[test]
    fn what_is_created_is_for_its_owner_alone_and_what_exists_keeps_its_mode() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let nested = dir.path().join("data/version-2");
        RealDisk.create_dir_all(&nested).unwrap();
        let file = nested.join("log.1");
        RealDisk.create(&file).unwrap();
        drop(RealDisk.lock(&nested).unwrap());
        assert_eq!((mode(&dir.path().join("data")), mode(&nested)), (0o700, 0o700));
        assert_eq!((mode(&file), mode(&nested.join(LOCK_FILE))), (0o600, 0o600));
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        RealDisk.create(&file).unwrap();
        assert_eq!(mode(&file), 0o640);
    }
}
