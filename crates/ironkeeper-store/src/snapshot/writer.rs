//! Writer of a snapshot, which limits the effect on the log.
//!
//! A snapshot has some hundred megabytes and no client waits for it, while clients wait for every
//! sync of the log. If the page cache writes the snapshot back, it does so all at once: on ext4 a
//! log's fdatasync then waits for the whole snapshot (*measured* 95 to 120 ms beside 200 MB). So
//! every piece of 256 KiB is written back to the medium before the next one is produced, which
//! keeps the log's worst fdatasync within 2 ms of its usual one. The wait also slows down the
//! thread of the snapshot walk.

use std::fmt;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use flate2::write::GzEncoder;
use ironkeeper_proto::Zxid;
use ironkeeper_proto::jute::Put;
use ironkeeper_proto::snapshot_record::{self, SnapshotDigest};

use super::{Compression, snappy};
use crate::catalog::{self, INCOMING_PREFIX, UNFINISHED_SUFFIX};
use crate::disk::{Disk, DiskFile};
use crate::error::{At, StoreError};
use crate::store::StoreOptions;

/// The number of bytes that are written and written back at once.
const PIECE: usize = 256 << 10;

/// A snapshot in progress. The complete file gets its name in [`SnapshotWriter::finish`]; an
/// incomplete one never does.
///
/// The caller writes the file header, sessions, ACLs and nodes with the encoders of
/// [`snapshot_record`] and calls [`SnapshotWriter::finish_with`], which appends the sections that
/// the options select. Dropping the writer abandons the snapshot.
pub struct SnapshotWriter<D: Disk> {
    disk: D,
    dir: PathBuf,
    path: PathBuf,
    unfinished: PathBuf,
    write_digest: bool,
    write_last_zxid: bool,
    adler: simd_adler32::Adler32,
    /// Uncompressed bytes; those up to `summed` are in the checksum.
    plain: Vec<u8>,
    summed: usize,
    packer: Packer,
    file: D::File,
    /// The number of compressed bytes in the file.
    position: u64,
    /// Whether the file has its final name.
    finished: bool,
    /// Whether a write has failed, so that the file may have holes.
    failed: bool,
}

impl<D: Disk> fmt::Debug for SnapshotWriter<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut fields = f.debug_struct("SnapshotWriter");
        fields.field("path", &self.path).field("position", &self.position).finish_non_exhaustive()
    }
}

/// The origin of a snapshot. At most one own snapshot is in progress at a time; of leaders there
/// may be several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Own,
    /// With a unique number.
    Leader(u64),
}

enum Packer {
    None,
    Gzip(GzEncoder<Vec<u8>>),
    Snappy { encoder: Box<snap::raw::Encoder>, packed: Vec<u8> },
}

impl<D: Disk> SnapshotWriter<D> {
    pub(crate) fn create(
        disk: D,
        dir: &Path,
        zxid: Zxid,
        options: &StoreOptions,
        origin: Origin,
    ) -> Result<SnapshotWriter<D>, StoreError> {
        let name = catalog::snapshot_file_name(zxid, options.compression);
        let unfinished = dir.join(match origin {
            Origin::Own => format!("{name}{UNFINISHED_SUFFIX}"),
            Origin::Leader(number) => format!("{INCOMING_PREFIX}{number}.{name}"),
        });
        let path = dir.join(name);
        let file = disk.create(&unfinished).at(&unfinished, "create the snapshot")?;
        let packer = match options.compression {
            Compression::None => Packer::None,
            Compression::Gzip => {
                Packer::Gzip(GzEncoder::new(Vec::new(), flate2::Compression::default()))
            }
            Compression::Snappy => {
                let mut packed = Vec::new();
                snappy::put_head(&mut packed);
                Packer::Snappy { encoder: Box::new(snap::raw::Encoder::new()), packed }
            }
        };
        Ok(SnapshotWriter {
            disk,
            dir: dir.to_owned(),
            path,
            unfinished,
            write_digest: options.write_digest,
            write_last_zxid: options.write_last_zxid,
            adler: simd_adler32::Adler32::new(),
            plain: Vec::with_capacity(PIECE),
            summed: 0,
            packer,
            file,
            position: 0,
            finished: false,
            failed: false,
        })
    }

