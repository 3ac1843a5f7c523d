//! The limits on connections, in total and from one address.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use thiserror::Error;

/// Counters of connections; a limit of zero means no limit.
#[derive(Debug)]
pub struct Limits {
    per_address_max: u32,
    total_max: u32,
    files_max: u32,
    counts: Mutex<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    total: u32,
    per_address: HashMap<IpAddr, u32>,
}

/// The permission for one connection, returned when dropped.
#[derive(Debug)]
pub struct Permit {
    limits: Arc<Limits>,
    address: IpAddr,
}

/// The limit that was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Full {
    #[error("maxClientCnxns is {0}")]
    Address(u32),
    #[error("maxCnxns is {0}")]
    Total(u32),
    #[error("the limit on open files leaves room for {0}")]
    Files(u32),
}

impl Limits {
    pub fn new(per_address_max: u32, total_max: u32, files_max: u32) -> Arc<Limits> {
        Arc::new(Limits { per_address_max, total_max, files_max, counts: Mutex::default() })
    }

    pub fn admit(self: &Arc<Limits>, address: IpAddr) -> Result<Permit, Full> {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if self.total_max > 0 && counts.total >= self.total_max {
            return Err(Full::Total(self.total_max));
        }
        if self.files_max > 0 && counts.total >= self.files_max {
            return Err(Full::Files(self.files_max));
        }
        let own = counts.per_address.entry(address).or_default();
        if self.per_address_max > 0 && *own >= self.per_address_max {
            return Err(Full::Address(self.per_address_max));
        }
        *own += 1;
        counts.total += 1;
        Ok(Permit { limits: Arc::clone(self), address })
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut counts = self.limits.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.total -= 1;
        if let Some(own) = counts.per_address.get_mut(&self.address) {
            *own -= 1;
            if *own == 0 {
                counts.per_address.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn a_dropped_permit_makes_room() {
        let limits = Limits::new(2, 0, 0);
        let (first, second) = (limits.admit(HERE).unwrap(), limits.admit(HERE));
        assert!(second.is_ok());
        assert_eq!(limits.admit(HERE).unwrap_err(), Full::Address(2));
        drop(first);
        assert!(limits.admit(HERE).is_ok());
    }

    #[test]
    fn zero_is_no_limit_and_the_total_counts_all_addresses() {
        let limits = Limits::new(0, 1, 2);
        let _first = limits.admit(HERE).unwrap();
        assert_eq!(limits.admit("10.0.0.1".parse().unwrap()).unwrap_err(), Full::Total(1));
    }
}
