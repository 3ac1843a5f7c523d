//! Free TCP ports for the servers of a chore.
//!
//! Ports are taken below the kernel's range for outgoing connections (32768 and up on Linux), so
//! that no client's own port can take one between the choice and the server's bind. A process
//! claims ports in blocks, each by a lock on a file, until it exits: concurrent chores never share
//! a port, not even while a restarted server does not listen. A process never gets the same port
//! twice; when all blocks are used up, it gets an error.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

const FIRST: u16 = 21_000;
const BLOCKS: u16 = 110;
/// The number of ports of a block.
const COUNT: u16 = 100;

/// Returns a free port on the loopback interface.
pub fn one() -> Result<u16> {
    block(1)
}

/// Returns the first of `len` consecutive free ports on the loopback interface.
pub fn block(len: u16) -> Result<u16> {
    static CLAIMS: Mutex<Claims> = Mutex::new(Claims::new());
    CLAIMS.lock().unwrap_or_else(PoisonError::into_inner).take(len, &std::env::temp_dir())
}

/// The claimed blocks.
struct Claims {
    /// Their files, which stay locked as long as they are open.
    locks: Vec<File>,
    /// The unused ports of the newest block.
    next: u16,
    end: u16,
    /// The block to claim next.
    block: u16,
}

impl Claims {
    const fn new() -> Claims {
        Claims { locks: Vec::new(), next: 0, end: 0, block: 0 }
    }

    fn take(&mut self, len: u16, dir: &Path) -> Result<u16> {
        if len > COUNT {
            bail!("no more than {COUNT} ports in a row can be had");
        }
        loop {
            while self.next + len <= self.end {
                let first = self.next;
                match (first..first + len).rfind(|port| !is_free(*port)) {
                    None => {
                        self.next = first + len;
                        return Ok(first);
                    }
                    Some(taken) => self.next = taken + 1,
                }
            }
            if self.block == BLOCKS {
                let end = FIRST + BLOCKS * COUNT;
                bail!("no {len} free ports in a row are left between {FIRST} and {end}");
            }
            let first = FIRST + self.block * COUNT;
            self.block += 1;
            if let Some(lock) = claim(&dir.join(format!("ironkeeper-ports-{first}.lock"))) {
                self.locks.push(lock);
                (self.next, self.end) = (first, first + COUNT);
            }
        }
    }
}

/// Returns the locked file; `None` if another process has locked it, or if it cannot be opened.
fn claim(path: &Path) -> Option<File> {
    // A file of another user can be opened for reading, which is sufficient for a lock.
    let file = File::open(path).or_else(|_| File::create(path)).ok()?;
    file.try_lock().ok()?;
    Some(file)
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checking a port binds it for a moment: concurrent tests that check the same ports would
    /// disturb each other.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    #[test]
    fn blocks_do_not_overlap_and_skip_ports_in_use() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        let first = block(10).unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, block(1).unwrap())).unwrap();
        let second = block(10).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(second >= first + 10 || second + 10 <= first);
        assert!(!(second..second + 10).contains(&port));
    }

    #[test]
    fn two_chores_at_a_time_have_different_ports() {
        let _alone = ONE_AT_A_TIME.lock().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let (mut one, mut other) = (Claims::new(), Claims::new());
        for _ in 0..30 {
            let first = one.take(40, dir.path()).unwrap();
            let second = other.take(40, dir.path()).unwrap();
            assert!(first.abs_diff(second) >= 40, "{first} {second}");
        }
    }

    #[test]
    fn a_locked_file_is_claimed_once_it_is_unlocked() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let first = claim(&path).unwrap();
        assert!(claim(&path).is_none());
        // `unlock` instead of closing the file: a child process that another test is starting has a
        // copy of the open file until `exec`, and the copy holds the lock.
        first.unlock().unwrap();
        assert!(claim(&path).is_some());
    }
}
