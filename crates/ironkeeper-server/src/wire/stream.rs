//! A connected stream, before it is split into its halves.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use tokio::net::TcpStream;

use super::{Reader, Writer};

/// A connected byte stream, registered with the runtime of the current thread.
#[derive(Debug)]
pub(crate) struct Stream {
    peer: SocketAddr,
    transport: Transport,
}

#[derive(Debug)]
enum Transport {
    Tcp(TcpStream),
}

/// A stream that is registered with no runtime, so that another thread can attach it to its own.
#[derive(Debug)]
pub(crate) struct Detached {
    peer: SocketAddr,
    socket: std::net::TcpStream,
}

impl Stream {
    /// Wraps an accepted socket.
    pub(crate) fn accepted(socket: TcpStream, peer: SocketAddr) -> Stream {
        Stream { peer, transport: Transport::Tcp(socket) }
    }

    /// Connects to an address.
    pub(crate) async fn connect(address: SocketAddr) -> io::Result<Stream> {
        let socket = TcpStream::connect(address).await?;
        let peer = socket.peer_addr()?;
        // If a port of this machine has no listener, the kernel may choose it as the local end of
        // the connection, and TCP connects the socket to itself.
        if socket.local_addr()? == peer {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let stream = Stream { peer, transport: Transport::Tcp(socket) };
        stream.set_nodelay()?;
        Ok(stream)
    }

    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Makes the kernel send small writes at once.
    pub(crate) fn set_nodelay(&self) -> io::Result<()> {
        match &self.transport {
            Transport::Tcp(socket) => socket.set_nodelay(true),
        }
    }

    /// Removes the stream from the runtime of this thread.
    pub(crate) fn detach(self) -> io::Result<Detached> {
        match self.transport {
            Transport::Tcp(socket) => Ok(Detached { peer: self.peer, socket: socket.into_std()? }),
        }
    }

    pub(crate) fn split(self) -> (Reader, Writer) {
        match self.transport {
            Transport::Tcp(socket) => {
                let (reader, writer) = socket.into_split();
                (Reader::Tcp(reader), Writer::Tcp(writer))
            }
        }
    }
}

/// For socket options.
impl AsFd for Stream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.transport {
            Transport::Tcp(socket) => socket.as_fd(),
        }
    }
}

impl Detached {
    pub(crate) fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Registers the stream with the runtime of this thread.
    pub(crate) fn attach(self) -> io::Result<Stream> {
        Ok(Stream::accepted(TcpStream::from_std(self.socket)?, self.peer))
    }
}
