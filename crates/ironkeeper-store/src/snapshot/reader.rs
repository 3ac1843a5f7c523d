//! Reader of a snapshot.
//!
//! Costs for a million nodes of 180 bytes: 180 reads of 1 MiB, one Adler-32 over each, and per node
//! a decoding that borrows everything from the buffer. A record that spans two chunks is moved to
//! the front of the buffer. No memory is allocated for a length that is not verified.

use std::io::{self, Read};
use std::path::Path;

use ironkeeper_proto::jute::{DecodeError, Reader};
use ironkeeper_proto::snapshot_record::{
    END_PATH, FILE_HEADER_LEN, MAGIC, SnapshotDigest, SnapshotNode,
};
use ironkeeper_proto::{AclVec, SessionId, Zxid};

use super::Compression;
use super::inflate::Plain;
use crate::catalog;
use crate::disk::{Disk, Sequential};
use crate::error::{At, StoreError};
use crate::recover::Visitor;

const CHUNK: usize = 1 << 20;
/// The length of a seal: checksum and "/".
const SEAL_LEN: usize = 8 + 4 + 1;

/// The contents of a snapshot besides its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSummary {
    pub sessions: u64,
    pub acls: u64,
    pub nodes: u64,
    pub digest: Option<SnapshotDigest>,
    pub last_zxid: Option<Zxid>,
    /// The length of the uncompressed stream.
    pub bytes: u64,
}

/// Reads the snapshot file at `path`, whose name contains the zxid and the compression.
///
/// The visitor receives records before the file's checksum is verified. If this function fails, the
/// visitor must discard them, at the latest on [`Visitor::snapshot_start`] of the next attempt.
pub fn read_snapshot_file<D: Disk>(
    disk: &D,
    path: &Path,
    field_max: usize,
    visitor: &mut dyn Visitor,
) -> Result<SnapshotSummary, StoreError> {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    // The inspection tools also read files with other names.
    let (zxid, compression) = catalog::snapshot_name(name).unwrap_or_else(|| {
        let compression = match path.extension().and_then(|suffix| suffix.to_str()) {
            Some("gz") => Compression::Gzip,
            Some("snappy") => Compression::Snappy,
            _ => Compression::None,
        };
        (Zxid::ZERO, compression)
    });
    let file = disk.open(path).at(path, "open the snapshot")?;
    let source = Plain::new(Sequential::new(file), compression);
    read_snapshot(source, zxid, path, field_max, visitor)
}

/// Reads an uncompressed snapshot stream of the state at `zxid`. Errors carry `path` and offsets in
/// uncompressed bytes.
pub fn read_snapshot(
    source: impl Read,
    zxid: Zxid,
    path: &Path,
    field_max: usize,
    visitor: &mut dyn Visitor,
) -> Result<SnapshotSummary, StoreError> {
    let mut window = Window::new(source, path, field_max);
    let mut summary = SnapshotSummary::default();
    visitor.snapshot_start(zxid, path);

    window.parse(|reader| {
        let head = reader.bytes(FILE_HEADER_LEN)?;
        match head[..MAGIC.len()] == MAGIC {
            true => Ok(()),
            false => Err(Trouble::from("this is not a snapshot: it does not begin with ZKSN")),
        }
    })?;

    // As in Java, a negative count is zero.
    let sessions = window.parse(|reader| Ok(reader.i32()?.max(0)))?;
    for _ in 0..sessions {
        window.parse(|reader| {
            let (id, timeout_ms) = (SessionId(reader.i64()?), reader.i32()?);
            visitor.session(id, timeout_ms);
            Ok(())
        })?;
        summary.sessions += 1;
    }

    let acls = window.parse(|reader| Ok(reader.i32()?.max(0)))?;
    for _ in 0..acls {
        window.parse(|reader| {
            let id = reader.i64()?;
            let list = AclVec::decode(reader)?.unwrap_or(AclVec::EMPTY);
            visitor.acl(id, list);
            Ok(())
        })?;
        summary.acls += 1;
    }

    while window.parse(|reader| {
        let path = reader.str()?;
        if path == END_PATH {
            return Ok(false);
        }
        let node = SnapshotNode::decode_body(path, reader)?;
        visitor.node(&node).map_err(Trouble::Refused)?;
        Ok(true)
    })? {
        summary.nodes += 1;
    }
    let sum = window.sum();
    window.parse(|reader| read_seal(reader, sum))?;

    // Two optional sections follow, without a type. The seal after each identifies it: the checksum
    // matches only if the section has the expected length. Data after both sections is of a later
    // version.
    if let Some(section) = window.section(SnapshotDigest::ENCODED_LEN)? {
        let digest = SnapshotDigest::decode(&mut Reader::new(&section));
        summary.digest = Some(digest.expect("the section has the length of a digest"));
    }
    if let Some(section) = window.section(size_of::<i64>())? {
        let zxid = Reader::new(&section).i64().expect("the section has the length of a zxid");
        summary.last_zxid = Some(Zxid(zxid));
    } else if !window.is_over()? {
        return Err(window.damaged("wrong checksum behind the first seal".to_owned()));
    }
    summary.bytes = window.position();
    visitor.snapshot_end(zxid, summary.digest).map_err(|what| window.rejected(what))?;
    Ok(summary)
}

fn read_seal(reader: &mut Reader<'_>, sum: u32) -> Result<(), Trouble> {
    let mut seal = Reader::new(reader.bytes(SEAL_LEN)?);
    let checksum = seal.i64()?;
    if checksum != i64::from(sum) {
        return Err(Trouble::from("wrong checksum"));
    }
    match seal.str()? == END_PATH {
        true => Ok(()),
        false => Err(Trouble::from("a seal without its end mark")),
    }
}

