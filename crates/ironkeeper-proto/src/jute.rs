//! Jute primitives: big-endian numbers, length-prefixed strings, buffers and vectors.

use std::borrow::Cow;

use thiserror::Error;

/// The default of the maximal length of a client frame (`jute.maxbuffer`).
pub const MAX_BUFFER_DEFAULT: usize = 0xfffff;

/// The reason why bytes could not be decoded as the expected record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum DecodeError {
    /// The input is shorter than the record.
    #[error("the record ends too early")]
    Truncated,
    /// A length is negative, or exceeds its limit.
    #[error("impossible length {0}")]
    BadLength(i32),
    /// A string that must not be null is null.
    #[error("a required string is null")]
    NullString,
    /// A vector that must not be null is null.
    #[error("a required vector is null")]
    NullVector,
    /// The number is not a value of the named type.
    #[error("{0} is not a legal value of {1}")]
    BadValue(i32, &'static str),
}

/// Decoder that reads primitives from the front of a byte slice without copying.
///
/// A string or buffer longer than the limit is rejected even if its bytes are present. Apache
/// applies the same rule, and a value that this server accepts must be readable by every other
/// server of the ensemble.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
    field_max: usize,
}

impl<'a> Reader<'a> {
    /// Creates a reader whose strings and buffers are bounded only by the input.
    pub fn new(bytes: &'a [u8]) -> Reader<'a> {
        Reader { rest: bytes, field_max: i32::MAX as usize }
    }

    /// Creates a reader that rejects strings and buffers longer than `field_max`.
    pub fn with_limit(bytes: &'a [u8], field_max: usize) -> Reader<'a> {
        Reader { rest: bytes, field_max }
    }

    /// Returns the bytes that have not been read yet.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns whether all bytes have been read.
    pub fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    #[inline]
    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self.rest.split_first_chunk::<N>().ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads the next `len` bytes.
    #[inline]
    pub fn bytes(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(DecodeError::Truncated)?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads one byte.
    #[inline]
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        Ok(self.take::<1>()?[0])
    }

    /// Reads a boolean. Any non-zero byte is true, as in Java.
    #[inline]
    pub fn bool(&mut self) -> Result<bool, DecodeError> {
        Ok(self.u8()? != 0)
    }

    /// Reads a number of four bytes.
    #[inline]
    pub fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.take()?))
    }

    /// Reads a number of eight bytes.
    #[inline]
    pub fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.take()?))
    }

    /// Reads a buffer. `None` is null, which differs from empty.
    #[inline]
    pub fn buf(&mut self) -> Result<Option<&'a [u8]>, DecodeError> {
        let len = self.i32()?;
        if len == -1 {
            return Ok(None);
        }
        match usize::try_from(len) {
            Ok(len) if len <= self.field_max => self.bytes(len).map(Some),
            _ => Err(DecodeError::BadLength(len)),
        }
    }

    /// Reads a string that may be null. Malformed UTF-8 becomes U+FFFD, as in Java.
    #[inline]
    pub fn opt_str(&mut self) -> Result<Option<Cow<'a, str>>, DecodeError> {
        Ok(self.buf()?.map(text))
    }

    /// Reads a string that must not be null.
    #[inline]
    pub fn str(&mut self) -> Result<Cow<'a, str>, DecodeError> {
        self.opt_str()?.ok_or(DecodeError::NullString)
    }

    /// Reads the element count of a vector. `None` is null (-1); other counts below zero read as
    /// empty, as in Java. Every element takes at least `element_min` bytes: a count that does not
    /// fit into the remaining bytes is rejected before memory is allocated for it.
    pub fn count(&mut self, element_min: usize) -> Result<Option<usize>, DecodeError> {
        let count = self.i32()?;
        if count == -1 {
            return Ok(None);
        }
        let count = usize::try_from(count).unwrap_or(0);
        if count.saturating_mul(element_min) > self.rest.len() {
            return Err(DecodeError::Truncated);
        }
        Ok(Some(count))
    }

    /// Reads a vector of strings. The encoding is checked here, and the strings are decoded by the
    /// iterator.
    pub fn str_vec(&mut self) -> Result<Option<StrVec<'a>>, DecodeError> {
        let Some(count) = self.count(4)? else { return Ok(None) };
        let elements = *self;
        for _ in 0..count {
            self.buf()?.ok_or(DecodeError::NullString)?;
        }
        Ok(Some(StrVec { count, elements }))
    }
}

/// A vector of strings inside a record, whose encoding has been checked.
#[derive(Clone, Copy, Debug)]
pub struct StrVec<'a> {
    count: usize,
    elements: Reader<'a>,
}

impl<'a> StrVec<'a> {
    /// Returns the number of strings.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there are no strings.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Decodes the strings.
    pub fn iter(&self) -> impl Iterator<Item = Cow<'a, str>> + use<'a> {
        let mut reader = self.elements;
        (0..self.count).map_while(move |_| reader.str().ok())
    }
}

/// Decodes bytes as text. Malformed UTF-8 becomes U+FFFD as often as in Java: once for each
/// sequence that cannot start or continue a character, but once for a three-byte surrogate, where
/// Rust's decoder writes three.
pub fn text(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Cow::Borrowed(text),
        Err(_) => Cow::Owned(replaced(bytes)),
    }
}

