//! Follows the requests of one client, on the wire.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use ironkeeper_client::{Client, Host, Opening, Transport};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use super::World;

/// What the requests so far were.
#[derive(Clone, Debug, Default)]
pub struct Requests(Arc<Mutex<Vec<i32>>>);

/// As the protocol calls them.
pub const DELETE: i32 = 2;
pub const EXISTS: i32 = 3;
pub const GET: i32 = 4;
pub const CHILDREN: i32 = 8;
pub const SYNC: i32 = 9;

impl Requests {
    /// Those since the last call.
    pub fn take(&self) -> Vec<i32> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

/// A client whose requests are followed.
pub async fn followed(world: &World) -> (Client, Requests) {
    let requests = Requests::default();
    let client = Client::builder(&world.connect_string())
        .transport(Following(requests.clone()))
        .connect()
        .await
        .expect("the server is there");
    (client, requests)
}

#[derive(Debug)]
struct Following(Requests);

impl Transport for Following {
    fn open(&self, server: &Host) -> Opening {
        let (address, requests) = ((server.name().to_owned(), server.port()), self.0.clone());
        Box::pin(async move {
            let stream = TcpStream::connect(address).await?;
            let frames = Frames { stream, requests, written: Vec::new(), is_first: true };
            Ok(Box::new(frames) as _)
        })
    }
}

/// Follows the frames of what is written: a length, then for all but the first an xid and what it is.
struct Frames {
    stream: TcpStream,
    requests: Requests,
    /// What of the current frame was written.
    written: Vec<u8>,
    is_first: bool,
}

impl Frames {
    fn see(&mut self, bytes: &[u8]) {
        self.written.extend_from_slice(bytes);
        let number = |bytes: &[u8]| i32::from_be_bytes(bytes.try_into().expect("four bytes"));
        while let Some(len) = self.written.get(..4) {
            let end = 4 + usize::try_from(number(len)).expect("a length");
            if self.written.len() < end {
                return;
            }
            if !self.is_first {
                let op = number(&self.written[8..12]);
                self.requests.0.lock().unwrap().push(op);
            }
            self.is_first = false;
            self.written.drain(..end);
        }
    }
}

impl AsyncRead for Frames {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for Frames {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if let Poll::Ready(Ok(len)) = written {
            self.see(&bytes[..len]);
        }
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
