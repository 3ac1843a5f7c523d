//! A disk in memory that simulates crashes, full disks and bad sectors.
//!
//! [`SimDisk`] implements the store's [`Disk`], for the simulator and for tests of the store and of
//! the crates above it. No shipped crate depends on this one.
//!
//! Every file has two images: the content that the process reads and the content of the medium. A
//! sync copies writes to the medium. In a crash a seeded random choice decides about each unsynced
//! write: it survives entirely, not at all, or in some of its sectors, in any order. The same
//! applies to names that were created, renamed or removed without a sync of their directory.
//!
//! After a failed sync the same random choice decides which of its writes are on the medium, and no
//! later sync writes the others, as in real kernels. The process can still read them until the
//! machine stops, or until the cache drops them as clean pages, which it may do after the process
//! has ended.
//!
//! Calls that change something are numbered, so a test can make each of them fail or be the last
//! one.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_store::disk::{Disk, DiskFile, Entry, SECTOR_BYTES};

const PAGE: u64 = 4096;

/// The effect of an injected fault on a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The call fails. A write leaves a part of its bytes.
    Error(io::ErrorKind),
    /// The machine stops during the call. Every later call fails until [`SimDisk::crash`].
    Stop,
}

/// A simulated disk. Clones share it.
#[derive(Clone, Debug)]
pub struct SimDisk {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
pub struct SimFile {
    state: Arc<Mutex<State>>,
    inode: usize,
    /// The boot in which the handle was opened. Handles are invalid after a crash.
    boot: u64,
}

#[derive(Debug)]
struct State {
    inodes: Vec<Inode>,
    names: BTreeMap<PathBuf, usize>,
    dirs: BTreeSet<PathBuf>,
    durable_names: BTreeMap<PathBuf, usize>,
    durable_dirs: BTreeSet<PathBuf>,
    /// Changes of names since the last sync of their directory, in order.
    unsynced_names: Vec<NameChange>,
    capacity: u64,
    calls: u64,
    faults: BTreeMap<u64, Fault>,
    stopped: bool,
    boot: u64,
    skips_equal_writes: bool,
    random: Random,
}

#[derive(Clone, Debug)]
enum NameChange {
    Link { path: PathBuf, inode: usize },
    Unlink { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf, inode: usize },
    MakeDir { path: PathBuf },
}

#[derive(Debug, Default)]
struct Inode {
    seen: Image,
    durable: Image,
    /// The changes that a sync applies to the medium, in order.
    unsynced: Vec<DataChange>,
    /// A sync has failed, so the readable content may not be on the medium.
    doubtful: bool,
}

#[derive(Clone, Debug)]
enum DataChange {
    Write { offset: u64, bytes: Vec<u8> },
    SetLen(u64),
}

/// The content of a file. Pages that were never written are zero and take no space.
#[derive(Clone, Debug, Default)]
struct Image {
    len: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE as usize]>>,
}

/// A seeded generator, so that a run is reproducible.
#[derive(Debug)]
struct Random(u64);

impl SimDisk {
    /// Creates an empty disk without a limit. The seed decides which writes survive crashes.
    pub fn new(seed: u64) -> SimDisk {
        let state = State {
            inodes: Vec::new(),
            names: BTreeMap::new(),
            dirs: BTreeSet::from([PathBuf::from("/")]),
            durable_names: BTreeMap::new(),
            durable_dirs: BTreeSet::from([PathBuf::from("/")]),
            unsynced_names: Vec::new(),
            capacity: u64::MAX,
            calls: 0,
            faults: BTreeMap::new(),
            stopped: false,
            boot: 0,
            skips_equal_writes: false,
            random: Random(seed),
        };
        SimDisk { state: Arc::new(Mutex::new(state)) }
    }

    /// Returns the number of changing calls so far.
    pub fn calls(&self) -> u64 {
        self.state().calls
    }

    /// Injects a fault into the changing call of this number, counted from zero since the disk was
    /// created.
    pub fn fail_call(&self, number: u64, fault: Fault) {
        self.state().faults.insert(number, fault);
    }

    /// Sets the space for pages of files. A length that is set ahead takes none.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// Stops and restarts the machine. Open files become invalid. Unsynced changes are lost, except
    /// those that the random choice keeps. Pending faults are removed.
    pub fn crash(&self) {
        self.state().crash();
    }

    /// Kills and restarts the process. Open files become invalid. Writes remain in the kernel's
    /// cache, synced or not. Pending faults are removed.
    pub fn restart(&self) {
        let mut state = self.state();
        state.drop_doubtful_pages();
        state.faults.clear();
        state.stopped = false;
        state.boot += 1;
    }

