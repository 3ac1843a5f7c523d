//! A disk with one file, in memory. Writes succeed and have no effect.

use std::io;
use std::path::Path;
use std::sync::Arc;

use ironkeeper_store::disk::{Disk, DiskFile, Entry};

/// Every path opens the same file.
#[derive(Clone, Debug)]
pub(crate) struct MemoryDisk(pub(crate) Arc<[u8]>);

#[derive(Debug)]
pub(crate) struct MemoryFile(Arc<[u8]>);

impl Disk for MemoryDisk {
    type File = MemoryFile;
    type Lock = ();

    fn list(&self, _: &Path) -> io::Result<Vec<Entry>> {
        Ok(Vec::new())
    }

    fn open(&self, _: &Path) -> io::Result<MemoryFile> {
        Ok(MemoryFile(Arc::clone(&self.0)))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<MemoryFile> {
        self.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<MemoryFile> {
        self.open(path)
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

    fn free_bytes(&self, _: &Path) -> io::Result<u64> {
        Ok(0)
    }

    fn create_dir_all(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }

    fn exists(&self, _: &Path) -> io::Result<bool> {
        Ok(true)
    }

    fn lock(&self, _: &Path) -> io::Result<()> {
        Ok(())
    }
}

impl DiskFile for MemoryFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..));
        let rest = rest.unwrap_or_default();
        let count = rest.len().min(buf.len());
        buf[..count].copy_from_slice(&rest[..count]);
        Ok(count)
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
        Ok(self.0.len() as u64)
    }
}
