//! The receiving half of a stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::net::tcp::OwnedReadHalf;

/// The receiving half, for the task of the connection.
#[derive(Debug)]
pub(crate) enum Reader {
    Tcp(OwnedReadHalf),
}

impl Reader {
    /// Waits until the writer of the same stream has room. Here and not at the writer, because the
    /// task waits without the lock under which threads use the writer.
    pub(crate) fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Reader::Tcp(half) => half.as_ref().poll_write_ready(cx),
        }
    }

    /// Returns whether the peer has ended its sending direction. Reads no bytes.
    pub(crate) fn is_ended_by_peer(&self) -> bool {
        match self {
            Reader::Tcp(half) => {
                let ready = std::pin::pin!(half.ready(Interest::READABLE));
                let ready = ready.poll(&mut Context::from_waker(Waker::noop()));
                matches!(ready, Poll::Ready(Ok(ready)) if ready.is_read_closed())
            }
        }
    }
}

impl AsyncRead for Reader {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Reader::Tcp(half) => Pin::new(half).poll_read(cx, buffer),
        }
    }
}
