//! The requests at the beginning of a connection's input.
//!
//! A frame is a length and that many bytes: the header of a request (xid and operation) and its
//! body. Frames are found in place, and the header of each is decoded once. Bodies are decoded
//! where the request is executed.

use ironkeeper_proto::op::OpClass;
use ironkeeper_proto::request::RequestHeader;
use ironkeeper_proto::{OpCode, Reader, Xid};

use crate::conn::CloseReason;
use crate::stats::FRAME_HEAD_BYTES;

/// A complete request with its header decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame<'a> {
    pub xid: Xid,
    pub kind: Kind,
    pub body: &'a [u8],
}

/// What the connection does with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Serves it from memory.
    Read(ReadOp),
    /// Submits it to the engine.
    Write(OpCode),
    /// Processes it immediately, regardless of waiting requests.
    Auth(OpCode),
}

/// The operation of a request that is served from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadOp {
    Served(OpCode),
    /// Unknown, or not allowed to clients: the reply is an error, in the order of requests.
    Rejected(i32),
}

/// A request that is served from memory.
#[derive(Clone, Copy, Debug)]
pub struct ReadRequest<'a> {
    pub xid: Xid,
    pub op: ReadOp,
    pub body: &'a [u8],
}

impl ReadRequest<'_> {
    /// Returns the length of the request with its header.
    pub fn frame_len(&self) -> usize {
        RequestHeader::ENCODED_LEN + self.body.len()
    }
}

impl Kind {
    fn of(code: i32) -> Kind {
        let Some(op) = OpCode::from_code(code) else { return Kind::Read(ReadOp::Rejected(code)) };
        match op.class() {
            OpClass::Read | OpClass::Ping => Kind::Read(ReadOp::Served(op)),
            OpClass::Write | OpClass::Close => Kind::Write(op),
            OpClass::Auth => Kind::Auth(op),
            OpClass::Internal => Kind::Read(ReadOp::Rejected(code)),
        }
    }

    /// Returns whether both can be processed in the same run, that is, with the same locks.
    pub fn is_like(self, other: Kind) -> bool {
        std::mem::discriminant(&self) == std::mem::discriminant(&other)
    }

    pub fn is_read(self) -> bool {
        matches!(self, Kind::Read(_))
    }

    pub fn is_auth(self) -> bool {
        matches!(self, Kind::Auth(_))
    }
}

impl<'a> Frame<'a> {
    #[inline]
    fn decode(frame: &'a [u8]) -> Result<Frame<'a>, CloseReason> {
        let mut reader = Reader::new(frame);
        let header = RequestHeader::decode(&mut reader).map_err(|_| CloseReason::NoHeader)?;
        Ok(Frame { xid: header.xid, kind: Kind::of(header.op), body: reader.rest() })
    }

    /// Returns the length that the client sent before the frame.
    pub fn len(&self) -> usize {
        RequestHeader::ENCODED_LEN + self.body.len()
    }
}

/// The frames in the input of one turn; see the module documentation.
#[derive(Debug)]
pub(crate) struct Frames<'a> {
    input: &'a [u8],
    /// The longest frame that is accepted.
    len_max: usize,
    consumed: usize,
    /// The next request, if its header is decoded already.
    kept: Option<Frame<'a>>,
}

impl<'a> Frames<'a> {
    pub fn new(input: &'a [u8], len_max: usize) -> Frames<'a> {
        Frames { input, len_max, consumed: 0, kept: None }
    }

    /// Returns the next request; `None` if it is incomplete. The caller either consumes it with
    /// [`Frames::pass`] or returns it with [`Frames::keep`].
    #[inline]
    pub fn next(&mut self) -> Result<Option<Frame<'a>>, CloseReason> {
        if self.kept.is_some() {
            return Ok(self.kept.take());
        }
        match next_frame(self.rest(), self.len_max)? {
            None => Ok(None),
            Some(frame) => Frame::decode(frame).map(Some),
        }
    }

    /// Consumes the request that [`Frames::next`] returned.
    #[inline]
    pub fn pass(&mut self, frame: &Frame<'a>) {
        self.consumed += FRAME_HEAD_BYTES + frame.len();
    }

    /// Makes a request that [`Frames::next`] returned the next one again.
    pub fn keep(&mut self, frame: Frame<'a>) {
        self.kept = Some(frame);
    }

    /// Consumes bytes that are no request: the connect request, a four-letter word, or bytes that
    /// are ignored.
    pub fn skip(&mut self, bytes: usize) {
        debug_assert!(self.kept.is_none());
        self.consumed += bytes;
    }

