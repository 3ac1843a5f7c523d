//! Free TCP ports for the servers a chore starts.
//!
//! Ports are taken below the range the kernel hands out to outgoing connections (32768 and up on Linux), so
//! that no client's own port can land on one between the choice and the server's bind. Within one process
//! no port is given out twice; two chores running at once start at different places.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Result, bail};

const FIRST: u16 = 21_000;
const COUNT: u16 = 1_000;

/// A free port on the loopback interface.
pub fn one() -> Result<u16> {
    block(1)
}

/// The first of `len` consecutive free ports on the loopback interface.
pub fn block(len: u16) -> Result<u16> {
    static NEXT: AtomicU16 = AtomicU16::new(u16::MAX);
    // The process id spreads concurrent chores; the first caller fixes the start.
    let spread = (std::process::id() % 90) as u16 * 10;
    let _ = NEXT.compare_exchange(u16::MAX, spread, Ordering::Relaxed, Ordering::Relaxed);
    for _ in 0..COUNT {
        let offset = NEXT.fetch_add(len, Ordering::Relaxed) % COUNT;
        let first = FIRST + offset;
        if offset + len <= COUNT && (first..first + len).all(is_free) {
            return Ok(first);
        }
    }
    bail!("no {len} free ports in a row between {FIRST} and {}", FIRST + COUNT)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_overlap_and_skip_ports_in_use() {
        let first = block(10).unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, block(1).unwrap())).unwrap();
        let second = block(10).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(second >= first + 10 || second + 10 <= first);
        assert!(!(second..second + 10).contains(&port));
    }
}
