//! The limits on accepted connections of a peer port.
//!
//! A connection is unknown until its first message names a server. Unknown connections have few
//! permits, and a new one replaces the oldest: a member names itself in the packet after the TCP
//! handshake, so it is unknown only for a moment. Non-members have their own permits, and one
//! address can use only a part of them. So neither can use the permits of members, even if all
//! members and a non-member have the same address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironkeeper_proto::ServerId;

use super::link::{End, Link};

/// The maximum number of connections that have not named their server.
const UNKNOWN_MAX: usize = 64;
/// The maximum number of connections of non-members.
const STRANGERS_MAX: usize = 128;
/// The maximum number of unknown connections from one address.
const OF_ONE_ADDRESS_MAX: usize = 16;
/// The maximum number of connections of non-members from one address: for example observers behind
/// a NAT.
const STRANGERS_OF_ONE_ADDRESS_MAX: usize = 64;
/// The maximum number of connections that name the same member: the one that is served, and those
/// that may replace it.
const OF_ONE_MEMBER_MAX: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Unknown,
    Stranger,
    Member(ServerId),
}

#[derive(Debug)]
struct Held {
    address: IpAddr,
    whose: Whose,
    link: Arc<Link>,
}

/// The permits of one port.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// By the order in which they were granted.
    held: Mutex<(u64, BTreeMap<u64, Held>)>,
}

/// The permit of a connection, returned when dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
}

impl Drop for Place {
    fn drop(&mut self) {
        let held = self.places.lock().1.remove(&self.number);
        // This may be the last reference to the link, which closes its socket, outside of the lock.
        drop(held);
    }
}

impl Places {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Held>)> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants a permit to a connection that has not named its server. May close another one for it.
    pub(super) fn admit(self: &Arc<Places>, link: &Arc<Link>) -> Place {
        let address = link.peer.ip();
        let mut held = self.lock();
        let (next, held) = &mut *held;
        let unknown = |of: IpAddr| {
            let is_its = move |held: &Held| held.whose == Whose::Unknown && held.address == of;
            held.iter().filter(move |(_, held)| is_its(held)).map(|(number, _)| *number)
        };
        let total = held.values().filter(|held| held.whose == Whose::Unknown).count();
        let goes = if unknown(address).count() >= OF_ONE_ADDRESS_MAX {
            unknown(address).next()
        } else if total >= UNKNOWN_MAX {
            // Of the address with the most unknown connections.
            let addresses = held.values().map(|held| held.address);
            addresses.max_by_key(|of| unknown(*of).count()).and_then(|of| unknown(of).next())
        } else {
            None
        };
        if let Some(gone) = goes.and_then(|number| held.remove(&number)) {
            gone.link.end(End::Crowded);
        }
        *next += 1;
        held.insert(*next, Held { address, whose: Whose::Unknown, link: Arc::clone(link) });
        Place { places: Arc::clone(self), number: *next }
    }
}

impl Place {
    /// Records the server of a connection. Returns false if there are too many of its kind.
    pub(super) fn name(&self, id: Option<ServerId>, is_member: bool) -> bool {
        let mut held = self.places.lock();
        let held = &mut held.1;
        let Some(address) = held.get(&self.number).map(|held| held.address) else { return false };
        let whose = match id.filter(|_| is_member) {
            Some(id) => Whose::Member(id),
            None => Whose::Stranger,
        };
        let same: Vec<u64> = held
            .iter()
            .filter(|(_, held)| held.whose == whose)
            .map(|(number, _)| *number)
            .collect();
        if whose == Whose::Stranger {
            let of_address = same.iter().filter(|number| held[*number].address == address);
            if same.len() >= STRANGERS_MAX || of_address.count() >= STRANGERS_OF_ONE_ADDRESS_MAX {
                return false;
            }
        } else if same.len() >= OF_ONE_MEMBER_MAX
            && let Some(gone) = same.get(1).and_then(|second| held.remove(second))
        {
            // The oldest may be the one that is served.
            gone.link.end(End::Crowded);
        }
        if let Some(own) = held.get_mut(&self.number) {
            own.whose = whose;
        }
        true
    }
}
