//! Counts the watch events that a server sends to one client, on the wire.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

use ironkeeper_client::{Client, Host, Opening, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::World;

/// How many events have arrived.
#[derive(Clone, Debug, Default)]
pub struct WatchEvents(Arc<AtomicUsize>);

impl WatchEvents {
    pub fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// A client whose watch events are counted.
pub async fn counted(world: &World) -> (Client, WatchEvents) {
    let events = WatchEvents::default();
    let client = Client::builder(&world.connect_string())
        .transport(Counting(events.clone()))
        .connect()
        .await
        .expect("the server is there");
    (client, events)
}

#[derive(Debug)]
struct Counting(WatchEvents);

impl Transport for Counting {
    fn open(&self, server: &Host) -> Opening {
        let (address, events) = ((server.name().to_owned(), server.port()), self.0.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            let frames = Frames { stream, events, head: Vec::new(), skip: 0, is_first: true };
            Ok(Box::new(frames) as _)
        })
    }
}

/// Follows the frames of what is read: a length, then for all but the first an xid, which is -1 for
/// events.
struct Frames {
    stream: TcpStream,
    events: WatchEvents,
    /// The bytes of the length and the xid that are there.
    head: Vec<u8>,
    /// What is left of the frame behind them.
    skip: usize,
    is_first: bool,
}

impl Frames {
    fn see(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let Some((byte, rest)) = bytes.split_first() else { return };
            self.head.push(*byte);
            bytes = rest;
            if self.head.len() == 8 {
                let number = |at: usize| {
                    i32::from_be_bytes(self.head[at..at + 4].try_into().expect("four bytes"))
                };
                if number(4) == -1 && !self.is_first {
                    self.events.0.fetch_add(1, Ordering::SeqCst);
                }
                self.skip = usize::try_from(number(0)).expect("a length") - 4;
                self.is_first = false;
                self.head.clear();
            }
        }
    }
}

impl AsyncRead for Frames {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let new = buf.filled()[before..].to_vec();
        self.see(&new);
        read
    }
}

impl AsyncWrite for Frames {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
