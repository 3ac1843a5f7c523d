//! The interface to the medium, restricted to what the store uses.
//!
//! Assumptions about the medium:
//!
//! - A sector of 512 bytes is written entirely or not at all.
//! - What [`DiskFile::sync_data`] and [`Disk::sync_dir`] have completed is durable. Any other
//!   change may survive a crash in part and in any order.
//! - A rename replaces its target atomically.
//! - After a failed sync of a file its content can be read and may not be on the medium: no later
//!   sync writes it, until it is written again.
//! - A failed sync of a directory may be retried: file systems keep names in a journal and stop
//!   when the journal fails.

mod read_only;
#[expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the driver: the only access to the file system in the pure crates"
)]
mod real;
#[expect(clippy::disallowed_types, reason = "system calls of the driver")]
mod syscalls;

use std::fmt::Debug;
use std::io;
use std::path::Path;

pub use read_only::{ReadOnlyDisk, ReadOnlyFile};
pub use real::{RealDisk, RealFile};
pub use syscalls::let_others_finish;

/// The unit in which a medium writes. Recovery explains torn records by missing sectors.
pub const SECTOR_BYTES: u64 = 512;

/// The lock file of a directory. Apache ignores files with unknown names.
pub(crate) const LOCK_FILE: &str = "ironkeeper.lock";

/// A file or directory inside a listed directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    /// Zero for directories.
    pub len: u64,
    pub is_dir: bool,
}

pub trait Disk: Clone + Debug + Send + Sync + 'static {
    type File: DiskFile;
    /// A guard that excludes other processes from a directory.
    type Lock: Debug + Send + Sync + 'static;

    /// Returns the entries of a directory in no particular order. Names that are not UTF-8 are
    /// omitted: the store writes none.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;
    /// Opens a file for reading. [`DiskFile::sync_data`] works on it too.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// Opens an existing file for reading and writing.
    fn open_to_write(&self, path: &Path) -> io::Result<Self::File>;
    /// Creates a file, or truncates an existing file to length zero.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Returns the space in bytes that is available to this process.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Locks a directory. The lock does not depend on any file in the directory. Fails with
    /// [`io::ErrorKind::WouldBlock`] if another process holds it; then `ironkeeper.lock` in the
    /// directory contains the id of that process, if the process could write it.
    fn lock(&self, dir: &Path) -> io::Result<Self::Lock>;
}

#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait DiskFile: Debug + Send + 'static {
    /// Reads up to `buf.len()` bytes. Zero means the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`. After an error any part of them may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Truncates the file, or extends it by zeroes that allocate no blocks yet.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
    /// Returns when the content and the metadata that is needed to read it are on the medium.
    fn sync_data(&mut self) -> io::Result<()>;
    /// Starts writing a range to the medium and drops it from the cache, without any guarantee. A
    /// long sequential write calls it so that no backlog builds up for which a sync of another file
    /// would have to wait.
    fn write_back(&mut self, offset: u64, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
}

/// Reads until `buf` is full or the file ends.
pub(crate) fn read_full<F: DiskFile>(
    file: &F,
    buf: &mut [u8],
    mut offset: u64,
) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buf.len() {
        match file.read_at(&mut buf[filled..], offset) {
            Ok(0) => break,
            Ok(count) => {
                filled += count;
                offset += count as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// Sequential reader of a file.
#[derive(Debug)]
pub(crate) struct Sequential<F> {
    file: F,
    offset: u64,
}

impl<F> Sequential<F> {
    pub(crate) fn new(file: F) -> Sequential<F> {
        Sequential { file, offset: 0 }
    }
}

impl<F: DiskFile> io::Read for Sequential<F> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buf, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
