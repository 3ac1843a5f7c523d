//! Connections inside the process, for tests and simulations.

use std::io;

use tokio::io::DuplexStream;
use tokio::sync::mpsc;

use super::{Opening, Transport};
use crate::hosts::Host;

/// The bytes that one end can write before the other reads.
const BUFFER_BYTES: usize = 256 * 1024;
/// The number of connections that are not accepted yet.
const BACKLOG: usize = 64;

/// Connections inside the process: a [`MemoryListener`] accepts the other end.
///
/// ```
/// use ironkeeper_client::{Client, MemoryTransport};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (transport, mut listener) = MemoryTransport::new();
///     let client = Client::builder("anywhere").transport(transport).start()?;
///     let (server, mut stream) = listener.accept().await.unwrap();
///     assert_eq!(server.to_string(), "anywhere:2181");
///     // A server of one's own goes here; `stream` is where it reads and writes.
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct MemoryTransport {
    connections: mpsc::Sender<(Host, DuplexStream)>,
}

/// The server's side of a [`MemoryTransport`], with an example there.
///
/// ```
/// use ironkeeper_client::{MemoryListener, MemoryTransport};
/// let (transport, listener): (MemoryTransport, MemoryListener) = MemoryTransport::new();
/// ```
#[derive(Debug)]
pub struct MemoryListener {
    connections: mpsc::Receiver<(Host, DuplexStream)>,
}

impl MemoryTransport {
    /// Creates a transport and its listener. After the listener is dropped, connections are
    /// refused.
    ///
    /// ```
    /// let (transport, listener) = ironkeeper_client::MemoryTransport::new();
    /// ```
    pub fn new() -> (MemoryTransport, MemoryListener) {
        let (sender, receiver) = mpsc::channel(BACKLOG);
        (MemoryTransport { connections: sender }, MemoryListener { connections: receiver })
    }
}

impl MemoryListener {
    /// Returns the next connection and the server it is for; `None` after all transports are
    /// dropped.
    ///
    /// ```
    /// #[tokio::main]
    /// async fn main() {
    ///     let (transport, mut listener) = ironkeeper_client::MemoryTransport::new();
    ///     drop(transport);
    ///     assert!(listener.accept().await.is_none());
    /// }
    /// ```
    pub async fn accept(&mut self) -> Option<(Host, DuplexStream)> {
        self.connections.recv().await
    }
}

impl Transport for MemoryTransport {
    fn open(&self, server: &Host) -> Opening {
        let (connections, server) = (self.connections.clone(), server.clone());
        Box::pin(async move {
            let (ours, theirs) = tokio::io::duplex(BUFFER_BYTES);
            let refused = |_| io::Error::from(io::ErrorKind::ConnectionRefused);
            connections.send((server, theirs)).await.map_err(refused)?;
            Ok(Box::new(ours) as _)
        })
    }
}
