//! The file system of the machine.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Disk, DiskFile, Entry, syscalls};

#[derive(Clone, Copy, Debug, Default)]
pub struct RealDisk;

#[derive(Debug)]
pub struct RealFile(File);

/// A locked file.
#[derive(Debug)]
pub struct RealLock(File);

impl Drop for RealLock {
    /// Said, not left to the closing of the file: a child process that another thread is just starting
    /// has the file open as well, and would hold the lock until it runs its own program.
    fn drop(&mut self) {
        // If it fails, closing the file follows anyway.
        let _ = self.0.unlock();
    }
}

impl Disk for RealDisk {
    type File = RealFile;
    type Lock = RealLock;

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Another process may remove a file while we look at it.
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
        Ok(RealFile(options.read(true).write(true).create(true).truncate(true).open(path)?))
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
        fs::create_dir_all(dir)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        path.try_exists()
    }

    fn lock(&self, path: &Path) -> io::Result<RealLock> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => Ok(RealLock(file)),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        }
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

    #[test]
    fn a_lock_is_given_back_though_a_child_being_started_has_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = RealDisk.lock(&path).unwrap();
        // Shares the open file, as the child does between its fork and its program.
        let inherited = lock.0.try_clone().unwrap();
        assert_eq!(RealDisk.lock(&path).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(lock);
        RealDisk.lock(&path).unwrap();
        drop(inherited);
    }
}
