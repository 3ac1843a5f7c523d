//! One connection, which sends and receives frames without decoding them.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

/// The time without a packet after which "no reply" is recorded as the result. It is long, so that
/// a busy machine does not cause a difference.
pub const SILENCE: Duration = Duration::from_secs(15);
/// The largest accepted reply; a larger length is treated as invalid.
const FRAME_MAX: usize = 64 << 20;
const CONNECT_MAX: Duration = Duration::from_secs(10);

#[derive(Debug, PartialEq, Eq)]
pub enum Incoming {
    Frame(Vec<u8>),
    Closed,
    /// No packet within the given time.
    Silent,
    /// A length no frame can have.
    Nonsense(i32),
}

#[derive(Debug)]
pub struct Link {
    stream: TcpStream,
    buffer: Vec<u8>,
    next_xid: i32,
}

impl Link {
    pub fn open(port: u16) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let stream = TcpStream::connect_timeout(&address, CONNECT_MAX)
            .with_context(|| format!("nobody accepts connections on port {port}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new(), next_xid: 0 })
    }

    /// Returns the socket, to set its options or to write to it directly.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    pub fn next_xid(&mut self) -> i32 {
        self.next_xid += 1;
        self.next_xid
    }

    /// Writes bytes. Errors are ignored, because a closed connection is detected by the next read.
    pub fn write(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes);
    }

    pub fn read(&mut self, patience: Duration) -> Incoming {
        let deadline = Instant::now() + patience;
        loop {
            if let Some(length) = self.buffer.first_chunk::<4>() {
                let length = i32::from_be_bytes(*length);
                match usize::try_from(length) {
                    Ok(len) if len <= FRAME_MAX => {
                        if self.buffer.len() >= 4 + len {
                            let rest = self.buffer.split_off(4 + len);
                            let mut frame = std::mem::replace(&mut self.buffer, rest);
                            frame.drain(..4);
                            return Incoming::Frame(frame);
                        }
                    }
                    _ => return Incoming::Nonsense(length),
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Incoming::Silent;
            }
            if self.stream.set_read_timeout(Some(left)).is_err() {
                return Incoming::Closed;
            }
            let mut chunk = [0; 16 << 10];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Incoming::Closed,
                Ok(len) => self.buffer.extend_from_slice(&chunk[..len]),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return Incoming::Silent;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A reset counts as a close: which of the two a client gets depends on its data in
                // flight.
                Err(_) => return Incoming::Closed,
            }
        }
    }
}

/// Returns the body with its length in front.
pub fn framed(body: &[u8]) -> Vec<u8> {
    let mut frame = (body.len() as u32).to_be_bytes().to_vec();
    frame.extend_from_slice(body);
    frame
}
