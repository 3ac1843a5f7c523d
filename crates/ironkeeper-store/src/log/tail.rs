//! Classification of an unreadable record: torn write or damage.
//!
//! A commit is one write of many records and one sync. If the machine stops between the two, any
//! subset of the write's sectors may be on the medium, in any order; the others still contain the
//! zeroes that were there before. So a torn write has one of two forms:
//!
//! - a prefix: from some byte on, the record and everything after it is missing or zero;
//! - a hole: a sector that the record overlaps is zero, from the start of the record or of the
//!   sector, whichever is later, to the end of the sector. Records after the hole, complete or not,
//!   belong to the same torn write.
//!
//! Anything else was intact once, may have been acknowledged, and is damage. A flipped bit in the
//! very last record is therefore damage and not a torn tail, even though nothing follows it. Damage
//! is also a record that is intact except for its length field, a length that no record can have,
//! and a length that reaches past the last written byte although those bytes end with an intact
//! record.

use std::io;

use ironkeeper_proto::log_record::{
    self, END_MARK, FILE_HEADER_LEN, RECORD_HEADER_LEN, RecordHeader,
};

use super::reader::LogEnd;
use crate::disk::{DiskFile, SECTOR_BYTES, read_full};

/// The maximal length of a torn write, and so of a record. A hole that more bytes follow is in the
/// middle of complete writes.
const TORN_BYTES_MAX: u64 = 64 << 20;
const CHUNK: usize = 256 << 10;

/// Classifies the frame at `offset`. `frame_len` is its apparent length, and `what` the reason why
/// it could not be read.
pub(super) fn explain<F: DiskFile>(
    file: &F,
    file_len: u64,
    offset: u64,
    frame_len: u64,
    what: &'static str,
) -> io::Result<LogEnd> {
    let Some(last) = last_nonzero(file, offset, file_len)? else { return Ok(LogEnd::Clean) };
    let dropped_bytes = last + 1 - offset;
    let frame_end = offset.saturating_add(frame_len);
    // The end mark is the frame's last byte, so a prefix never reaches it.
    let is_prefix = last + 1 < frame_end;
    if is_prefix {
        if frame_len > TORN_BYTES_MAX
            || whole_but_for_its_length(file, offset, last)?
            || ends_in_a_record(file, offset, last)?
        {
            let what = "the length of a record is wrong".to_owned();
            return Ok(LogEnd::Damaged { what });
        }
        return Ok(LogEnd::Torn { what, dropped_bytes });
    }
    if dropped_bytes <= TORN_BYTES_MAX && has_hole(file, offset, frame_end.min(file_len))? {
        return Ok(LogEnd::Torn { what, dropped_bytes });
    }
    Ok(LogEnd::Damaged { what: what.to_owned() })
}

/// Classifies a file without a valid header. A header that was never written in full is torn: the
/// first write of a file contains its header and its first records.
pub(super) fn explain_file_header<F: DiskFile>(file: &F, file_len: u64) -> io::Result<LogEnd> {
    let Some(last) = last_nonzero(file, 0, file_len)? else {
        return Ok(LogEnd::Torn { what: "the file is empty", dropped_bytes: 0 });
    };
    let dropped_bytes = last + 1;
    let mut expected = Vec::with_capacity(FILE_HEADER_LEN);
    log_record::encode_file_header(&mut expected);
    let mut head = [0; FILE_HEADER_LEN];
    read_full(file, &mut head, 0)?;
    let begun = usize::try_from(dropped_bytes).unwrap_or(usize::MAX);
    if begun <= FILE_HEADER_LEN && head[..begun] == expected[..begun] {
        return Ok(LogEnd::Torn { what: "the file header is cut short", dropped_bytes });
    }
    if dropped_bytes <= TORN_BYTES_MAX && has_hole(file, 0, FILE_HEADER_LEN as u64)? {
        return Ok(LogEnd::Torn { what: "the file header is missing", dropped_bytes });
    }
    let what = "this is not a transaction log: it does not begin with ZKLG".to_owned();
    Ok(LogEnd::Damaged { what })
}

/// Returns whether an intact record starts at `offset` and ends at an earlier end mark than its
/// length field specifies.
fn whole_but_for_its_length<F: DiskFile>(file: &F, offset: u64, last: u64) -> io::Result<bool> {
    let body_start = offset + RECORD_HEADER_LEN as u64;
    let mut head = [0; RECORD_HEADER_LEN];
    read_full(file, &mut head, offset)?;
    let header = RecordHeader::decode(&head).expect("twelve bytes hold a frame's head");
    let mut found = false;
    let mut sum = RunningAdler::new();
    for_each_chunk(file, body_start, last + 1, |chunk, _| {
        for byte in chunk {
            if *byte == END_MARK && i64::from(sum.value()) == header.checksum {
                found = true;
                return false;
            }
            sum.add(*byte);
        }
        true
    })?;
    Ok(found)
}

