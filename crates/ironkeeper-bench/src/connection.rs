//! A non-blocking connection with an established session: sends requests, receives replies.

use std::io::{ErrorKind, Read, Result, Write};

use mio::net::TcpStream;

use super::reply_scanner::ReplyScanner;

/// A connection owned by the thread that polls it. The outgoing buffer is bounded by the number of
/// requests in flight.
#[derive(Debug)]
pub(crate) struct Connection {
    pub stream: TcpStream,
    pub scanner: ReplyScanner,
    out: Vec<u8>,
    /// Bytes of `out` that the kernel has accepted.
    written: usize,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Connection {
        Connection { stream, scanner: ReplyScanner::new(), out: Vec::new(), written: 0 }
    }

    /// Returns the buffer to which requests are appended; [`Connection::flush`] sends them.
    pub(crate) fn out(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Sends as many bytes as the kernel accepts and returns their number. The caller flushes the
    /// rest when the connection becomes writable.
    pub(crate) fn flush(&mut self) -> Result<usize> {
        let before = self.written;
        while self.written < self.out.len() {
            match self.stream.write(&self.out[self.written..]) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(count) => self.written += count,
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(self.written - before),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
        let sent = self.written - before;
        self.out.clear();
        self.written = 0;
        Ok(sent)
    }

    /// Reads once. Returns `None` when no bytes are available; the end of the stream is an error.
    pub(crate) fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<usize>> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(count) => return Ok(Some(count)),
                Err(why) if why.kind() == ErrorKind::WouldBlock => return Ok(None),
                Err(why) if why.kind() == ErrorKind::Interrupted => {}
                Err(why) => return Err(why),
            }
        }
    }
}
