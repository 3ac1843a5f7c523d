//! Plain TCP.

use std::io;

use tokio::net::{TcpStream, lookup_host};

use super::{Opening, Transport};
use crate::hosts::Host;
use crate::random::Random;

/// Plain TCP, the default of a client.
///
/// ```
/// use ironkeeper_client::{Client, TcpTransport};
///
/// # #[ironkeeper_doctest::server]
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let client = Client::builder("127.0.0.1:2181").transport(TcpTransport).connect().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct TcpTransport;

impl Transport for TcpTransport {
    fn open(&self, server: &Host) -> Opening {
        let server = server.clone();
        Box::pin(async move { Ok(Box::new(open(&server).await?) as _) })
    }
}

/// Tries all addresses of a name, one after the other, in random order: one name may stand for a
/// whole ensemble, and an address that drops packets uses up the whole time of an attempt.
pub(super) async fn open(server: &Host) -> io::Result<TcpStream> {
    let mut failure = None;
    let mut addresses: Vec<_> = lookup_host((server.name(), server.port())).await?.collect();
    Random::from_os().shuffle(&mut addresses);
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                // The client batches requests before it writes; Nagle's algorithm would only add
                // delay.
                stream.set_nodelay(true)?;
                return Ok(stream);
            }
            Err(error) => failure = Some(error),
        }
    }
    Err(failure.unwrap_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no address")))
}
