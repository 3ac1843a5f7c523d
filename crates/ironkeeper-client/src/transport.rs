//! Transports: how a client connects to servers.

mod memory;
mod tcp;
#[cfg(feature = "tls")]
mod tls;

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncWrite};

pub use memory::{MemoryListener, MemoryTransport};
pub use tcp::TcpTransport;
#[cfg(feature = "tls")]
pub use tls::{TlsSettings, TlsTransport};

use crate::hosts::Host;

/// An open connection: any bidirectional byte stream.
///
/// ```
/// use ironkeeper_client::Connection;
///
/// let (one, _other) = tokio::io::duplex(1024);
/// let connection: Box<dyn Connection> = Box::new(one);
/// ```
pub trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<C: AsyncRead + AsyncWrite + Send + Unpin> Connection for C {}

/// The future of a connection that is being opened.
///
/// ```
/// use ironkeeper_client::Opening;
///
/// let never: Opening = Box::pin(std::future::pending());
/// ```
pub type Opening = Pin<Box<dyn Future<Output = io::Result<Box<dyn Connection>>> + Send>>;

/// A way to connect to servers. A transport resolves the name at every call, so that a server with
/// a new address is found.
///
/// ```
/// use ironkeeper_client::{Host, Opening, Transport};
///
/// /// Reaches every server by way of one proxy.
/// #[derive(Debug)]
/// struct ByWayOf(Host);
///
/// impl Transport for ByWayOf {
///     fn open(&self, _server: &Host) -> Opening {
///         let proxy = (self.0.name().to_owned(), self.0.port());
///         Box::pin(async move {
///             let stream = tokio::net::TcpStream::connect(proxy).await?;
///             Ok(Box::new(stream) as _)
///         })
///     }
/// }
/// ```
pub trait Transport: fmt::Debug + Send + Sync + 'static {
    /// Starts to connect to a server. The future may be dropped at any time.
    fn open(&self, server: &Host) -> Opening;
}
