//! The frame around a transaction in a log file, and the header of the file.
//!
//! ```text
//! file   | magic ZKLG | version 2 i32 | dbid 0 i64 | record ... | zero padding |
//! record | checksum i64 | length i32 | body | 0x42 |
//! ```
//! The checksum is the Adler-32 of the body. The reader or writer of the file computes it.

use crate::jute::{DecodeError, Put, Reader};

/// The first bytes of a log file.
pub const MAGIC: [u8; 4] = *b"ZKLG";
/// The version of the format.
pub const VERSION: i32 = 2;
/// The length of the file header in bytes.
pub const FILE_HEADER_LEN: usize = 16;
/// The length of a [`RecordHeader`]: checksum and length.
pub const RECORD_HEADER_LEN: usize = 12;
/// The byte after each record.
pub const END_MARK: u8 = 0x42;

/// Appends the file header.
pub fn encode_file_header(out: &mut impl Put) {
    out.put_raw(&MAGIC);
    out.put_i32(VERSION);
    out.put_i64(0);
}

/// The bytes before the body of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// The Adler-32 checksum of the record.
    pub checksum: i64,
    /// The length of the record in bytes.
    pub len: i32,
}

impl RecordHeader {
    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i64(self.checksum);
        out.put_i32(self.len);
    }

    /// Decodes the record.
    pub fn decode(bytes: &[u8]) -> Result<RecordHeader, DecodeError> {
        let mut reader = Reader::new(bytes);
        Ok(RecordHeader { checksum: reader.i64()?, len: reader.i32()? })
    }
}
