//! The open connection of a session, and what is being written to it.
//!
//! Whoever has something to send may write, the driver or a caller: the bytes lie in one buffer behind
//! one lock, so they leave in the order in which they were taken from the machine.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::ReadBuf;

use crate::session::frames::Frames;
use crate::transport::Connection;

#[derive(Default)]
pub(crate) struct Pipe {
    connection: Option<Box<dyn Connection>>,
    /// Being written, and how far that got.
    writing: Vec<u8>,
    written: usize,
    /// Written, but the machine does not know yet.
    unreported: usize,
    /// The transport may hold back something of what was written.
    unflushed: bool,
    /// A caller's write failed. The driver hears of it with its next look.
    broken: Option<io::Error>,
}

impl Pipe {
    pub(crate) fn open(&mut self, connection: Box<dyn Connection>) {
        *self = Pipe { connection: Some(connection), ..Pipe::default() };
    }

    pub(crate) fn close(&mut self) {
        *self = Pipe::default();
    }

    /// Where the next bytes to write go: an empty buffer, if everything before has been written.
    pub(crate) fn next_buffer(&mut self) -> Option<&mut Vec<u8>> {
        if self.written < self.writing.len() || self.connection.is_none() {
            return None;
        }
        self.writing.clear();
        self.written = 0;
        Some(&mut self.writing)
    }

    /// Whether everything has been given to the transport.
    pub(crate) fn is_written(&self) -> bool {
        self.written == self.writing.len()
    }

    /// How much was written since the last call.
    pub(crate) fn take_unreported(&mut self) -> usize {
        std::mem::take(&mut self.unreported)
    }

    /// A caller cannot act on a failure; the driver does.
    pub(crate) fn note_failure(&mut self, failure: io::Error) {
        self.broken = Some(failure);
    }

    /// Gives the transport what it takes. Says whether anything moved; `Pending` parts leave the waker
    /// with the transport.
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
