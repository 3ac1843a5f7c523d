//! The file system without write access.
//!
//! Write operations succeed and have no effect. So recovery can be tried on the data of a running
//! server, Apache's included.

use std::io;
use std::path::Path;

use super::{Disk, DiskFile, Entry, RealDisk, RealFile};

#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOnlyDisk;

/// An existing file opened for reading, or a file whose creation had no effect.
#[derive(Debug)]
pub enum ReadOnlyFile {
    There(RealFile),
    Nowhere,
}

impl Disk for ReadOnlyDisk {
    type File = ReadOnlyFile;
    type Lock = ();

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        RealDisk.list(dir)
    }

    fn open(&self, path: &Path) -> io::Result<ReadOnlyFile> {
        Ok(ReadOnlyFile::There(RealDisk.open(path)?))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<ReadOnlyFile> {
        self.open(path)
    }

    fn create(&self, _: &Path) -> io::Result<ReadOnlyFile> {
        Ok(ReadOnlyFile::Nowhere)
    }

    fn rename(&self, _: &Path, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn remove(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn sync_dir(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn free_bytes(&self, dir: &Path) -> io::Result<u64> {
        RealDisk.free_bytes(dir)
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        RealDisk.exists(path)
    }

    /// Always succeeds, because a reader does not need to exclude other processes.
    fn lock(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for ReadOnlyFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        match self {
            ReadOnlyFile::There(file) => file.read_at(buf, offset),
            ReadOnlyFile::Nowhere => Ok(0),
        }
    }

    fn write_at(&mut self, _: &[u8], _: u64) -> io::Result<()> {
        Ok(())
    }

    fn set_len(&mut self, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn sync_data(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn write_back(&mut self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        match self {
            ReadOnlyFile::There(file) => file.len(),
            ReadOnlyFile::Nowhere => Ok(0),
        }
    }
}