/// Returns whether an intact record that starts after `offset` ends at `last`. The frame at
/// `offset` includes these bytes according to its length; a prefix of it would end in the middle of
/// its body.
///
/// The search runs backwards: the checksum of each candidate body follows from that of the body
/// that is one byte shorter, so the cost is linear for any content.
fn ends_in_a_record<F: DiskFile>(file: &F, offset: u64, last: u64) -> io::Result<bool> {
    let mut sum = RunningAdler::new();
    let mut len = 0_i64;
    let mut end = last;
    let mut buffer = vec![0; RECORD_HEADER_LEN + CHUNK];
    if read_full(file, &mut buffer[..1], last)? != 1 || buffer[0] != END_MARK {
        return Ok(false);
    }
    // Each iteration reads the bytes `start..end`, and the headers of the bodies that start there.
    while end > offset + RECORD_HEADER_LEN as u64 + 1 {
        let start = end.saturating_sub(CHUNK as u64).max(offset + RECORD_HEADER_LEN as u64 + 1);
        let wanted = RECORD_HEADER_LEN + (end - start) as usize;
        let bytes = &mut buffer[..wanted];
        if read_full(file, bytes, start - RECORD_HEADER_LEN as u64)? != wanted {
            return Ok(false);
        }
        for body_start in (RECORD_HEADER_LEN..wanted).rev() {
            sum.add_in_front(bytes[body_start]);
            len += 1;
            let head = &bytes[body_start - RECORD_HEADER_LEN..body_start];
            let header = RecordHeader::decode(head).expect("twelve bytes hold a frame's head");
            if i64::from(header.len) == len && header.checksum == i64::from(sum.value()) {
                return Ok(true);
            }
        }
        end = start;
    }
    Ok(false)
}

/// Adler-32 that can be read after every byte.
struct RunningAdler {
    a: u32,
    b: u32,
    len: u32,
}

impl RunningAdler {
    const MODULUS: u32 = 65_521;

    fn new() -> RunningAdler {
        RunningAdler { a: 1, b: 0, len: 0 }
    }

    fn add(&mut self, byte: u8) {
        self.a = (self.a + u32::from(byte)) % Self::MODULUS;
        self.b = (self.b + self.a) % Self::MODULUS;
        self.len = (self.len + 1) % Self::MODULUS;
    }

    /// Updates the value as if `byte` preceded all others: `b` counts it once for each byte.
    fn add_in_front(&mut self, byte: u8) {
        self.len = (self.len + 1) % Self::MODULUS;
        self.a = (self.a + u32::from(byte)) % Self::MODULUS;
        self.b = (self.b + 1 + self.len * u32::from(byte)) % Self::MODULUS;
    }

    fn value(&self) -> u32 {
        self.b << 16 | self.a
    }
}

/// Returns whether a sector that overlaps `from..to` is zero within the frame.
fn has_hole<F: DiskFile>(file: &F, from: u64, to: u64) -> io::Result<bool> {
    let mut sector = from - from % SECTOR_BYTES;
    let mut bytes = [0; SECTOR_BYTES as usize];
    while sector < to {
        let start = sector.max(from);
        let part = &mut bytes[..(sector + SECTOR_BYTES - start) as usize];
        let count = read_full(file, part, start)?;
        if part[..count].iter().all(|byte| *byte == 0) {
            return Ok(true);
        }
        sector += SECTOR_BYTES;
    }
    Ok(false)
}

fn last_nonzero<F: DiskFile>(file: &F, from: u64, to: u64) -> io::Result<Option<u64>> {
    let mut last = None;
    let zeroes = vec![0; CHUNK];
    for_each_chunk(file, from, to, |chunk, at| {
        // Padding is long, and this comparison is fast.
        if chunk == &zeroes[..chunk.len()] {
            return true;
        }
        if let Some(index) = chunk.iter().rposition(|byte| *byte != 0) {
            last = Some(at + index as u64);
        }
        true
    })?;
    Ok(last)
}

/// Calls `visit` with each chunk of a range and its offset, until it returns `false`.
fn for_each_chunk<F: DiskFile>(
    file: &F,
    mut from: u64,
    to: u64,
    mut visit: impl FnMut(&[u8], u64) -> bool,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    while from < to {
        let wanted = (to - from).min(CHUNK as u64) as usize;
        let count = read_full(file, &mut buffer[..wanted], from)?;
        if count == 0 || !visit(&buffer[..count], from) {
            break;
        }
        from += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_added_in_front_give_the_checksum_of_the_whole() {
        let bytes: Vec<u8> = (0..200_000_u32).map(|index| (index * 31 % 251) as u8).collect();
        let mut sum = RunningAdler::new();
        for (index, byte) in bytes.iter().enumerate().rev() {
            sum.add_in_front(*byte);
            if index % 9_973 == 0 {
                assert_eq!(sum.value(), simd_adler32::adler32(&&bytes[index..]), "from {index}");
            }
        }
    }
}
