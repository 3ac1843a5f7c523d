//! The open connection of a session, and the bytes that are being written to it.
//!
//! The driver and callers both write. The bytes are in one buffer behind one lock, so they are sent
//! in the order in which they were taken from the machine.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::session::frames::Frames;
use crate::transport::Connection;

#[derive(Default)]
pub(crate) struct Pipe {
    connection: Option<Box<dyn Connection>>,
    /// The bytes being written; `written` of them are done.
    writing: Vec<u8>,
    written: usize,
    /// The number of written bytes that the machine does not know of yet.
    unreported: usize,
    /// The transport may buffer written bytes.
    unflushed: bool,
    /// The error of a caller's write. The driver receives it with its next `write`.
    broken: Option<io::Error>,
}

impl Pipe {
    pub(crate) fn open(&mut self, connection: Box<dyn Connection>) {
        *self = Pipe { connection: Some(connection), ..Pipe::default() };
    }

    pub(crate) fn close(&mut self) {
        *self = Pipe::default();
    }

    /// Returns the empty buffer for the next bytes, or `None` while earlier bytes are unwritten.
    pub(crate) fn next_buffer(&mut self) -> Option<&mut Vec<u8>> {
        if self.written < self.writing.len() || self.connection.is_none() {
            return None;
        }
        self.writing.clear();
        self.written = 0;
        Some(&mut self.writing)
    }

    /// Returns whether the transport has accepted all bytes.
    pub(crate) fn is_written(&self) -> bool {
        self.written == self.writing.len()
    }

    /// Returns the number of bytes written since the last call.
    pub(crate) fn take_unreported(&mut self) -> usize {
        std::mem::take(&mut self.unreported)
    }

    /// Stores the failure of a caller's write for the driver, because a caller cannot handle it.
    pub(crate) fn note_failure(&mut self, failure: io::Error) {
        self.broken = Some(failure);
    }

    /// Writes as many bytes as the transport accepts. Returns whether any were written; if the
    /// transport returns `Pending`, it keeps the waker.
    pub(crate) fn write(&mut self, cx: &mut Context<'_>) -> io::Result<bool> {
        if let Some(failure) = self.broken.take() {
            return Err(failure);
        }
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let mut connection = Pin::new(&mut **connection);
        let mut moved = false;
        while self.written < self.writing.len() {
            match connection.as_mut().poll_write(cx, &self.writing[self.written..])? {
                Poll::Pending => break,
                Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(count) => {
                    self.written += count;
                    self.unreported += count;
                    self.unflushed = true;
                    moved = true;
                }
            }
        }
        if self.unflushed && connection.poll_flush(cx)?.is_ready() {
            self.unflushed = false;
        }
        Ok(moved)
    }

    /// Reads once. The end of the stream is an error.
    pub(crate) fn read(&mut self, cx: &mut Context<'_>, frames: &mut Frames) -> io::Result<bool> {
        let Some(connection) = &mut self.connection else { return Ok(false) };
        let mut buffer = ReadBuf::new(frames.space());
        if Pin::new(&mut **connection).poll_read(cx, &mut buffer)?.is_pending() {
            return Ok(false);
        }
        let count = buffer.filled().len();
        if count == 0 {
            let end = "the server closed the connection";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, end));
        }
        frames.filled(count);
        Ok(true)
    }
}
