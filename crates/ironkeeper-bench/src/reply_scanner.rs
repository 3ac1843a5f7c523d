//! Finds the replies in the bytes that a connection receives, without keeping or copying their
//! bodies.
//!
//! Bytes arrive in arbitrary pieces. A frame that is complete in one piece is parsed in place; of a
//! split frame only the head is kept, and the remaining bytes are counted. A reply is reported when
//! its last byte has arrived.

use thiserror::Error;

/// The part of a split frame that is kept: length, reply header, the first result of a multi.
const HEAD_MAX: usize = 4 + REPLY_HEADER + MULTI_HEADER;
const REPLY_HEADER: usize = 16;
const MULTI_HEADER: usize = 9;

/// A reply header and the beginning of the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reply<'a> {
    pub xid: i32,
    pub err: i32,
    /// At least the first nine bytes of the body, if the body has as many.
    pub body: &'a [u8],
}

impl<'a> Reply<'a> {
    #[inline]
    fn of(frame: &'a [u8]) -> Reply<'a> {
        let word = |at: usize| {
            i32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
        };
        Reply { xid: word(4), err: word(16), body: &frame[20..] }
    }

    /// Returns the error of a multi. The header of a failed multi reports success; its first result
    /// is then an error (type -1), with code 0 if a later operation failed.
    pub(crate) fn multi_err(&self) -> i32 {
        const NOT_THE_FIRST: i32 = -2;
        match self.body {
            _ if self.err != 0 => self.err,
            [0xff, 0xff, 0xff, 0xff, 0, a, b, c, d, ..] => {
                match i32::from_be_bytes([*a, *b, *c, *d]) {
                    0 => NOT_THE_FIRST,
                    err => err,
                }
            }
            _ => 0,
        }
    }
}

/// A frame that is too short for a reply header. The bytes behind it cannot be parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("the server sent a frame of {0} bytes, too short for a reply")]
pub(crate) struct BadFrame(i32);

/// The parser state of one connection.
#[derive(Debug)]
pub(crate) struct ReplyScanner {
    head: [u8; HEAD_MAX],
    /// Bytes of `head` that are filled; zero between frames.
    have: usize,
    /// Remaining bytes of the current frame behind its head; valid once the head is full.
    skip: usize,
}

impl ReplyScanner {
    pub(crate) fn new() -> ReplyScanner {
        ReplyScanner { head: [0; HEAD_MAX], have: 0, skip: 0 }
    }

    /// Consumes the next received bytes and calls `on_reply` for each reply that ends in them.
    #[inline]
    pub(crate) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut on_reply: impl FnMut(Reply<'_>),
    ) -> Result<(), BadFrame> {
        loop {
            if self.have == 0 {
                while let Some(frame) = whole_frame(bytes)? {
                    on_reply(Reply::of(frame));
                    bytes = &bytes[frame.len()..];
                }
            }
            if bytes.is_empty() {
                return Ok(());
            }
            bytes = self.feed_cut(bytes, &mut on_reply)?;
        }
    }

    /// Handles a frame that is split (the slow path); returns the bytes behind it.
    fn feed_cut<'b>(
        &mut self,
        mut bytes: &'b [u8],
        on_reply: &mut impl FnMut(Reply<'_>),
    ) -> Result<&'b [u8], BadFrame> {
        while self.have < 4 {
            let Some((first, rest)) = bytes.split_first() else { return Ok(bytes) };
            self.head[self.have] = *first;
            self.have += 1;
            bytes = rest;
            if self.have == 4 {
                self.skip = 4 + frame_len(self.head[..4].try_into().expect("four bytes"))?
                    - self.head_len();
            }
        }
        let head_len = self.head_len();
        let taken = bytes.len().min(head_len - self.have);
        self.head[self.have..self.have + taken].copy_from_slice(&bytes[..taken]);
        self.have += taken;
        bytes = &bytes[taken..];
        if self.have < head_len {
            return Ok(bytes);
        }
        let skipped = bytes.len().min(self.skip);
        self.skip -= skipped;
        if self.skip == 0 {
            on_reply(Reply::of(&self.head[..head_len]));
            self.have = 0;
        }
        Ok(&bytes[skipped..])
    }

