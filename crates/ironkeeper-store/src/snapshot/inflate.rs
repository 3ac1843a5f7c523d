//! The uncompressed stream of a file of any compression.

use std::io::{self, BufReader, Read};

use super::Compression;
use super::snappy::SnappyReader;

/// The number of compressed bytes that are read at once.
const CHUNK: usize = 256 << 10;

/// The uncompressed bytes of a snapshot.
#[derive(Debug)]
pub(super) enum Plain<R: Read> {
    None(R),
    Gzip(flate2::read::MultiGzDecoder<BufReader<R>>),
    Snappy(SnappyReader<BufReader<R>>),
}

impl<R: Read> Plain<R> {
    pub(super) fn new(source: R, compression: Compression) -> Plain<R> {
        let buffered = |source| BufReader::with_capacity(CHUNK, source);
        match compression {
            Compression::None => Plain::None(source),
            Compression::Gzip => Plain::Gzip(flate2::read::MultiGzDecoder::new(buffered(source))),
            Compression::Snappy => Plain::Snappy(SnappyReader::new(buffered(source))),
        }
    }
}

impl<R: Read> Read for Plain<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self {
            Plain::None(source) => source.read(buf),
            Plain::Gzip(source) => source.read(buf),
            Plain::Snappy(source) => source.read(buf),
        }
    }
}
