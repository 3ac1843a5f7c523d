//! Notifies systemd (`Type=notify`) when the server is ready and when it stops.

use std::io;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Sends a state such as `READY=1` to the socket that `NOTIFY_SOCKET` names, if it names one.
pub fn tell(state: &str) {
    let Some(name) = std::env::var_os("NOTIFY_SOCKET") else { return };
    if let Err(error) = send(&name.to_string_lossy(), state) {
        tracing::warn!(state, %error, "systemd not notified");
    }
}

fn send(name: &str, state: &str) -> io::Result<()> {
    let address = match name.strip_prefix('@') {
        Some(name) => abstract_address(name)?,
        None => SocketAddr::from_pathname(name)?,
    };
    UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address).map(|_| ())
}

#[cfg(target_os = "linux")]
fn abstract_address(name: &str) -> io::Result<SocketAddr> {
    use std::os::linux::net::SocketAddrExt;
    SocketAddr::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn abstract_address(_: &str) -> io::Result<SocketAddr> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_arrives_at_the_named_socket() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        send(path.to_str().expect("text"), "READY=1").expect("it listens");
        let mut bytes = [0; 16];
        let len = socket.recv(&mut bytes).expect("a state");
        assert_eq!(&bytes[..len], b"READY=1");
        assert!(send("/no/such/socket", "READY=1").is_err());
    }
}
