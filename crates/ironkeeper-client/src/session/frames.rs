//! Splits incoming bytes into frames.
//!
//! One buffer holds the bytes of one read, and frames are read in place. The buffer grows only for
//! a larger frame, only up to the limit for replies, and only as its bytes arrive.

/// The size of the buffer for one read.
const CHUNK: usize = 64 * 1024;

#[derive(Debug)]
pub(crate) struct Frames {
    bytes: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of an oversize frame that are still to be skipped.
    skip: usize,
}

/// The next item in the buffer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// A frame at this range of [`Frames::bytes`].
    Frame { start: usize, end: usize },
    /// The start of a frame that is longer than the limit; `xid` is its first field.
    Oversize { len: usize, xid: i32 },
    /// A negative length.
    Impossible(i32),
    /// More bytes are needed.
    Incomplete,
}

impl Frames {
    pub(crate) fn new() -> Frames {
        Frames { bytes: vec![0; CHUNK], start: 0, end: 0, skip: 0 }
    }

    /// Discards all bytes, for a new connection.
    pub(crate) fn clear(&mut self) {
        (self.start, self.end, self.skip) = (0, 0, 0);
        self.bytes.truncate(CHUNK);
        self.bytes.shrink_to(CHUNK);
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the space for the next read. It is never empty.
    pub(crate) fn space(&mut self) -> &mut [u8] {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.bytes.len() > 4 * CHUNK {
                self.bytes.truncate(CHUNK);
                self.bytes.shrink_to(CHUNK);
            }
        } else if self.bytes.len() - self.end < CHUNK / 4 {
            self.bytes.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            if self.bytes.len() - self.end < CHUNK / 4 {
                self.bytes.resize(self.bytes.len() * 2, 0);
            }
        }
        &mut self.bytes[self.end..]
    }

    /// Records that `count` bytes were read into [`Frames::space`].
    pub(crate) fn filled(&mut self, count: usize) {
        self.end += count;
        let skipped = self.skip.min(self.end - self.start);
        self.skip -= skipped;
        self.start += skipped;
    }

    pub(crate) fn next(&mut self, len_max: usize) -> Next {
        let rest = &self.bytes[self.start..self.end];
        let Some((head, behind)) = rest.split_first_chunk::<4>() else { return Next::Incomplete };
        let len = i32::from_be_bytes(*head);
        let Ok(size) = usize::try_from(len) else { return Next::Impossible(len) };
        if size > len_max {
            return match behind.first_chunk::<4>() {
                Some(xid) => Next::Oversize { len: size, xid: i32::from_be_bytes(*xid) },
                None => Next::Incomplete,
            };
        }
        if behind.len() < size {
            return Next::Incomplete;
        }
        let start = self.start + 4;
        self.start = start + size;
        Next::Frame { start, end: self.start }
    }

    /// Skips the oversize frame that [`Frames::next`] returned.
    pub(crate) fn skip_oversize(&mut self, len: usize) {
        self.skip = len + 4;
        self.filled(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn feed(frames: &mut Frames, mut bytes: &[u8], len_max: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        while !bytes.is_empty() {
            let space = frames.space();
            let count = space.len().min(bytes.len());
            space[..count].copy_from_slice(&bytes[..count]);
            frames.filled(count);
            bytes = &bytes[count..];
            loop {
                match frames.next(len_max) {
                    Next::Frame { start, end } => found.push(frames.bytes()[start..end].to_vec()),
                    Next::Oversize { len, .. } => frames.skip_oversize(len),
                    Next::Incomplete => break,
                    Next::Impossible(len) => panic!("{len}"),
                }
            }
        }
        found
    }

    fn framed(bodies: &[Vec<u8>]) -> Vec<u8> {
        bodies
            .iter()
            .flat_map(|body| [&(body.len() as i32).to_be_bytes()[..], body].concat())
            .collect()
    }

    #[test]
    fn frames_of_all_sizes_come_out_as_they_went_in() {
        let bodies: Vec<Vec<u8>> =
            [0, 1, 5, 70_000, 3, 500_000, 16].iter().map(|len| vec![*len as u8; *len]).collect();
        assert_eq!(feed(&mut Frames::new(), &framed(&bodies), 1 << 20), bodies);
        let mut frames = Frames::new();
        let mut found = Vec::new();
        for byte in framed(&bodies[..3]) {
            found.extend(feed(&mut frames, &[byte], 1 << 20));
        }
        assert_eq!(found, bodies[..3]);
    }

    #[test]
    fn an_oversize_frame_is_passed_over_and_costs_no_memory() {
        let bodies = [vec![1; 10], vec![2; 900_000], vec![3; 10]];
        let mut frames = Frames::new();
        assert_eq!(feed(&mut frames, &framed(&bodies), 1000), [vec![1; 10], vec![3; 10]]);
        assert!(frames.bytes.len() <= 4 * CHUNK);
    }

    #[test]
    fn a_negative_length_is_none() {
        let mut frames = Frames::new();
        frames.space()[..4].copy_from_slice(&(-2i32).to_be_bytes());
        frames.filled(4);
        assert_eq!(frames.next(10), Next::Impossible(-2));
    }
}