    /// Returns the bytes that are not consumed.
    pub fn rest(&self) -> &'a [u8] {
        &self.input[self.consumed..]
    }

    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// Returns the length of the next frame, of which the length field has arrived.
    pub fn announced_len(&self) -> Option<usize> {
        self.rest().first_chunk().and_then(|head| usize::try_from(i32::from_be_bytes(*head)).ok())
    }
}

/// Returns the body of the next frame, if it is complete.
#[inline]
pub(crate) fn next_frame(input: &[u8], len_max: usize) -> Result<Option<&[u8]>, CloseReason> {
    let Some(head) = input.first_chunk::<FRAME_HEAD_BYTES>() else { return Ok(None) };
    let len = i32::from_be_bytes(*head);
    match usize::try_from(len) {
        Ok(len) if len <= len_max => Ok(input[FRAME_HEAD_BYTES..].get(..len)),
        _ => Err(CloseReason::FrameLength(i64::from(len), len_max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::Put;

    const LEN_MAX: usize = 64;

    fn put_request(out: &mut Vec<u8>, xid: i32, code: i32, body: &[u8]) {
        out.put_len(RequestHeader::ENCODED_LEN + body.len());
        RequestHeader { xid: Xid(xid), op: code }.encode(out);
        out.extend_from_slice(body);
    }

    #[test]
    fn requests_come_out_in_order_and_once() {
        let mut input = Vec::new();
        put_request(&mut input, 1, OpCode::GetData.code(), b"path");
        put_request(&mut input, 2, OpCode::Sync.code(), b"");
        let mut frames = Frames::new(&input, LEN_MAX);
        let first = frames.next().unwrap().expect("a complete request");
        assert_eq!((first.xid, first.body, first.len()), (Xid(1), &b"path"[..], 12));
        frames.keep(first);
        assert_eq!(frames.consumed(), 0);
        let first = frames.next().unwrap().expect("it was not consumed");
        assert_eq!(first.xid, Xid(1));
        frames.pass(&first);
        assert_eq!(frames.consumed(), 16);
        let second = frames.next().unwrap().expect("a complete request");
        assert_eq!((second.xid, second.kind), (Xid(2), Kind::Write(OpCode::Sync)));
        frames.pass(&second);
        assert_eq!((frames.consumed(), frames.rest().len()), (input.len(), 0));
        assert!(frames.next().unwrap().is_none());
    }

    #[test]
    fn a_request_is_found_when_its_last_byte_has_arrived() {
        let mut input = Vec::new();
        put_request(&mut input, 7, OpCode::Exists.code(), b"body");
        for end in 0..input.len() {
            let mut frames = Frames::new(&input[..end], LEN_MAX);
            assert!(frames.next().unwrap().is_none(), "{end} bytes");
            assert_eq!(frames.announced_len(), (end >= 4).then_some(12));
        }
        assert!(Frames::new(&input, LEN_MAX).next().unwrap().is_some());
    }

    #[test]
    fn lengths_outside_of_the_bounds_and_frames_without_header_are_errors() {
        let next = |input: &[u8]| Frames::new(input, LEN_MAX).next().map(|frame| frame.is_some());
        for len in [-1, LEN_MAX as i32 + 1, i32::MAX, i32::MIN] {
            let reason = CloseReason::FrameLength(i64::from(len), LEN_MAX);
            assert_eq!(next(&len.to_be_bytes()), Err(reason));
        }
        assert_eq!(next(&[0, 0, 0, 7, 1, 2, 3, 4, 5, 6, 7]), Err(CloseReason::NoHeader));
        assert_eq!(next(&[0, 0, 0, 0]), Err(CloseReason::NoHeader));
        assert_eq!(next(&[0, 0, 0, 64]), Ok(false));
    }

    #[test]
    fn operations_that_clients_may_not_send_are_rejected_in_order_like_reads() {
        for code in [-10, -1, 0, 10, 13, 20, 99, i32::MAX] {
            assert_eq!(Kind::of(code), Kind::Read(ReadOp::Rejected(code)));
        }
        let ping = Kind::of(OpCode::Ping.code());
        assert_eq!(ping, Kind::Read(ReadOp::Served(OpCode::Ping)));
        assert!(ping.is_like(Kind::of(99)) && ping.is_read() && !ping.is_auth());
        assert_eq!(Kind::of(-11), Kind::Write(OpCode::CloseSession));
        assert_eq!(Kind::of(102), Kind::Auth(OpCode::Sasl));
        assert!(!ping.is_like(Kind::of(102)) && !Kind::of(1).is_like(Kind::of(102)));
    }
}
