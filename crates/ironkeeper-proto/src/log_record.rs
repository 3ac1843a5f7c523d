//! The frame around a transaction in a log file, and the header of the file.
//!
//! ```text
//! file   | magic ZKLG | version 2 i32 | dbid 0 i64 | record ... | zero padding |
//! record | checksum i64 | length i32 | body | 0x42 |
//! ```
//! The checksum is the Adler-32 of the body. The reader or writer of the file computes it.

use crate::jute::{DecodeError, Put, Reader};

pub const MAGIC: [u8; 4] = *b"ZKLG";
pub const VERSION: i32 = 2;
pub const FILE_HEADER_LEN: usize = 16;
/// The length of a [`RecordHeader`]: checksum and length.
pub const RECORD_HEADER_LEN: usize = 12;
pub const END_MARK: u8 = 0x42;

pub fn encode_file_header(out: &mut impl Put) {
    out.put_raw(&MAGIC);
    out.put_i32(VERSION);
    out.put_i64(0);
}

/// The bytes before the body of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    pub checksum: i64,
    pub len: i32,
}

impl RecordHeader {
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i64(self.checksum);
        out.put_i32(self.len);
    }

    pub fn decode(bytes: &[u8]) -> Result<RecordHeader, DecodeError> {
        let mut reader = Reader::new(bytes);
        Ok(RecordHeader { checksum: reader.i64()?, len: reader.i32()? })
    }
}
