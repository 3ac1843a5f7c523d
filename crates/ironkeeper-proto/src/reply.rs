//! Reply headers and framing. There are few reply bodies: the code that has the values writes their
//! fields directly into the output buffer.

use crate::error_code::ErrorCode;
use crate::ids::{Xid, Zxid};
use crate::jute::{DecodeError, Put, Reader};

/// The 16 bytes before every reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyHeader {
    /// The number of the request; negative for replies without one.
    pub xid: Xid,
    /// The last transaction that is reflected in the reply.
    pub zxid: Zxid,
    /// An [`ErrorCode`], or zero.
    pub err: i32,
}

impl ReplyHeader {
    /// The length of the encoding in bytes.
    pub const ENCODED_LEN: usize = 16;

    /// Appends the encoding.
    #[inline]
    pub fn encode(&self, out: &mut impl Put) {
        let mut bytes = [0; ReplyHeader::ENCODED_LEN];
        bytes[0..4].copy_from_slice(&self.xid.0.to_be_bytes());
        bytes[4..12].copy_from_slice(&self.zxid.0.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.err.to_be_bytes());
        out.put_raw(&bytes);
    }

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<ReplyHeader, DecodeError> {
        Ok(ReplyHeader { xid: Xid(reader.i32()?), zxid: Zxid(reader.i64()?), err: reader.i32()? })
    }
}

/// Starts a frame and returns its offset. [`finish_frame`] fills in the length.
#[inline]
pub fn start_frame(out: &mut Vec<u8>, xid: Xid, zxid: Zxid) -> usize {
    let start = out.len();
    out.put_i32(0);
    ReplyHeader { xid, zxid, err: 0 }.encode(out);
    start
}

/// Fills in the length of the frame that starts at `start` and ends at the end of the buffer.
#[inline]
pub fn finish_frame(out: &mut [u8], start: usize) {
    let len = i32::try_from(out.len() - start - 4).expect("replies are far below 2 GiB");
    out[start..start + 4].copy_from_slice(&len.to_be_bytes());
}

/// Writes a whole frame that consists of a header only: an error, or a success without a body
/// (`None`).
#[inline]
pub fn header_frame(out: &mut Vec<u8>, xid: Xid, zxid: Zxid, error: Option<ErrorCode>) {
    out.put_i32(ReplyHeader::ENCODED_LEN as i32);
    ReplyHeader { xid, zxid, err: error.map_or(0, ErrorCode::code) }.encode(out);
}

/// The header before every operation and every result of a multi.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultiHeader {
    /// The operation code.
    pub kind: i32,
    /// Whether this header ends the multi.
    pub done: bool,
    /// An [`ErrorCode`] in a result that is an error, otherwise zero; -1 in requests.
    pub err: i32,
}

impl MultiHeader {
    /// The header that ends a multi, in a request and in a reply.
    pub const END: MultiHeader = MultiHeader { kind: -1, done: true, err: -1 };

    /// Appends the encoding.
    pub fn encode(&self, out: &mut impl Put) {
        out.put_i32(self.kind);
        out.put_bool(self.done);
        out.put_i32(self.err);
    }

    /// Decodes the record.
    pub fn decode(reader: &mut Reader<'_>) -> Result<MultiHeader, DecodeError> {
        Ok(MultiHeader { kind: reader.i32()?, done: reader.bool()?, err: reader.i32()? })
    }
}
