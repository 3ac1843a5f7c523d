//! A client whose requests and watch events are observed on the wire.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ironkeeper_client::{Client, Host, Opening, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::World;

/// An observed frame.
#[derive(Clone, Copy, Debug)]
pub enum Heard {
    /// A request with its op code.
    Request(i32),
    Event,
}

type Ear = Arc<dyn Fn(Heard) + Send + Sync>;

/// Connects a client; `ear` is called for every request and watch event.
pub async fn tapped(world: &World, ear: impl Fn(Heard) + Send + Sync + 'static) -> Client {
    Client::builder(&world.connect_string())
        .transport(Tapped(Arc::new(ear)))
        .connect()
        .await
        .expect("the server is there")
}

struct Tapped(Ear);

impl std::fmt::Debug for Tapped {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tapped")
    }
}

impl Transport for Tapped {
    fn open(&self, server: &Host) -> Opening {
        let (address, ear) = ((server.name().to_owned(), server.port()), self.0.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            let (read, written) = (Frames::default(), Frames::default());
            Ok(Box::new(Tap { stream, ear, read, written }) as _)
        })
    }
}

struct Tap {
    stream: TcpStream,
    ear: Ear,
    read: Frames,
    written: Frames,
}

/// One direction: frames with a length prefix. The first frame opens the session.
#[derive(Default)]
struct Frames {
    /// The bytes of the current frame so far.
    bytes: Vec<u8>,
    is_open: bool,
}

impl Frames {
    fn see(&mut self, bytes: &[u8], mut on_frame: impl FnMut(&[u8])) {
        self.bytes.extend_from_slice(bytes);
        while let Some(len) = self.bytes.first_chunk() {
            let end = 4 + usize::try_from(i32::from_be_bytes(*len)).expect("a length");
            if self.bytes.len() < end {
                return;
            }
            if self.is_open {
                on_frame(&self.bytes[4..end]);
            }
            self.is_open = true;
            self.bytes.drain(..end);
        }
    }
}

fn number(frame: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(frame[at..at + 4].try_into().expect("four bytes"))
}

impl AsyncRead for Tap {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Tap { stream, ear, read, .. } = self.get_mut();
        let before = buf.filled().len();
        let polled = Pin::new(stream).poll_read(cx, buf);
        read.see(&buf.filled()[before..], |frame| {
            // A watch event has xid -1.
            if number(frame, 0) == -1 {
                ear(Heard::Event);
            }
        });
        polled
    }
}

impl AsyncWrite for Tap {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Tap { stream, ear, written, .. } = self.get_mut();
        let polled = Pin::new(stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(len)) = polled {
            written.see(&bytes[..len], |frame| ear(Heard::Request(number(frame, 4))));
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