    /// Returns whether the machine has stopped during a call.
    pub fn has_stopped(&self) -> bool {
        self.state().stopped
    }

    /// Removes all pending faults.
    pub fn forget_faults(&self) {
        self.state().faults.clear();
    }

    /// From now on ignores a write of bytes that the file already contains, so that the write does
    /// not reach the medium.
    pub fn skip_equal_writes(&self) {
        self.state().skips_equal_writes = true;
    }

    /// Flips one bit of a file on the medium.
    pub fn flip_bit(&self, path: &Path, offset: u64, bit: u8) -> io::Result<()> {
        let mut state = self.state();
        let inode = state.inode_of(path)?;
        let inode = &mut state.inodes[inode];
        let mut byte = [0];
        if inode.seen.read(&mut byte, offset) == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        byte[0] ^= 1 << (bit & 7);
        inode.seen.write(&byte, offset);
        inode.durable.write(&byte, offset);
        Ok(())
    }

    /// Creates a file on the medium, including its directories.
    pub fn put(&self, path: &Path, bytes: &[u8]) {
        let mut state = self.state();
        let mut dir = path.parent();
        while let Some(path) = dir {
            state.dirs.insert(path.to_owned());
            state.durable_dirs.insert(path.to_owned());
            dir = path.parent();
        }
        let mut image = Image::default();
        image.write(bytes, 0);
        let inode = state.inodes.len();
        let (seen, durable) = (image.clone(), image);
        state.inodes.push(Inode { seen, durable, ..Inode::default() });
        state.names.insert(path.to_owned(), inode);
        state.durable_names.insert(path.to_owned(), inode);
    }

