//! A port that stays reserved while no server listens on it.
//!
//! Between a stop and a restart the system could assign the port to another process: to the server
//! of another test, or as the local port of a client's connection, even of the client that is
//! trying to reconnect. So a second socket is bound to the port and never listens: connections are
//! refused, and the port is in use. Linux allows a listener on the same port if both sockets set
//! `SO_REUSEADDR`. Other systems do not; there the port is not reserved and only likely to be free.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 that is reserved until this value is dropped, for servers that a test
/// starts, stops and starts again on the port.
///
/// ```
/// use ironkeeper_testing::HeldPort;
///
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let port = HeldPort::take(0)?;
///     assert_ne!(port.address().port(), 0);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct HeldPort {
    address: SocketAddr,
    _holder: Option<Socket>,
}

impl HeldPort {
    /// Reserves `port` on 127.0.0.1, or any free port if it is zero.
    pub fn take(port: u16) -> io::Result<HeldPort> {
        let socket = bind((Ipv4Addr::LOCALHOST, port).into())?;
        let address = socket.local_addr()?;
        let address = address.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(HeldPort { address, _holder: cfg!(target_os = "linux").then_some(socket) })
    }

    /// Returns the reserved address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns a listener on the port; there may be one at a time.
    pub(crate) fn listen(&self) -> io::Result<std::net::TcpListener> {
        /// More connections than a test opens before the proxy accepts.
        const BACKLOG: i32 = 1024;
        let socket = bind(self.address)?;
        socket.listen(BACKLOG)?;
        socket.set_nonblocking(true)?;
        Ok(socket.into())
    }
}

fn bind(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    Ok(socket)
}