/// The reason why a record could not be read.
enum Trouble {
    Decode(DecodeError),
    Damaged(&'static str),
    /// The visitor rejected the record.
    Refused(String),
}

impl From<DecodeError> for Trouble {
    fn from(error: DecodeError) -> Trouble {
        Trouble::Decode(error)
    }
}

impl From<&'static str> for Trouble {
    fn from(what: &'static str) -> Trouble {
        Trouble::Damaged(what)
    }
}

/// The part of the stream that is in memory.
struct Window<'p, R> {
    source: R,
    path: &'p Path,
    field_max: usize,
    /// The maximal length of a record: path, data and the fixed fields. The same bound applies to
    /// an ACL list.
    record_max: usize,
    buffer: Vec<u8>,
    /// The number of bytes of the stream before the buffer.
    passed: u64,
    filled: usize,
    consumed: usize,
    /// The number of consumed bytes that are in the checksum.
    summed: usize,
    adler: simd_adler32::Adler32,
    at_end: bool,
}

impl<'p, R: Read> Window<'p, R> {
    fn new(source: R, path: &'p Path, field_max: usize) -> Window<'p, R> {
        Window {
            source,
            path,
            field_max,
            record_max: field_max.saturating_mul(2).saturating_add(4096),
            buffer: vec![0; CHUNK],
            passed: 0,
            filled: 0,
            consumed: 0,
            summed: 0,
            adler: simd_adler32::Adler32::new(),
            at_end: false,
        }
    }

    fn position(&self) -> u64 {
        self.passed + self.consumed as u64
    }

    fn damaged(&self, what: String) -> StoreError {
        StoreError::Damaged { file: self.path.to_owned(), offset: self.position(), what }
    }

    fn rejected(&self, what: String) -> StoreError {
        StoreError::Rejected { file: self.path.to_owned(), offset: self.position(), what }
    }

    /// Lets `read` decode one record at the front, and calls it again with more bytes if they are
    /// too few.
    #[inline]
    fn parse<T>(
        &mut self,
        mut read: impl FnMut(&mut Reader<'_>) -> Result<T, Trouble>,
    ) -> Result<T, StoreError> {
        loop {
            let unread = &self.buffer[self.consumed..self.filled];
            let mut reader = Reader::with_limit(unread, self.field_max);
            match read(&mut reader) {
                Ok(value) => {
                    self.consumed = self.filled - reader.rest().len();
                    return Ok(value);
                }
                Err(Trouble::Decode(DecodeError::Truncated)) => {
                    if unread.len() > self.record_max {
                        return Err(self.damaged("a record without end".to_owned()));
                    }
                    if !self.more()? {
                        return Err(self.damaged("the file ends too early".to_owned()));
                    }
                }
                Err(Trouble::Decode(DecodeError::BadLength(len))) => {
                    let limit = self.field_max;
                    return Err(self.damaged(format!(
                        "a field of length {len}; jute.maxbuffer and its extra size allow {limit}"
                    )));
                }
                Err(Trouble::Decode(error)) => return Err(self.damaged(error.to_string())),
                Err(Trouble::Damaged(what)) => return Err(self.damaged(what.to_owned())),
                Err(Trouble::Refused(what)) => return Err(self.rejected(what)),
            }
        }
    }

    /// Adds the consumed bytes to the checksum.
    fn update_sum(&mut self) {
        self.adler.write(&self.buffer[self.summed..self.consumed]);
        self.summed = self.consumed;
    }

    /// Returns the checksum of everything consumed so far.
    fn sum(&mut self) -> u32 {
        self.update_sum();
        self.adler.finish()
    }

    /// Reads more bytes and keeps the unread ones. Returns `false` at the end of the stream.
    fn more(&mut self) -> Result<bool, StoreError> {
        if self.at_end {
            return Ok(false);
        }
        self.update_sum();
        self.buffer.copy_within(self.consumed..self.filled, 0);
        self.passed += self.consumed as u64;
        self.filled -= self.consumed;
        self.consumed = 0;
        self.summed = 0;
        // A record that does not fit doubles the buffer, up to the maximal length of a record.
        if self.filled * 2 > self.buffer.len() {
            self.buffer.resize(self.buffer.len() * 2, 0);
        }
        let before = self.filled;
        while self.filled < self.buffer.len() {
            match self.source.read(&mut self.buffer[self.filled..]) {
                Ok(0) => {
                    self.at_end = true;
                    break;
                }
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A failure of the decompressor is damage, not an I/O error.
                Err(error) if error.raw_os_error().is_none() => {
                    self.at_end = true;
                    let offset = self.passed + self.filled as u64;
                    let what = format!("cannot be decompressed: {error}");
                    return Err(StoreError::Damaged { file: self.path.to_owned(), offset, what });
                }
                Err(error) => return Err(error).at(self.path, "read the snapshot"),
            }
        }
        Ok(self.filled > before)
    }

    /// Consumes the next `len` bytes if a valid seal follows them.
    fn section(&mut self, len: usize) -> Result<Option<Vec<u8>>, StoreError> {
        while self.filled - self.consumed < len + SEAL_LEN {
            if !self.more()? {
                return Ok(None);
            }
        }
        self.update_sum();
        let unread = &self.buffer[self.consumed..self.filled];
        let (section, rest) = unread.split_at(len);
        let mut sum = self.adler.clone();
        sum.write(section);
        if read_seal(&mut Reader::new(rest), sum.finish()).is_err() {
            return Ok(None);
        }
        let section = section.to_vec();
        self.consumed += len + SEAL_LEN;
        Ok(Some(section))
    }

    /// Returns whether the stream has ended.
    fn is_over(&mut self) -> Result<bool, StoreError> {
        Ok(self.filled == self.consumed && !self.more()?)
    }
}