    /// Appends to the stream. Any error is final for this snapshot, even if the disk is only full.
    pub fn write(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            let count = bytes.len().min(PIECE - self.plain.len());
            self.plain.extend_from_slice(&bytes[..count]);
            bytes = &bytes[count..];
            if self.plain.len() == PIECE {
                self.write_piece()?;
            }
        }
        Ok(())
    }

    /// Appends the checksum of everything so far.
    pub fn seal(&mut self) -> Result<(), StoreError> {
        self.update_sum();
        let mut seal = Vec::new();
        seal.put_i64(i64::from(self.adler.finish()));
        seal.put_str(snapshot_record::END_PATH);
        self.write(&seal)
    }

    /// Ends the nodes, seals them, appends the sections that the options select, and finishes.
    pub fn finish_with(
        mut self,
        digest: SnapshotDigest,
        last_zxid: Zxid,
    ) -> Result<PathBuf, StoreError> {
        let mut bytes = Vec::new();
        bytes.put_str(snapshot_record::END_PATH);
        self.write(&bytes)?;
        self.seal()?;
        if self.write_digest {
            bytes.clear();
            digest.encode(&mut bytes);
            self.write(&bytes)?;
            self.seal()?;
        }
        if self.write_last_zxid {
            self.write(&last_zxid.0.to_be_bytes())?;
            self.seal()?;
        }
        self.finish()
    }

    /// Makes the file durable and renames it to its final name. The last seal must have been
    /// written.
    pub fn finish(mut self) -> Result<PathBuf, StoreError> {
        if self.failed {
            return Err(StoreError::WriterFailed { path: self.unfinished.clone() });
        }
        self.write_piece()?;
        self.finish_packing().at(&self.unfinished, "write the snapshot")?;
        self.file.sync_data().at(&self.unfinished, "sync the snapshot")?;
        self.disk.rename(&self.unfinished, &self.path).at(&self.path, "rename the snapshot")?;
        self.finished = true;
        self.disk.sync_dir(&self.dir).at(&self.dir, "sync the directory")?;
        Ok(self.path.clone())
    }

    /// Returns the number of bytes in the file so far.
    pub fn bytes_written(&self) -> u64 {
        self.position
    }

    fn update_sum(&mut self) {
        self.adler.write(&self.plain[self.summed..]);
        self.summed = self.plain.len();
    }

    /// Compresses and writes the collected bytes.
    fn write_piece(&mut self) -> Result<(), StoreError> {
        self.update_sum();
        let (plain, file, position) = (&self.plain, &mut self.file, &mut self.position);
        let written = match &mut self.packer {
            Packer::None => push(file, position, plain),
            Packer::Gzip(encoder) => encoder.write_all(plain).and_then(|()| {
                let packed = encoder.get_mut();
                flush_if_full(file, position, packed)
            }),
            Packer::Snappy { encoder, packed } => plain
                .chunks(snappy::BLOCK_LEN)
                .try_for_each(|block| snappy::put_block(encoder, block, packed))
                .and_then(|()| flush_if_full(file, position, packed)),
        };
        self.failed |= written.is_err();
        written.at(&self.unfinished, "write the snapshot")?;
        self.plain.clear();
        self.summed = 0;
        Ok(())
    }

    fn finish_packing(&mut self) -> io::Result<()> {
        match &mut self.packer {
            Packer::None => Ok(()),
            Packer::Gzip(encoder) => {
                encoder.try_finish()?;
                push(&mut self.file, &mut self.position, encoder.get_ref())
            }
            Packer::Snappy { packed, .. } => push(&mut self.file, &mut self.position, packed),
        }
    }
}

fn flush_if_full<F: DiskFile>(
    file: &mut F,
    position: &mut u64,
    packed: &mut Vec<u8>,
) -> io::Result<()> {
    if packed.len() >= PIECE {
        push(file, position, packed)?;
        packed.clear();
    }
    Ok(())
}

/// Writes a piece and waits until it is written back and dropped from the cache.
fn push<F: DiskFile>(file: &mut F, position: &mut u64, bytes: &[u8]) -> io::Result<()> {
    if bytes.is_empty() {
        return Ok(());
    }
    file.write_at(bytes, *position)?;
    file.write_back(*position, bytes.len() as u64)?;
    *position += bytes.len() as u64;
    Ok(())
}

impl<D: Disk> Drop for SnapshotWriter<D> {
    fn drop(&mut self) {
        if !self.finished {
            // If this fails, the next start removes the file.
            let _ = self.disk.remove(&self.unfinished);
        }
    }
}
