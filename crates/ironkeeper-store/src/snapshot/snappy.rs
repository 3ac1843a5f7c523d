//! The framing of snappy blocks by Java's library.
//!
//! ```text
//! | 82 'SNAPPY' 00 | version 1 i32 | compatible 1 i32 | (length i32, block) ... |
//! ```

use std::io::{self, Read};

pub(super) const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// The block size of the Java library.
pub(super) const BLOCK_LEN: usize = 32 << 10;
/// The maximal length of a block that is accepted. Java's blocks have 32 KiB unless configured
/// otherwise.
const BLOCK_LEN_MAX: usize = 16 << 20;

/// Writes the header of a stream.
pub(super) fn put_head(out: &mut Vec<u8>) {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&1i32.to_be_bytes());
    out.extend_from_slice(&1i32.to_be_bytes());
}

/// Compresses one block and writes its length before it.
pub(super) fn put_block(
    encoder: &mut snap::raw::Encoder,
    block: &[u8],
    out: &mut Vec<u8>,
) -> io::Result<()> {
    let start = out.len();
    out.resize(start + 4 + snap::raw::max_compress_len(block.len()), 0);
    let len = encoder.compress(block, &mut out[start + 4..]).map_err(io::Error::other)?;
    let prefix = i32::try_from(len).map_err(io::Error::other)?;
    out[start..start + 4].copy_from_slice(&prefix.to_be_bytes());
    out.truncate(start + 4 + len);
    Ok(())
}

/// Reader of a framed stream.
#[derive(Debug)]
pub(super) struct SnappyReader<R> {
    source: R,
    head_seen: bool,
    compressed: Vec<u8>,
    block: Vec<u8>,
    consumed: usize,
}

impl<R: Read> SnappyReader<R> {
    pub(super) fn new(source: R) -> SnappyReader<R> {
        let (compressed, block) = (Vec::new(), Vec::new());
        SnappyReader { source, head_seen: false, compressed, block, consumed: 0 }
    }

    /// Decodes the next block. Returns `false` at the end of the stream.
    fn next_block(&mut self) -> io::Result<bool> {
        if !self.head_seen {
            let mut head = [0; MAGIC.len() + 8];
            self.source.read_exact(&mut head)?;
            if head[..MAGIC.len()] != MAGIC {
                return Err(invalid("not a snappy stream"));
            }
            self.head_seen = true;
        }
        let mut prefix = [0; 4];
        let mut filled = 0;
        while filled < prefix.len() {
            match self.source.read(&mut prefix[filled..])? {
                0 if filled == 0 => return Ok(false),
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                count => filled += count,
            }
        }
        let len = usize::try_from(i32::from_be_bytes(prefix)).unwrap_or(usize::MAX);
        if len > snap::raw::max_compress_len(BLOCK_LEN_MAX) {
            return Err(invalid("impossible length of a snappy block"));
        }
        self.compressed.resize(len, 0);
        self.source.read_exact(&mut self.compressed)?;
        let block_len = snap::raw::decompress_len(&self.compressed).map_err(io::Error::other)?;
        if block_len > BLOCK_LEN_MAX {
            return Err(invalid("impossible length of a snappy block"));
        }
        self.block.resize(block_len, 0);
        snap::raw::Decoder::new()
            .decompress(&self.compressed, &mut self.block)
            .map_err(io::Error::other)?;
        self.consumed = 0;
        Ok(true)
    }
}

impl<R: Read> Read for SnappyReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.consumed == self.block.len() {
            if !self.next_block()? {
                return Ok(0);
            }
        }
        let count = buf.len().min(self.block.len() - self.consumed);
        buf[..count].copy_from_slice(&self.block[self.consumed..self.consumed + count]);
        self.consumed += count;
        Ok(count)
    }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