    /// Returns how many bytes of the current frame are kept. The length of the frame has been
    /// checked.
    fn head_len(&self) -> usize {
        let len = i32::from_be_bytes([self.head[0], self.head[1], self.head[2], self.head[3]]);
        HEAD_MAX.min(4 + usize::try_from(len).unwrap_or(0))
    }
}

#[inline]
fn whole_frame(bytes: &[u8]) -> Result<Option<&[u8]>, BadFrame> {
    let Some(len) = bytes.first_chunk::<4>() else { return Ok(None) };
    Ok(bytes.get(..4 + frame_len(*len)?))
}

#[inline]
fn frame_len(bytes: [u8; 4]) -> Result<usize, BadFrame> {
    let len = i32::from_be_bytes(bytes);
    match usize::try_from(len) {
        Ok(len) if len >= REPLY_HEADER => Ok(len),
        _ => Err(BadFrame(len)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironkeeper_proto::reply::{MultiHeader, finish_frame, header_frame, start_frame};
    use ironkeeper_proto::{ErrorCode, Put, Xid, Zxid};

    fn stream() -> Vec<u8> {
        let mut bytes = Vec::new();
        header_frame(&mut bytes, Xid(1), Zxid(5), None);
        for (xid, body) in [(2, 1), (3, 8), (4, 9), (5, 10), (6, 200)] {
            let start = start_frame(&mut bytes, Xid(xid), Zxid(5));
            bytes.put_raw(&vec![7; body]);
            finish_frame(&mut bytes, start);
        }
        header_frame(&mut bytes, Xid(7), Zxid(6), Some(ErrorCode::NoNode));
        bytes
    }

    fn seen(pieces: &[&[u8]]) -> Vec<(i32, i32, usize)> {
        let mut scanner = ReplyScanner::new();
        let mut seen = Vec::new();
        for piece in pieces {
            scanner
                .feed(piece, |reply| {
                    seen.push((reply.xid, reply.err, reply.body.len().min(MULTI_HEADER)));
                })
                .unwrap();
        }
        seen
    }

    const EXPECTED: [(i32, i32, usize); 7] =
        [(1, 0, 0), (2, 0, 1), (3, 0, 8), (4, 0, 9), (5, 0, 9), (6, 0, 9), (7, -101, 0)];

    #[test]
    fn a_stream_cut_anywhere_gives_the_same_replies() {
        let bytes = stream();
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let pieces = [&bytes[..first], &bytes[first..second], &bytes[second..]];
                assert_eq!(seen(&pieces), EXPECTED, "cut at {first} and {second}");
            }
        }
    }

    #[test]
    fn single_bytes_give_the_same_replies() {
        let bytes = stream();
        let pieces: Vec<&[u8]> = bytes.chunks(1).collect();
        assert_eq!(seen(&pieces), EXPECTED);
    }

    #[test]
    fn a_reply_is_told_with_its_last_byte_and_not_before() {
        let mut bytes = Vec::new();
        let start = start_frame(&mut bytes, Xid(9), Zxid(1));
        bytes.put_raw(&[0; 100]);
        finish_frame(&mut bytes, start);
        let (last, most) = bytes.split_last().unwrap();
        assert_eq!(seen(&[most]), []);
        assert_eq!(seen(&[most, &[*last]]).len(), 1);
    }

    #[test]
    fn frames_without_a_header_are_refused_however_they_arrive() {
        for len in [-1i32, 0, 15, i32::MIN] {
            let bytes = len.to_be_bytes();
            assert_eq!(ReplyScanner::new().feed(&bytes, |_| ()), Err(BadFrame(len)));
            let mut scanner = ReplyScanner::new();
            let result = bytes.chunks(1).try_for_each(|piece| scanner.feed(piece, |_| ()));
            assert_eq!(result, Err(BadFrame(len)));
        }
    }

    #[test]
    fn a_failed_multi_is_seen_behind_its_successful_header() {
        let check = |kind, err, expected| {
            let mut body = Vec::new();
            MultiHeader { kind, done: false, err }.encode(&mut body);
            assert_eq!(Reply { xid: 1, err: 0, body: &body }.multi_err(), expected);
        };
        check(1, 0, 0);
        check(-1, -110, -110);
        check(-1, 0, -2);
        assert_eq!(Reply { xid: 1, err: -5, body: &[] }.multi_err(), -5);
    }
}
