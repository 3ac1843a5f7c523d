//! A port that stays ours while nobody listens on it.
//!
//! Between a stop and a restart the system could give the port to somebody else: to another test's
//! server, or as the near end of a client's connection, even of the very client that is trying to
//! reconnect. So a second socket is bound to it, which never listens: connecting is refused as it
//! should be, and the port is taken. Linux lets a listener join it there if both allow re-use; other
//! systems do not, and the port is only likely to be still free.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};

use socket2::{Domain, Socket, Type};

/// A port of 127.0.0.1 that stays taken as long as this lives, for servers that a test starts, stops and
/// starts again there.
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
    /// Takes `port` on 127.0.0.1, or any free one if it is zero.
    pub fn take(port: u16) -> io::Result<HeldPort> {
        let socket = bind((Ipv4Addr::LOCALHOST, port).into())?;
        let address = socket.local_addr()?;
        let address = address.as_socket().ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(HeldPort { address, _holder: cfg!(target_os = "linux").then_some(socket) })
    }

    /// Where it is.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// A listener on it; there may be one at a time.
    pub(crate) fn listen(&self) -> io::Result<std::net::TcpListener> {
        /// More connections than a test opens before the proxy looks.
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