    /// Returns the content of a file as the process reads it.
    pub fn content(&self, path: &Path) -> io::Result<Vec<u8>> {
        let state = self.state();
        let image = &state.inodes[state.inode_of(path)?].seen;
        let mut bytes = vec![0; usize::try_from(image.len).map_err(io::Error::other)?];
        image.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Returns all files in the order of their names.
    pub fn files(&self) -> Vec<PathBuf> {
        self.state().names.keys().cloned().collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn file(&self, inode: usize, boot: u64) -> SimFile {
        SimFile { state: Arc::clone(&self.state), inode, boot }
    }
}

impl Disk for SimDisk {
    type File = SimFile;
    type Lock = ();

    fn list(&self, dir: &Path) -> io::Result<Vec<Entry>> {
        let state = self.state();
        state.alive()?;
        if !state.dirs.contains(dir) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let name = |path: &Path| -> Option<String> {
            (path.parent() == Some(dir)).then(|| path.file_name()?.to_str().map(str::to_owned))?
        };
        let files = state.names.iter().filter_map(|(path, inode)| {
            let len = state.inodes[*inode].seen.len;
            Some(Entry { name: name(path)?, len, is_dir: false })
        });
        let dirs = state
            .dirs
            .iter()
            .filter_map(|path| Some(Entry { name: name(path)?, len: 0, is_dir: true }));
        Ok(files.chain(dirs).collect())
    }

    fn open(&self, path: &Path) -> io::Result<SimFile> {
        let state = self.state();
        state.alive()?;
        Ok(self.file(state.inode_of(path)?, state.boot))
    }

    fn open_to_write(&self, path: &Path) -> io::Result<SimFile> {
        self.open(path)
    }

    fn create(&self, path: &Path) -> io::Result<SimFile> {
        let mut state = self.state();
        let stop = state.begin_call()?;
        if path.parent().is_none_or(|dir| !state.dirs.contains(dir)) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let inode = match state.names.get(path) {
            Some(inode) => {
                let inode = *inode;
                state.inodes[inode].change(DataChange::SetLen(0));
                inode
            }
            None => {
                let inode = state.inodes.len();
                state.inodes.push(Inode::default());
                state.change_name(NameChange::Link { path: path.to_owned(), inode });
                inode
            }
        };
        state.end_call(stop)?;
        Ok(self.file(inode, state.boot))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        let mut state = self.state();
        let stop = state.begin_call()?;
        let inode = state.inode_of(from)?;
        let (from, to) = (from.to_owned(), to.to_owned());
        state.change_name(NameChange::Rename { from, to, inode });
        state.end_call(stop)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let stop = state.begin_call()?;
        state.inode_of(path)?;
        state.change_name(NameChange::Unlink { path: path.to_owned() });
        state.end_call(stop)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let stop = state.begin_call()?;
        if stop {
            return state.end_call(stop);
        }
        let changes = std::mem::take(&mut state.unsynced_names);
        for change in changes {
            if change.dir() == Some(dir) {
                state.make_name_durable(&change);
            } else {
                state.unsynced_names.push(change);
            }
        }
        Ok(())
    }

    fn free_bytes(&self, _dir: &Path) -> io::Result<u64> {
        let state = self.state();
        state.alive()?;
        Ok(state.capacity.saturating_sub(state.used_bytes()))
    }

    fn create_dir_all(&self, dir: &Path) -> io::Result<()> {
        let mut state = self.state();
        let stop = state.begin_call()?;
        let mut missing = Vec::new();
        let mut path = Some(dir);
        while let Some(dir) = path.filter(|dir| !state.dirs.contains(*dir)) {
            missing.push(dir);
            path = dir.parent();
        }
        for dir in missing.into_iter().rev() {
            state.change_name(NameChange::MakeDir { path: dir.to_owned() });
        }
        state.end_call(stop)
    }

    fn exists(&self, path: &Path) -> io::Result<bool> {
        let state = self.state();
        state.alive()?;
        Ok(state.names.contains_key(path) || state.dirs.contains(path))
    }

    fn lock(&self, _dir: &Path) -> io::Result<()> {
        self.state().alive()
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let state = self.state()?;
        Ok(state.inodes[self.inode].seen.read(buf, offset))
    }

    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut state = self.state()?;
        let begun = state.begin_call();
        let free_pages = state.capacity.saturating_sub(state.used_bytes()) / PAGE;
        let fitting = state.inodes[self.inode].seen.fitting(offset, bytes.len(), free_pages);
        let count = match begun {
            Ok(_) => fitting,
            Err(_) => state.random.below(fitting as u64) as usize,
        };
        let change = DataChange::Write { offset, bytes: bytes[..count].to_vec() };
        if !state.skips_equal_writes || !state.inodes[self.inode].seen.holds(bytes, offset) {
            state.inodes[self.inode].change(change);
        }
        let stop = begun?;
        state.end_call(stop)?;
        if count < bytes.len() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        let mut state = self.state()?;
        let stop = state.begin_call()?;
        state.inodes[self.inode].change(DataChange::SetLen(len));
        state.end_call(stop)
    }

    fn sync_data(&mut self) -> io::Result<()> {
        let mut state = self.state()?;
        match state.begin_call() {
            Ok(false) => {
                let inode = &mut state.inodes[self.inode];
                for change in std::mem::take(&mut inode.unsynced) {
                    inode.durable.apply(&change);
                }
                Ok(())
            }
            Ok(true) => state.end_call(true),
            Err(error) => {
                if !state.stopped {
                    state.survive(self.inode);
                    state.inodes[self.inode].doubtful = true;
                }
                Err(error)
            }
        }
    }

    fn write_back(&mut self, _offset: u64, _len: u64) -> io::Result<()> {
        self.state().map(|_| ())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state()?.inodes[self.inode].seen.len)
    }
}

impl SimFile {
    fn state(&self) -> io::Result<MutexGuard<'_, State>> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.alive()?;
        if state.boot != self.boot {
            return Err(io::Error::other("the file was opened before the crash"));
        }
        Ok(state)
    }
}

impl State {
    fn alive(&self) -> io::Result<()> {
        match self.stopped {
            true => Err(io::Error::other("the machine has stopped")),
            false => Ok(()),
        }
    }

    /// Counts a changing call. Returns `true` if the machine stops during the call.
    fn begin_call(&mut self) -> io::Result<bool> {
        self.alive()?;
        let number = self.calls;
        self.calls += 1;
        match self.faults.remove(&number) {
            None => Ok(false),
            Some(Fault::Stop) => Ok(true),
            Some(Fault::Error(kind)) => Err(kind.into()),
        }
    }

    fn end_call(&mut self, stop: bool) -> io::Result<()> {
        self.stopped |= stop;
        self.alive()
    }

    fn inode_of(&self, path: &Path) -> io::Result<usize> {
        self.names.get(path).copied().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn used_bytes(&self) -> u64 {
        let linked: BTreeSet<usize> = self.names.values().copied().collect();
        linked.iter().map(|inode| self.inodes[*inode].seen.pages.len() as u64 * PAGE).sum()
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names, &mut self.dirs);
        self.unsynced_names.push(change);
    }

    fn make_name_durable(&mut self, change: &NameChange) {
        change.apply(&mut self.durable_names, &mut self.durable_dirs);
    }