fn replaced(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some(chunk) = rest.utf8_chunks().next() {
        text.push_str(chunk.valid());
        rest = &rest[chunk.valid().len()..];
        if rest.is_empty() {
            break;
        }
        text.push(char::REPLACEMENT_CHARACTER);
        rest = match rest {
            [0xed, 0xa0..=0xbf, 0x80..=0xbf, behind @ ..] => behind,
            _ => &rest[chunk.invalid().len()..],
        };
    }
    text
}

/// Encoder that appends primitives to a buffer.
pub trait Put {
    /// Appends bytes as they are.
    fn put_raw(&mut self, bytes: &[u8]);

    /// Appends one byte.
    #[inline]
    fn put_u8(&mut self, value: u8) {
        self.put_raw(&[value]);
    }

    /// Appends a boolean as one byte.
    #[inline]
    fn put_bool(&mut self, value: bool) {
        self.put_u8(u8::from(value));
    }

    /// Appends a number of four bytes.
    #[inline]
    fn put_i32(&mut self, value: i32) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Appends a number of eight bytes.
    #[inline]
    fn put_i64(&mut self, value: i64) {
        self.put_raw(&value.to_be_bytes());
    }

    /// Writes a length. Lengths above `i32::MAX` cannot occur: every value comes from a frame, a
    /// log record or a snapshot record whose length is an `i32`.
    #[inline]
    fn put_len(&mut self, len: usize) {
        self.put_i32(i32::try_from(len).expect("lengths come from i32-framed input"));
    }

    /// Appends a buffer after its length; null is the length -1.
    #[inline]
    fn put_buf(&mut self, value: Option<&[u8]>) {
        match value {
            None => self.put_i32(-1),
            Some(bytes) => {
                self.put_len(bytes.len());
                self.put_raw(bytes);
            }
        }
    }

    /// Writes a string. Java encodes each UTF-16 unit separately, so a character above U+FFFF
    /// becomes two three-byte surrogates. Clients see these bytes, so this encoder writes the same.
    #[inline]
    fn put_str(&mut self, value: &str) {
        if value.bytes().any(|byte| byte >= 0xf0) {
            let encoded = surrogate_pairs(value);
            self.put_buf(Some(&encoded));
        } else {
            self.put_buf(Some(value.as_bytes()));
        }
    }

    /// Appends a string that may be null, see [`Put::put_str`].
    fn put_opt_str(&mut self, value: Option<&str>) {
        match value {
            None => self.put_i32(-1),
            Some(value) => self.put_str(value),
        }
    }
}

impl Put for Vec<u8> {
    #[inline]
    fn put_raw(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

fn surrogate_pairs(value: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(value.len() * 3 / 2);
    let mut units = [0u16; 2];
    for character in value.chars() {
        let encoded = character.encode_utf16(&mut units);
        if encoded.len() == 1 {
            bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            continue;
        }
        for unit in encoded {
            bytes.extend_from_slice(&[
                0xe0 | (*unit >> 12) as u8,
                0x80 | ((*unit >> 6) & 0x3f) as u8,
                0x80 | (*unit & 0x3f) as u8,
            ]);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn null_and_empty_buffers_are_distinct() {
        let mut bytes = Vec::new();
        bytes.put_buf(None);
        bytes.put_buf(Some(b""));
        let mut reader = Reader::new(&bytes);
        assert_eq!(reader.buf(), Ok(None));
        assert_eq!(reader.buf(), Ok(Some(&b""[..])));
    }

    #[test]
    fn a_length_larger_than_the_input_allocates_nothing_and_is_refused() {
        let mut bytes = Vec::new();
        bytes.put_i32(i32::MAX);
        assert_eq!(Reader::new(&bytes).buf(), Err(DecodeError::Truncated));
        assert_eq!(Reader::new(&bytes).count(4), Err(DecodeError::Truncated));
        bytes.clear();
        bytes.put_i32(-2);
        assert_eq!(Reader::new(&bytes).buf(), Err(DecodeError::BadLength(-2)));
        assert_eq!(Reader::new(&bytes).count(4), Ok(Some(0)));
    }

    #[test]
    fn the_field_limit_holds_even_when_the_bytes_are_there() {
        let mut bytes = Vec::new();
        bytes.put_buf(Some(&[7; 10]));
        assert_eq!(Reader::with_limit(&bytes, 9).buf(), Err(DecodeError::BadLength(10)));
        assert!(Reader::with_limit(&bytes, 10).buf().is_ok());
    }

    #[test]
    fn characters_above_the_basic_plane_leave_as_surrogates() {
        let mut bytes = Vec::new();
        bytes.put_str("a\u{1f600}");
        assert_eq!(bytes, [0, 0, 0, 7, b'a', 0xed, 0xa0, 0xbd, 0xed, 0xb8, 0x80]);
    }

    #[test]
    fn malformed_utf8_reads_as_replacement_characters() {
        let mut bytes = Vec::new();
        bytes.put_buf(Some(&[b'/', 0xff]));
        assert_eq!(Reader::new(&bytes).str().unwrap(), "/\u{fffd}");
        // The expected counts are what a running Apache server echoes.
        for (bytes, replacements) in [
            (&b"\xed\xa0\xbd"[..], 1),
            (b"\xed\xa0\xbd\xed\xb8\x80", 2),
            (b"\xed\xa0", 2),
            (b"\xf0\x9f\x98", 1),
            (b"\xc0\x80", 2),
            (b"\xf4\x90\x80\x80", 4),
            (b"\xe2\x82", 1),
        ] {
            assert_eq!(text(bytes), "\u{fffd}".repeat(replacements), "{bytes:x?}");
        }
    }
}
