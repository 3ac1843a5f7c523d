//! The sending half of a stream.

use std::io::{self, IoSlice};
use std::net::Shutdown;

use tokio::net::tcp::OwnedWriteHalf;

/// The sending half, for any thread. See the rules of the module for the order of calls.
#[derive(Debug)]
pub(crate) enum Writer {
    Tcp(OwnedWriteHalf),
}

impl Writer {
    /// Passes bytes to the kernel without waiting. Returns the number of bytes accepted, 0 if there
    /// is no room at present. `bytes` is not empty.
    pub(crate) fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Writer::Tcp(half) => accepted(|| half.try_write(bytes)),
        }
    }

    /// Does the same with several buffers in one call. The first one is not empty.
    pub(crate) fn try_write_vectored(&self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        match self {
            Writer::Tcp(half) => accepted(|| half.try_write_vectored(slices)),
        }
    }

    /// Waits until there is room, or until the stream is broken.
    pub(crate) async fn writable(&self) -> io::Result<()> {
        match self {
            Writer::Tcp(half) => half.writable().await,
        }
    }

    /// Sends all bytes; waits for room.
    pub(crate) async fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            match self.try_write(bytes)? {
                0 => self.writable().await?,
                count => bytes = &bytes[count..],
            }
        }
        Ok(())
    }

    /// Ends both directions at once, even if the reader still exists.
    pub(crate) fn shutdown(&self) {
        let Writer::Tcp(half) = self;
        // An error means that the peer has closed the connection already.
        let _ = socket2::SockRef::from(half.as_ref()).shutdown(Shutdown::Both);
    }

    /// Drops this half without ending the sending direction: the socket is closed with the reader.
    pub(crate) fn leave_open(self) {
        match self {
            Writer::Tcp(half) => half.forget(),
        }
    }
}

/// Calls `write` and returns the number of bytes accepted, 0 if there is no room at present.
fn accepted(mut write: impl FnMut() -> io::Result<usize>) -> io::Result<usize> {
    loop {
        match write() {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            outcome => return outcome,
        }
    }
}