    fn crash(&mut self) {
        for inode in 0..self.inodes.len() {
            self.survive(inode);
            let inode = &mut self.inodes[inode];
            inode.seen = inode.durable.clone();
            inode.doubtful = false;
        }
        // A journal keeps the order of changes; other media may not.
        let changes = std::mem::take(&mut self.unsynced_names);
        let in_order = self.random.chance(2);
        let kept = self.random.below(changes.len() as u64 + 1) as usize;
        for (index, change) in changes.into_iter().enumerate() {
            if if in_order { index < kept } else { self.random.chance(2) } {
                self.make_name_durable(&change);
            }
        }
        // A directory that is lost takes its content with it.
        let made = self.durable_dirs.clone();
        self.durable_dirs.retain(|dir| dir.ancestors().all(|dir| made.contains(dir)));
        let dirs = &self.durable_dirs;
        self.durable_names.retain(|path, _| path.parent().is_some_and(|dir| dirs.contains(dir)));
        self.names = self.durable_names.clone();
        self.dirs = self.durable_dirs.clone();
        self.forget_unlinked();
        self.faults.clear();
        self.stopped = false;
        self.boot += 1;
    }

    /// The cache may drop pages that it treats as clean; then reads return the content of the
    /// medium.
    fn drop_doubtful_pages(&mut self) {
        for inode in &mut self.inodes {
            if inode.doubtful && inode.unsynced.is_empty() && self.random.chance(4) {
                inode.seen = inode.durable.clone();
                inode.doubtful = false;
            }
        }
    }

    /// Frees the content of files that have no name. After a crash they have no open handle either.
    fn forget_unlinked(&mut self) {
        let linked: BTreeSet<usize> = self.names.values().copied().collect();
        for (number, inode) in self.inodes.iter_mut().enumerate() {
            if !linked.contains(&number) {
                *inode = Inode::default();
            }
        }
    }

    /// Decides at random which of a file's unsynced changes are on the medium.
    fn survive(&mut self, inode: usize) {
        let inode = &mut self.inodes[inode];
        for change in std::mem::take(&mut inode.unsynced) {
            match (self.random.below(3), &change) {
                (0, _) => {}
                (1, _) | (_, DataChange::SetLen(_)) => inode.durable.apply(&change),
                (_, DataChange::Write { offset, bytes }) => {
                    let mut from = 0;
                    while from < bytes.len() {
                        let at = offset + from as u64;
                        let in_sector = (SECTOR_BYTES - at % SECTOR_BYTES) as usize;
                        let to = bytes.len().min(from + in_sector);
                        if self.random.chance(2) {
                            inode.durable.write(&bytes[from..to], at);
                        }
                        from = to;
                    }
                }
            }
        }
    }
}

impl NameChange {
    fn dir(&self) -> Option<&Path> {
        match self {
            NameChange::Link { path, .. }
            | NameChange::Unlink { path }
            | NameChange::Rename { to: path, .. }
            | NameChange::MakeDir { path } => path.parent(),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, usize>, dirs: &mut BTreeSet<PathBuf>) {
        match self {
            NameChange::Link { path, inode } => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Unlink { path } => {
                names.remove(path);
            }
            NameChange::Rename { from, to, inode } => {
                names.remove(from);
                names.insert(to.clone(), *inode);
            }
            NameChange::MakeDir { path } => {
                dirs.insert(path.clone());
            }
        }
    }
}

impl Inode {
    fn change(&mut self, change: DataChange) {
        self.seen.apply(&change);
        self.unsynced.push(change);
    }
}

impl Image {
    fn apply(&mut self, change: &DataChange) {
        match change {
            DataChange::Write { offset, bytes } => self.write(bytes, *offset),
            DataChange::SetLen(len) => self.set_len(*len),
        }
    }

    fn read(&self, buf: &mut [u8], offset: u64) -> usize {
        let count = self.len.saturating_sub(offset).min(buf.len() as u64) as usize;
        let mut done = 0;
        while done < count {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE, (at % PAGE) as usize);
            let part = (count - done).min(PAGE as usize - start);
            match self.pages.get(&page) {
                Some(page) => buf[done..done + part].copy_from_slice(&page[start..start + part]),
                None => buf[done..done + part].fill(0),
            }
            done += part;
        }
        count
    }

    /// Returns whether the file already contains these bytes at the offset.
    fn holds(&self, bytes: &[u8], offset: u64) -> bool {
        let mut there = vec![0; bytes.len()];
        self.read(&mut there, offset) == bytes.len() && there == bytes
    }

