//! The medium, as little of it as the store needs.
//!
//! What is assumed about it: a sector of 512 bytes is written as a whole or not at all; what
//! [`DiskFile::sync_data`] and [`Disk::sync_dir`] return from stays; anything else may survive a
//! crash in part and in any order; a rename replaces its target as a whole. After a sync of a file that has failed
//! its content can be read and may be nowhere else: no later sync brings it to the medium, until it is written
//! again. Names are not so: file systems keep a journal of them and stop when it fails, so a sync of a directory
//! may be asked for again.

mod read_only;
mod real;
pub mod sim;
mod syscalls;

use std::fmt::Debug;
use std::io;
use std::path::Path;

pub use read_only::{ReadOnlyDisk, ReadOnlyFile};
pub use real::{RealDisk, RealFile};
pub use syscalls::let_others_finish;

/// The unit in which a medium writes: recovery explains torn records by missing sectors.
pub const SECTOR_BYTES: u64 = 512;

/// The file of a locked directory. Apache ignores files of other names than its own.
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
    /// Keeps others out of a directory while it lives.
    type Lock: Debug + Send + Sync + 'static;

    /// What is in a directory, in no particular order. Names that are not UTF-8 are left out: no
    /// file of ours has one.
    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>>;
    /// Opens a file for reading. [`DiskFile::sync_data`] works on it too.
    fn open(&self, path: &Path) -> io::Result<Self::File>;
    /// Opens an existing file for reading and writing.
    fn open_to_write(&self, path: &Path) -> io::Result<Self::File>;
    /// Makes a new file, or empties the one that is there.
    fn create(&self, path: &Path) -> io::Result<Self::File>;
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes creations, renames and removals in a directory durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Room left for this process.
    fn free_bytes(&self, dir: &Path) -> io::Result<u64>;
    fn create_dir_all(&self, dir: &Path) -> io::Result<()>;
    fn exists(&self, path: &Path) -> io::Result<bool>;
    /// Takes the lock of a directory, which survives the removal of any file in it;
    /// [`io::ErrorKind::WouldBlock`] if another process holds it. [`LOCK_FILE`] in the directory
    /// then holds the number of that process, if it could be written.
    fn lock(&self, dir: &Path) -> io::Result<Self::Lock>;
}

#[expect(clippy::len_without_is_empty, reason = "nobody asks a file whether it is empty")]
pub trait DiskFile: Debug + Send + 'static {
    /// Reads up to `buf.len()` bytes; zero means the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Writes all of `bytes`. After an error any part of them may have been written.
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Cuts the file or lengthens it by zeroes that take no room yet.
    fn set_len(&mut self, len: u64) -> io::Result<()>;
    /// Returns when the content and whatever is needed to find it is on the medium.
    fn sync_data(&mut self) -> io::Result<()>;
    /// Pushes a range towards the medium and drops it from the cache, without any promise: it keeps
    /// a long sequential write from piling up work that somebody else's sync must then wait for.
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

/// A file read from front to back.
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