    fn write(&mut self, bytes: &[u8], offset: u64) {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let (page, start) = (at / PAGE, (at % PAGE) as usize);
            let part = (bytes.len() - done).min(PAGE as usize - start);
            let page = self.pages.entry(page).or_insert_with(|| Box::new([0; PAGE as usize]));
            page[start..start + part].copy_from_slice(&bytes[done..done + part]);
            done += part;
        }
        if !bytes.is_empty() {
            self.len = self.len.max(offset + bytes.len() as u64);
        }
    }

    fn set_len(&mut self, len: u64) {
        if len < self.len {
            self.pages.retain(|page, _| page * PAGE < len);
            if let Some(page) = self.pages.get_mut(&(len / PAGE)) {
                page[(len % PAGE) as usize..].fill(0);
            }
        }
        self.len = len;
    }

    /// Returns how many of `len` bytes can be written with `free_pages` new pages.
    fn fitting(&self, offset: u64, len: usize, mut free_pages: u64) -> usize {
        let end = offset + len as u64;
        let mut at = offset;
        while at < end {
            let page = at / PAGE;
            if !self.pages.contains_key(&page) {
                if free_pages == 0 {
                    return (at - offset) as usize;
                }
                free_pages -= 1;
            }
            at = (page + 1) * PAGE;
        }
        len
    }
}

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// Returns a number below `limit`, or zero if the limit is zero.
    fn below(&mut self, limit: u64) -> u64 {
        if limit == 0 { 0 } else { self.next() % limit }
    }

    fn chance(&mut self, one_in: u64) -> bool {
        self.below(one_in) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk() -> (SimDisk, PathBuf) {
        let disk = SimDisk::new(1);
        let dir = PathBuf::from("/d");
        disk.create_dir_all(&dir).unwrap();
        disk.sync_dir(Path::new("/")).unwrap();
        (disk, dir)
    }

    #[test]
    fn synced_content_under_a_synced_name_survives_every_crash() {
        let (disk, dir) = disk();
        let path = dir.join("f");
        let mut file = disk.create(&path).unwrap();
        file.write_at(b"kept", 0).unwrap();
        file.sync_data().unwrap();
        disk.sync_dir(&dir).unwrap();
        for round in 0..50u8 {
            let mut file = disk.open_to_write(&path).unwrap();
            file.write_at(&[round; 3000], 4).unwrap();
            disk.crash();
            assert_eq!(&disk.content(&path).unwrap()[..4], b"kept");
        }
    }

    #[test]
    fn unsynced_names_and_bytes_are_lost_sometimes_and_kept_sometimes() {
        let (mut lost_names, mut lost_bytes, mut torn) = (0, 0, 0);
        for seed in 0..100 {
            let (disk, dir) = disk();
            disk.state().random = Random(seed);
            let path = dir.join("f");
            disk.create(&path).unwrap().write_at(&[7; 2048], 0).unwrap();
            disk.crash();
            match disk.content(&path) {
                Err(_) => lost_names += 1,
                Ok(bytes) if bytes.is_empty() => lost_bytes += 1,
                Ok(bytes) => torn += usize::from(bytes != [7; 2048]),
            }
        }
        assert!(lost_names > 5 && lost_bytes > 5 && torn > 5, "{lost_names} {lost_bytes} {torn}");
    }

    #[test]
    fn a_sync_after_a_failed_one_brings_nothing_back() {
        let mut lost = 0;
        for seed in 0..50 {
            let (disk, dir) = disk();
            disk.state().random = Random(seed);
            let path = dir.join("f");
            let mut file = disk.create(&path).unwrap();
            disk.sync_dir(&dir).unwrap();
            file.write_at(b"data", 0).unwrap();
            disk.fail_call(disk.calls(), Fault::Error(io::ErrorKind::Other));
            file.sync_data().unwrap_err();
            file.sync_data().unwrap();
            disk.crash();
            lost += usize::from(disk.content(&path).unwrap().is_empty());
        }
        assert!(lost > 5, "{lost}");
    }

    #[test]
    fn a_full_disk_takes_a_part_of_a_write_and_says_so() {
        let (disk, dir) = disk();
        disk.set_capacity(2 * PAGE);
        let mut file = disk.create(&dir.join("f")).unwrap();
        file.set_len(64 << 20).unwrap();
        let error = file.write_at(&[1; 3 * PAGE as usize], 0).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        file.write_at(&[1; PAGE as usize], 0).unwrap();
    }

    #[test]
    fn the_machine_stops_at_the_chosen_call_until_it_is_restarted() {
        let (disk, dir) = disk();
        disk.fail_call(disk.calls(), Fault::Stop);
        disk.create(&dir.join("f")).unwrap_err();
        disk.list(&dir).unwrap_err();
        disk.crash();
        disk.list(&dir).unwrap();
    }
}
